// Memory: buffers, and large pages if the system has them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

#define GRASS_INLINE inline __attribute__((always_inline))

namespace grass {

// Requests large pages for memory that is about to be written for the first time: a training step
// stores hundreds of megabytes, and small pages would cost a tenth of its time.
inline void prefer_large_pages(const void* data, size_t bytes) {
#ifdef __linux__
  const uintptr_t page = 1 << 21, start = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (start + page - 1) / page * page, last = (start + bytes) / page * page;
  if (data && first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

// Prefetches bytes into the L2 cache.
GRASS_INLINE void prefetch(const void* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64)
    __builtin_prefetch(static_cast<const char*>(data) + i, 0, 2);
}

// Uninitialised numbers, aligned to cache lines.
template <class T>
class Array {
 public:
  Array() = default;
  explicit Array(size_t size) {
    const size_t bytes = (size * sizeof(T) + 127) / 64 * 64;
    data_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
    if (!data_) throw std::bad_alloc();
    prefer_large_pages(data_.get(), bytes);
  }
  operator T*() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
};

using Buffer = Array<float>;

}  // namespace grass
