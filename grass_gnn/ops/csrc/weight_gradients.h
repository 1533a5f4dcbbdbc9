// Gradients of a layer's weights, accumulated by one thread.
#pragma once

#include <vector>

#include "weights.h"

namespace grass {

// Summed in float over a few blocks, then in double.
class WeightGradients {
 public:
  explicit WeightGradients(int width)
      : padded(width), at(width, true), sums_(at.size), totals_(at.size) {
    clear();
  }

  float* operator[](size_t offset) const { return sums_ + offset; }
  double total(size_t i) const { return totals_[i]; }

  void clear() {
    std::fill(static_cast<float*>(sums_), sums_ + at.size, 0.0f);
    std::fill(totals_.begin(), totals_.end(), 0.0);
  }
  void flush() {
    for (size_t i = 0; i < at.size; i++) {
      totals_[i] += sums_[i];
      sums_[i] = 0.0f;
    }
  }

  const int padded;
  const Offsets at;  // in padded widths

 private:
  Buffer sums_;
  std::vector<double> totals_;
};

// Sums the gradients of all threads, always in thread order, into the flat weights of a
// layer of width d. Each thread sums a part of the rows; `alpha` scales the output maps.
inline void add_up(const std::vector<WeightGradients>& all, int thread, const Offsets& to, int d,
                   double alpha, float* result) {
  const Offsets& from = all[0].at;
  const int padded = all[0].padded;
  const auto rows = [&](size_t first, size_t source, int count, double scale) {
    for (int row = thread; row < count; row += static_cast<int>(all.size()))
      for (int c = 0; c < d; c++) {
        const size_t at = source + (row / d * padded + row % d) * padded + c;
        double sum = 0;
        for (const WeightGradients& gradients : all) sum += gradients.total(at);
        result[first + size_t(row) * d + c] = static_cast<float>(scale * sum);
      }
  };
  rows(to.node_in, from.node_in, 4 * d, 1);
  rows(to.edge_in, from.edge_in, 3 * d, 1);
  rows(to.node_bias, from.node_bias, 1, 1);
  rows(to.edge_bias, from.edge_bias, 1, 1);
  rows(to.node_out, from.node_out, d, alpha);
  rows(to.edge_out, from.edge_out, d, alpha);
  if (to.size == to.node_out_bias) return;  // the layer has no output biases
  rows(to.node_out_bias, from.node_out_bias, 1, alpha);
  rows(to.edge_out_bias, from.edge_out_bias, 1, alpha);
}

}  // namespace grass
