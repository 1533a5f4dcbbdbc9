// Memory: float buffers, and large pages if the system has them.
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

// Prefetches floats into the L2 cache.
GRASS_INLINE void prefetch(const float* data, int count) {
  for (int i = 0; i < count; i += 16) __builtin_prefetch(data + i, 0, 2);
}

// Uninitialised floats, aligned to cache lines.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t size) {
    const size_t bytes = (size * sizeof(float) + 127) / 64 * 64;
    data_.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    if (!data_) throw std::bad_alloc();
    prefer_large_pages(data_.get(), bytes);
  }
  operator float*() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> data_;
};

}  // namespace grass
