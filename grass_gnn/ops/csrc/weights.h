// The weights of a layer, packed for the products that use them.
#pragma once

#include "gemm.h"
#include "memory.h"

namespace grass {

// Where each parameter begins in the flat weights of a layer of width d.
struct Offsets {
  size_t node_in, edge_in, node_bias, edge_bias, node_out, edge_out, node_out_bias, edge_out_bias,
      size;
  Offsets(size_t d, bool output_bias)
      : node_in(0), edge_in(4 * d * d), node_bias(7 * d * d), edge_bias(node_bias + d),
        node_out(edge_bias + d), edge_out(node_out + d * d), node_out_bias(edge_out + d * d),
        edge_out_bias(node_out_bias + d), size(node_out_bias + (output_bias ? 2 * d : 0)) {}
};

// A weight of `blocks` square blocks, [blocks · d, d], as the right-hand side of a product:
// transposed, it maps a row of width d to blocks · d; otherwise, it maps a gradient back.
template <int D>
class Packed {
 public:
  Packed(Width<D> width, int blocks, bool transposed)
      : w_(width), blocks_(blocks), transposed_(transposed),
        data_(size_t(blocks) * w_.padded() * w_.padded()) {}

  int vectors() const { return w_.vectors() * (transposed_ ? blocks_ : 1); }
  int depth() const { return transposed_ ? w_.padded() : w_.padded() * blocks_; }

  void pack(const float* weight, float scale = 1.0f) {
    const int d = w_.width(), padded = w_.padded();
    const int panel = panel_vectors(vectors()) * w_.lanes;
    for (int block = 0; block < blocks_; block++)
      for (int out = 0; out < padded; out++)
        for (int in = 0; in < padded; in++) {
          const bool real = out < d && in < d;
          const float value = real ? scale * weight[size_t(block * d + out) * d + in] : 0.0f;
          const int k = transposed_ ? in : block * padded + out;
          const int n = transposed_ ? block * padded + out : in;
          const size_t first = (size_t(n / panel) * (depth() / pair) + k / pair) * panel;
          set(data_[(first + n % panel) * pair + k % pair], value);
        }
  }

  // c[rows, …] = a · this, or += a · this.
  void multiply(const Element* a, ptrdiff_t a_row, int rows, float* c, ptrdiff_t c_row,
                bool add = false) const {
    const int panel = panel_vectors(vectors()) * w_.lanes;
    const Right right{data_, ptrdiff_t(depth()) * panel, panel * pair};
    grass::multiply<Width<D>::lanes>(Left{a, a_row, pair}, rows, right, vectors(), depth() / pair,
                                     c, c_row, add);
  }

 private:
  const Width<D> w_;
  const int blocks_;
  const bool transposed_;
  Array<Element> data_;
};

// A bias, padded.
template <int D>
class Bias {
 public:
  explicit Bias(Width<D> w) : w_(w), data_(w.padded()) { fill(nullptr); }
  void fill(const float* bias, float scale = 1.0f) {
    for (int c = 0; c < w_.padded(); c++)
      data_[c] = bias && c < w_.width() ? scale * bias[c] : 0.0f;
  }
  operator const float*() const { return data_; }

 private:
  const Width<D> w_;
  Buffer data_;
};

}  // namespace grass
