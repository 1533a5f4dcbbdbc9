// Vectors of floats over the compiler's vector extensions: AVX-512, AVX2, SSE and NEON from one
// source.
#pragma once

#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "precision.h"

namespace grass {

#if defined(__AVX512F__) && defined(__AVX512VL__)
constexpr int native_lanes = 16, native_registers = 32;
#elif defined(__AVX__)
constexpr int native_lanes = 8, native_registers = 16;
#elif defined(__aarch64__)
constexpr int native_lanes = 4, native_registers = 32;
#else
constexpr int native_lanes = 4, native_registers = 16;
#endif

// Between L words and their lower halves, in memory. Specialised by hand, because GCC converts
// vectors of fixed sizes only.
template <int L>
struct Conversion;
#define GRASS_CONVERSION(L)                                          \
  template <>                                                        \
  struct Conversion<L> {                                             \
    typedef uint32_t Words __attribute__((vector_size(4 * L)));      \
    typedef uint16_t Halves __attribute__((vector_size(2 * L)));     \
    static GRASS_INLINE void narrow(const void* from, void* to) {    \
      Words words;                                                   \
      std::memcpy(&words, from, sizeof words);                       \
      const Halves halves = __builtin_convertvector(words, Halves);  \
      std::memcpy(to, &halves, sizeof halves);                       \
    }                                                                \
    static GRASS_INLINE void widen(const void* from, void* to) {     \
      Halves halves;                                                 \
      std::memcpy(&halves, from, sizeof halves);                     \
      const Words words = __builtin_convertvector(halves, Words);    \
      std::memcpy(to, &words, sizeof words);                         \
    }                                                                \
  };
GRASS_CONVERSION(4)
GRASS_CONVERSION(8)
GRASS_CONVERSION(16)
#undef GRASS_CONVERSION

template <int L>
struct Lanes {
  typedef float F __attribute__((vector_size(4 * L)));
  typedef uint32_t U __attribute__((vector_size(4 * L)));

  static GRASS_INLINE F load(const float* p) {
    F x;
    std::memcpy(&x, p, sizeof(F));
    return x;
  }
  static GRASS_INLINE void store(float* p, F x) { std::memcpy(p, &x, sizeof(F)); }
  static GRASS_INLINE F load(const Bfloat16* p) { return (F)(halves(p) << 16); }
  static GRASS_INLINE void store(Bfloat16* p, F x) {  // rounds as set() does
#if defined(__AVX512BF16__)
    if constexpr (L == 16) {
      const auto rounded = _mm512_cvtneps_pbh((__m512)x);
      std::memcpy(p, &rounded, 2 * L);
      return;
    }
#endif
    const U bits = (U)x, rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const U valid = x == x ? rounded : rounded * 0 + 0x7fc0;
    Conversion<L>::narrow(&valid, p);
  }
  // The bits of L values, each in the lower half of a word.
  static GRASS_INLINE U halves(const Bfloat16* p) {
    U words;
    Conversion<L>::widen(p, &words);
    return words;
  }
  static GRASS_INLINE void add(float* p, F x) { store(p, load(p) + x); }
  static GRASS_INLINE F all(float value) { return value - F{}; }
  // Maximum and minimum, or b if either is NaN.
  static GRASS_INLINE F max(F a, F b) {
#if defined(__AVX512F__)  // GCC compiles the general form to two instructions
    if constexpr (L == 16) return (F)_mm512_max_ps((__m512)a, (__m512)b);
#endif
#if defined(__AVX__)
    if constexpr (L == 8) return (F)_mm256_max_ps((__m256)a, (__m256)b);
#endif
    return a > b ? a : b;
  }
  static GRASS_INLINE F min(F a, F b) {
#if defined(__AVX512F__)
    if constexpr (L == 16) return (F)_mm512_min_ps((__m512)a, (__m512)b);
#endif
#if defined(__AVX__)
    if constexpr (L == 8) return (F)_mm256_min_ps((__m256)a, (__m256)b);
#endif
    return a < b ? a : b;
  }
  static GRASS_INLINE U count() {  // 0, 1, 2, …
    constexpr uint32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    U result;
    std::memcpy(&result, numbers, sizeof(U));
    return result;
  }

  // e^x for x up to 80. Below -50 it stays at e^-50: this makes no difference in a float32 sum,
  // and products with it do not become denormal numbers, which are slow. NaN stays NaN.
  static GRASS_INLINE F exp(F x) {
    const float rounder =
        12582912.0f;  // 1.5 · 2^23: adding it leaves the nearest integer in the low bits
    x = max(all(-50.0f), x);
    const F shifted = x * 1.44269504f + rounder;  // x / ln 2 = n + r, where n is an integer
    const F r = x * 1.44269504f - (shifted - rounder);
    F y;
    if constexpr (is_mixed) {  // 2^r for |r| ≤ 1/2, to 8e-5: bfloat16 has a step of 4e-3
      y = r * 5.517167e-2f + 2.4261113e-1f;
      y = y * r + 6.9326099e-1f;
      y = y * r + 9.9992807e-1f;
    } else {  // to 9e-8
      y = r * 1.3264727089e-3f + 9.6715128619e-3f;
      y = y * r + 5.5507337456e-2f;
      y = y * r + 2.4022242082e-1f;
      y = y * r + 6.9314697760e-1f;
      y = y * r + 1.0f;
    }
    return (F)((U)y + ((U)shifted << 23));  // times 2^n
  }

  // 1 / x, for x between 1e-30 and 1e30.
  static GRASS_INLINE F inverse(F x) {
    // An estimate of 14 (AVX-512) or 12 bits (AVX) and one Newton step are faster than a division.
#if defined(__AVX512F__)
    if constexpr (L == 16) {
      const F guess = (F)_mm512_rcp14_ps((__m512)x);
      if constexpr (is_mixed) return guess;
      return guess * (2.0f - x * guess);
    }
#endif
#if defined(__AVX__)
    if constexpr (L == 8) {
      const F guess = (F)_mm256_rcp_ps((__m256)x);
      return guess + guess * (1.0f - x * guess);
    }
#endif
    return 1.0f / x;
  }

  // mish(x) = x tanh(softplus(x)) = x t / (t + 2), where w = e^x and t = w² + 2w. The fraction is 1
  // in float32 long before x = 20.
  static GRASS_INLINE F mish(F x) {
    const F w = exp(min(all(20.0f), x));
    const F t = w * (w + 2.0f);
    return x * (t * inverse(t + 2.0f));
  }

  // mish and its derivative t / (t + 2) + 4 x w (w + 1) / (t + 2)².
  static GRASS_INLINE F mish(F x, F& slope) {
    const F w = exp(min(all(20.0f), x));
    const F t = w * (w + 2.0f);
    const F share = inverse(t + 2.0f);
    const F fraction = t * share;
    slope = fraction + (4.0f * x * share) * (w * share * (w + 1.0f));
    return x * fraction;
  }
};

// The width of the representations. D > 0 is known at compile time; D = 0 supports any width and
// pads rows with zeros to a multiple of 16; every step of a layer keeps them zero.
template <int D>
struct Width {
  static constexpr int lanes = D == 0 || D % native_lanes == 0 ? native_lanes : 8;
  using V = Lanes<lanes>;
  using F = typename V::F;

  int actual;
  int rounded;

  explicit Width(int width) : actual(width), rounded((width + 15) / 16 * 16) {}
  GRASS_INLINE int width() const { return D ? D : actual; }    // of input and output rows
  GRASS_INLINE int padded() const { return D ? D : rounded; }  // of rows in internal buffers
  GRASS_INLINE int vectors() const { return padded() / lanes; }

  // Vector number v of a row of width() elements; values beyond its end are read as zero.
  template <class T>
  GRASS_INLINE F load(const T* row, int v) const {
    const int rest = width() - v * lanes;
    if (D || rest >= lanes) return V::load(row + v * lanes);
    T part[lanes] = {};
    if (rest > 0) std::memcpy(part, row + v * lanes, sizeof(T) * rest);
    return V::load(part);
  }
  template <class T>
  GRASS_INLINE void store(T* row, int v, F x) const {
    const int rest = width() - v * lanes;
    if (D || rest >= lanes) return V::store(row + v * lanes, x);
    T part[lanes];
    V::store(part, x);
    if (rest > 0) std::memcpy(row + v * lanes, part, sizeof(T) * rest);
  }
};

}  // namespace grass
