// Backward pass of the norm: two sums per group and channel, accumulated with the gradients.
#pragma once

#include "norm.h"

namespace grass {

// How a gradient passes back through a norm: (g - mean - slope · v) · scale for the normalised
// value v.
struct NormGradient {
  struct View {
    const float *mean, *slope;
  };
  std::vector<float> mean, slope;  // [groups, padded]
  NormGradient(int groups, int padded) : mean(groups * padded), slope(groups * padded) {}
  View view() const { return {mean.data(), slope.data()}; }

  // From Σ g and Σ g·v over the rows of a group.
  void set(const GrassStack& stack, int group, const Sums& total) {
    // Given statistics are constants: the norm is then an affine map.
    const bool batch = stack.norm == grass_batch_norm && !stack.given;
    const bool instance = stack.norm == grass_instance_norm;
    const double rows = std::max(total.rows, 1.0);
    const double slope_rows = batch ? std::max(rows - 1, 1.0) : rows;
    const size_t padded = total.first.size();
    for (size_t c = 0; c < padded; c++) {
      mean[group * padded + c] = batch ? static_cast<float>(total.first[c] / rows) : 0.0f;
      slope[group * padded + c] =
          batch || instance ? static_cast<float>(total.second[c] / slope_rows) : 0.0f;
    }
  }
};

// A layer's output and the gradient of its normalised form.
struct Output {
  const float* grad;
  Rows value;
  Norm value_norm;  // the norm of `value`
  Norm norm;        // the norm that the gradient passes through
  NormGradient::View correction;
};

// Vector v of a group's norm gradient, kept in registers for many rows.
template <int D>
struct GradientVector {
  using V = typename Width<D>::V;
  using F = typename Width<D>::F;
  NormVector<D> value_norm;
  F mean, slope, scale;
  GRASS_INLINE GradientVector(Width<D> w, const Output& output, int group, int v)
      : value_norm(w, output.value_norm, group, v),
        mean(V::load(output.correction.mean + size_t(group) * w.padded() + v * w.lanes)),
        slope(V::load(output.correction.slope + size_t(group) * w.padded() + v * w.lanes)),
        scale(w.load(output.norm.scale + group * output.norm.stride, v)) {}
  GRASS_INLINE F operator()(F grad, F value) const {
    return (grad - mean - slope * value_norm(value)) * scale;
  }
};

inline void merge_plain(Sums& a, const Sums& b) {
  for (size_t c = 0; c < a.first.size(); c++) {
    a.first[c] += b.first[c];
    a.second[c] += b.second[c];
  }
  a.rows += b.rows;
}

// Adds Σ g and Σ g·v, the two sums that the gradient of a norm needs.
template <int D, class Gradient>
GRASS_INLINE void add_gradient_sums(Width<D> w, Sums& sums, int rows, Gradient gradient) {
  using F = typename Width<D>::F;
  for (int v = 0; v < w.vectors(); v++) {
    F first{}, second{};
    for (int r = 0; r < rows; r++) {
      F value;
      const F g = gradient(v, r, value);
      first += g;
      second += g * value;
    }
    for (int i = 0; i < w.lanes; i++) {
      sums.first[v * w.lanes + i] += first[i];
      sums.second[v * w.lanes + i] += second[i];
    }
  }
  sums.rows += rows;
}

}  // namespace grass
