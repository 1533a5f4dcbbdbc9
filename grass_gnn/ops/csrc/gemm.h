// Small dense products in registers: tiles of rows × vectors, with the right-hand side packed in panels.
#pragma once

#include <cstddef>

#include "vec.h"

namespace grass {

// A tile has at most 3 vectors per row, so that its sums, one row of the right-hand side and one
// broadcast value fit into the registers.
constexpr int tile_rows = native_registers >= 32 ? 8 : 4;

GRASS_INLINE int panel_vectors(int vectors) {
  return vectors % 3 == 0 ? 3 : vectors % 2 == 0 ? 2 : 1;
}

// The left-hand side: element (m, k) at data[m * row + k * step], so it can be read transposed.
struct Left {
  const float* data;
  ptrdiff_t row, step;
};

// The right-hand side [depth, columns], divided into panels of panel_vectors(columns / L) vectors.
struct Right {
  const float* data;
  ptrdiff_t panel, step;  // from panel to panel, and from row to row within one
};

template <int L, int Rows, int Vectors>
GRASS_INLINE void tile(Left a, const float* b, ptrdiff_t b_step, int depth, float* c,
                       ptrdiff_t c_row, bool add) {
  using V = Lanes<L>;
  typename V::F sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int m = 0; m < Rows; m++)
#pragma GCC unroll 3
    for (int n = 0; n < Vectors; n++)
      sum[m][n] = add ? V::load(c + m * c_row + n * L) : typename V::F{};
  for (int k = 0; k < depth; k++, a.data += a.step, b += b_step) {
    typename V::F right[Vectors];
#pragma GCC unroll 3
    for (int n = 0; n < Vectors; n++) right[n] = V::load(b + n * L);
#pragma GCC unroll 8
    for (int m = 0; m < Rows; m++) {
      const float left = a.data[m * a.row];
#pragma GCC unroll 3
      for (int n = 0; n < Vectors; n++) sum[m][n] += left * right[n];
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < Rows; m++)
#pragma GCC unroll 3
    for (int n = 0; n < Vectors; n++) V::store(c + m * c_row + n * L, sum[m][n]);
}

template <int L, int Vectors>
GRASS_INLINE void multiply_panels(Left a, int rows, Right b, int panels, int depth, float* c,
                                  ptrdiff_t c_row, bool add) {
  for (int p = 0; p < panels; p++, b.data += b.panel, c += Vectors * L) {
    int m = 0;
    const auto at = [&](int row) { return Left{a.data + row * a.row, a.row, a.step}; };
    for (; m + tile_rows <= rows; m += tile_rows)
      tile<L, tile_rows, Vectors>(at(m), b.data, b.step, depth, c + m * c_row, c_row, add);
    if (tile_rows > 4 && m + 4 <= rows) {
      tile<L, 4, Vectors>(at(m), b.data, b.step, depth, c + m * c_row, c_row, add);
      m += 4;
    }
    if (m + 2 <= rows) {
      tile<L, 2, Vectors>(at(m), b.data, b.step, depth, c + m * c_row, c_row, add);
      m += 2;
    }
    if (m < rows) tile<L, 1, Vectors>(at(m), b.data, b.step, depth, c + m * c_row, c_row, add);
  }
}

// c[rows, vectors · L] = a b, or += a b.
template <int L>
GRASS_INLINE void multiply(Left a, int rows, Right b, int vectors, int depth, float* c,
                           ptrdiff_t c_row, bool add = false) {
  switch (panel_vectors(vectors)) {
    case 3:
      return multiply_panels<L, 3>(a, rows, b, vectors / 3, depth, c, c_row, add);
    case 2:
      return multiply_panels<L, 2>(a, rows, b, vectors / 2, depth, c, c_row, add);
    default:
      return multiply_panels<L, 1>(a, rows, b, vectors, depth, c, c_row, add);
  }
}

// c[columns of a, columns of b] += aᵀ b over `rows` rows, neither of them packed.
template <int L>
GRASS_INLINE void add_outer(const float* a, int a_columns, ptrdiff_t a_row, const float* b,
                            int b_vectors, ptrdiff_t b_row, int rows, float* c) {
  const Right right{b, panel_vectors(b_vectors) * L, b_row};
  multiply<L>(Left{a, 1, a_row}, a_columns, right, b_vectors, rows, c, b_vectors * L, true);
}

}  // namespace grass
