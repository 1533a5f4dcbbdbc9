// Small dense products in registers: tiles of rows × vectors, with the right-hand side packed in
// panels.
#pragma once

#include <cstddef>

#include "vec.h"

namespace grass {

// Rows of a tile, so that its sums, one row of the right-hand side and one broadcast value fit into
// the registers. Eight sums hide the latency of the additions.
constexpr int tile_rows(int vectors) {
  return native_registers >= 32 ? 8 : vectors == 3 ? 4 : vectors == 2 ? 6 : 8;
}

GRASS_INLINE int panel_vectors(int vectors) {
  return vectors % 3 == 0 ? 3 : vectors % 2 == 0 ? 2 : 1;
}

// The left-hand side: elements (m, k…k + pair) at data[m * row + k / pair * step], so it can be
// read transposed.
struct Left {
  const Element* data;
  ptrdiff_t row, step;
};

// The right-hand side [depth, columns], divided into panels of panel_vectors(columns / L) vectors.
// The elements of a pair of rows alternate.
struct Right {
  const Element* data;
  ptrdiff_t panel, step;  // from panel to panel, and from pair to pair of rows within one
};

// One step of a product: sum += left · right for `pair` rows of the right-hand side.
template <int L>
struct Step {
  using V = Lanes<L>;
  using F = typename V::F;

#if !defined(GRASS_MIXED)
  using Columns = F;
  static GRASS_INLINE Columns load(const float* right) { return V::load(right); }
  static GRASS_INLINE F add(F sum, const float* left, Columns right) { return sum + *left * right; }
#else
  static GRASS_INLINE uint32_t both(const Bfloat16* left) {
    uint32_t word;
    std::memcpy(&word, left, sizeof word);
    return word;
  }
#if defined(__AVX512BF16__)
  static_assert(L == 16 || L == 8);
  using Columns = typename V::U;
  static GRASS_INLINE Columns load(const Bfloat16* right) {
    Columns words;
    std::memcpy(&words, right, sizeof words);
    return words;
  }
  static GRASS_INLINE F add(F sum, const Bfloat16* left, Columns right) {
    if constexpr (L == 16) {
      const auto words = (__m512bh)_mm512_set1_epi32(both(left));
      return (F)_mm512_dpbf16_ps((__m512)sum, words, (__m512bh)right);
    } else {
      const auto words = (__m256bh)_mm256_set1_epi32(both(left));
      return (F)_mm256_dpbf16_ps((__m256)sum, words, (__m256bh)right);
    }
  }
#else  // the same products in float32
  struct Columns {
    F even, odd;
  };
  static GRASS_INLINE Columns load(const Bfloat16* right) {
    typename V::U words;
    std::memcpy(&words, right, sizeof words);
    return {(F)(words << 16), (F)(words & 0xffff0000)};
  }
  static GRASS_INLINE F add(F sum, const Bfloat16* left, Columns right) {
    const uint32_t words[2] = {both(left) << 16, both(left) & 0xffff0000};
    float values[2];
    std::memcpy(values, words, sizeof values);
    return sum + values[0] * right.even + values[1] * right.odd;
  }
#endif
#endif
};

// Keeps the compiler from loading a vector again for each product that it is part of: with AVX2,
// the loads would take longer than the products.
template <class T>
GRASS_INLINE T in_register(T value) {
#if defined(__AVX__)
  if constexpr (native_registers == 16 && sizeof(T) == 4 * native_lanes) asm("" : "+x"(value));
#endif
  return value;
}

template <int L, int Rows, int Vectors>
GRASS_INLINE void tile(Left a, const Element* b, ptrdiff_t b_step, int steps, float* c,
                       ptrdiff_t c_row, bool add) {
  using V = Lanes<L>;
  typename V::F sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int m = 0; m < Rows; m++)
#pragma GCC unroll 3
    for (int n = 0; n < Vectors; n++)
      sum[m][n] = add ? V::load(c + m * c_row + n * L) : typename V::F{};
  for (int k = 0; k < steps; k++, a.data += a.step, b += b_step) {
    typename Step<L>::Columns right[Vectors];
#pragma GCC unroll 3
    for (int n = 0; n < Vectors; n++) right[n] = in_register(Step<L>::load(b + n * L * pair));
#pragma GCC unroll 8
    for (int m = 0; m < Rows; m++)
#pragma GCC unroll 3
      for (int n = 0; n < Vectors; n++)
        sum[m][n] = Step<L>::add(sum[m][n], a.data + m * a.row, right[n]);
  }
#pragma GCC unroll 8
  for (int m = 0; m < Rows; m++)
#pragma GCC unroll 3
    for (int n = 0; n < Vectors; n++) V::store(c + m * c_row + n * L, sum[m][n]);
}

template <int L, int Vectors>
GRASS_INLINE void multiply_panels(Left a, int rows, Right b, int panels, int steps, float* c,
                                  ptrdiff_t c_row, bool add) {
  for (int p = 0; p < panels; p++, b.data += b.panel, c += Vectors * L) {
    int m = 0;
    const auto at = [&](int row) { return Left{a.data + row * a.row, a.row, a.step}; };
    constexpr int most = tile_rows(Vectors);
    for (; m + most <= rows; m += most)
      tile<L, most, Vectors>(at(m), b.data, b.step, steps, c + m * c_row, c_row, add);
    if (most > 4 && m + 4 <= rows) {
      tile<L, 4, Vectors>(at(m), b.data, b.step, steps, c + m * c_row, c_row, add);
      m += 4;
    }
    if (m + 2 <= rows) {
      tile<L, 2, Vectors>(at(m), b.data, b.step, steps, c + m * c_row, c_row, add);
      m += 2;
    }
    if (m < rows) tile<L, 1, Vectors>(at(m), b.data, b.step, steps, c + m * c_row, c_row, add);
  }
}

// c[rows, vectors · L] = a b, or += a b, over steps · pair elements.
template <int L>
GRASS_INLINE void multiply(Left a, int rows, Right b, int vectors, int steps, float* c,
                           ptrdiff_t c_row, bool add = false) {
  switch (panel_vectors(vectors)) {
    case 3:
      return multiply_panels<L, 3>(a, rows, b, vectors / 3, steps, c, c_row, add);
    case 2:
      return multiply_panels<L, 2>(a, rows, b, vectors / 2, steps, c, c_row, add);
    default:
      return multiply_panels<L, 1>(a, rows, b, vectors, steps, c, c_row, add);
  }
}

// Sums over rows, c += aᵀ b, for matrices of at most `rows` rows and `columns` columns.
template <int L>
class OuterProduct {
 public:
  OuterProduct(size_t rows, int columns)
      : a_(rounded_size((rows + 1) * columns)), b_(rounded_size((rows + 1) * columns)) {}

  // c[columns of a, columns of b] += aᵀ b, neither of them packed.
  GRASS_INLINE void add(const Element* a, int a_columns, ptrdiff_t a_row, const Element* b,
                        int b_vectors, ptrdiff_t b_row, int rows, float* c) const {
    const int b_columns = b_vectors * L;
    if constexpr (is_mixed) {  // a step takes two rows
      a = alternate(a, a_columns, a_row, rows, a_);
      b = alternate(b, b_columns, b_row, rows, b_);
      a_row = a_columns;
      b_row = b_columns;
    }
    const Right right{b, ptrdiff_t(panel_vectors(b_vectors)) * L * pair, b_row * pair};
    multiply<L>(Left{a, pair, a_row * pair}, a_columns, right, b_vectors, (rows + pair - 1) / pair,
                c, b_columns, true);
  }

 private:
  using V = Lanes<L>;

  // Pairs of rows with alternating elements; the partner of an odd last row is zero.
  static GRASS_INLINE const Element* alternate(const Element* from, int columns, ptrdiff_t row,
                                               int rows, Element* to) {
    for (int r = 0; r < rows; r += 2)
      for (int c = 0; c < columns; c += L) {
        const Element* at = from + r * row + c;
        const auto even = V::halves(at);
        const auto odd = r + 1 < rows ? V::halves(at + row) : typename V::U{};
        const typename V::U words = even | odd << 16;
        std::memcpy(to + r * columns + 2 * c, &words, sizeof words);
      }
    return to;
  }

  Array<Element> a_, b_;
};

}  // namespace grass
