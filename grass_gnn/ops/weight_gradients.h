// Gradients of a layer's weights, as a thread adds them up.
#pragma once

#include <vector>

#include "weights.h"

namespace grass {

// Summed in float for some blocks, then in double.
class WeightGradients {
 public:
  explicit WeightGradients(size_t padded)
      : at(padded, true), sums_(at.size), totals_(at.size) { clear(); }

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

  const Offsets at;  // in padded widths

 private:
  Buffer sums_;
  std::vector<double> totals_;
};

}  // namespace grass
