// The norm after each layer, stored separately from the values: rows are stored unnormalised and
// normalised when loaded.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "plan.h"
#include "stack.h"
#include "vec.h"

namespace grass {

constexpr double epsilon = 1e-7;  // in the attention's denominator and in the norm

// Shift and scale of every group, as the operation stores them: normalised = (value - shift) ·
// scale.
struct Norm {
  const float* shift;
  const float* scale;
  size_t stride;  // from group to group

  static size_t size(const GrassStack& stack, int groups) {
    return size_t(groups) * 2 * stack.width;
  }

  // The norm after layer l, of nodes (kind 0) or edges (kind 1); none before the first layer.
  static Norm after(const GrassStack& stack, int groups, int l, int kind, const float* identity) {
    const float* at = l < 0 ? identity : stack.affine + (l * 2 + kind) * size(stack, groups);
    return {at, at + stack.width, l < 0 ? 0 : size_t(2 * stack.width)};
  }

  static std::vector<float> identity(int width) {
    std::vector<float> result(2 * width, 0.0f);
    std::fill(result.begin() + width, result.end(), 1.0f);
    return result;
  }
};

// Vector v of a group's norm, kept in registers for many rows.
template <int D>
struct NormVector {
  using F = typename Width<D>::F;
  F shift, scale;
  GRASS_INLINE NormVector(Width<D> w, Norm norm, int group, int v)
      : shift(w.load(norm.shift + group * norm.stride, v)),
        scale(w.load(norm.scale + group * norm.stride, v)) {}
  GRASS_INLINE F operator()(F value) const { return (value - shift) * scale; }
};

template <int D, class T>
GRASS_INLINE typename Width<D>::F normalised(Width<D> w, const T* values, size_t row, Norm norm,
                                             int group, int v) {
  return NormVector<D>(w, norm, group, v)(w.load(values + row * w.width(), v));
}

// Sums over the rows of one group that one thread processes.
struct Sums {
  double rows = 0;
  std::vector<double> first, second;  // mean and squared deviations; or Σ g and Σ g·v
  std::vector<float> pivot;           // the running mean, in float
  explicit Sums(int padded) : first(padded), second(padded), pivot(padded) {}
  void clear() {
    rows = 0;
    std::fill(first.begin(), first.end(), 0.0);
    std::fill(second.begin(), second.end(), 0.0);
  }
};

// One Sums for each thread and each of its groups. Neighbouring threads share at most one group, so
// the index `group + thread` is unique.
class GroupSums {
 public:
  GroupSums(int groups, int threads, int padded) : sums_(groups + threads, Sums(padded)) {}

  Sums& at(int group, int thread) { return sums_[group + thread]; }

  void clear(const Share& share, int thread) {
    for (int g = share.first_group; g <= share.last_group; g++) at(g, thread).clear();
  }

  // Calls use(group, sums) for the groups that begin in a thread's share, with the sums of the
  // following threads merged in.
  template <class Merge, class Use>
  void finish(const std::vector<Share>& shares, int thread, Merge merge, Use use) {
    int begin = shares[thread].first_group;
    for (int t = 0; t < thread; t++)
      if (shares[t].last_group >= begin) begin = shares[t].last_group + 1;
    for (int g = begin; g <= shares[thread].last_group; g++) {
      Sums& sums = at(g, thread);
      for (size_t t = thread + 1; t < shares.size(); t++)
        if (shares[t].first_group <= g && g <= shares[t].last_group) merge(sums, at(g, t));
      use(g, sums);
    }
  }

 private:
  std::vector<Sums> sums_;
};

// Chan's formula: mean and squared deviations of the union of two sets of rows, per channel.
inline void merge_moments(Sums& a, double rows, const double* mean, const double* deviations,
                          int first, int count) {
  const double weight = rows / (a.rows + rows), spread = a.rows * weight;
  double *means = a.first.data() + first, *sums = a.second.data() + first;
  float* pivot = a.pivot.data() + first;
  for (int c = 0; c < count; c++) {
    const double delta = mean[c] - means[c];
    means[c] += delta * weight;
    sums[c] += deviations[c] + delta * delta * spread;
    pivot[c] = static_cast<float>(means[c]);
  }
}

inline void merge_moments(Sums& a, const Sums& b) {
  if (b.rows == 0) return;
  merge_moments(a, b.rows, b.first.data(), b.second.data(), 0, a.first.size());
  a.rows += b.rows;
}

// Sums over the rows of all processes, in place; false on failure.
inline bool add_up_processes(const GrassStack& stack, Sums& sums) {
  const size_t size = sums.first.size();
  std::vector<double> all(1 + 2 * size);
  all[0] = sums.rows;
  std::copy(sums.first.begin(), sums.first.end(), all.begin() + 1);
  std::copy(sums.second.begin(), sums.second.end(), all.begin() + 1 + size);
  if (stack.add_up(all.data(), all.size()) != 0) return false;
  sums.rows = all[0];
  std::copy_n(all.begin() + 1, size, sums.first.begin());
  std::copy_n(all.begin() + 1 + size, size, sums.second.begin());
  return true;
}

// The same for moments, sent as Σ v and Σ v², for which double is precise enough.
inline bool add_up_moments(const GrassStack& stack, Sums& moments) {
  for (size_t c = 0; c < moments.first.size(); c++) {
    moments.second[c] += moments.rows * moments.first[c] * moments.first[c];
    moments.first[c] *= moments.rows;
  }
  const bool done = add_up_processes(stack, moments);
  for (size_t c = 0; c < moments.first.size(); c++) {
    moments.first[c] /= std::max(moments.rows, 1.0);
    const double square = moments.rows * moments.first[c] * moments.first[c];
    moments.second[c] = std::max(moments.second[c] - square, 0.0);
  }
  return done;
}

// Adds the moments of value(v, r) for all rows r; called once per vector. Deviations are taken from
// the mean of the previous rows, which is close enough for float32.
template <int D, class Value>
GRASS_INLINE void add_moments(Width<D> w, Sums& sums, int rows, Value value) {
  using V = typename Width<D>::V;
  using F = typename Width<D>::F;
  if (rows == 0) return;
  for (int v = 0; v < w.vectors(); v++) {
    const F start = value(v, 0);
    const F pivot = sums.rows > 0 ? V::load(sums.pivot.data() + v * w.lanes) : start;
    F difference = start - pivot, first = difference, second = difference * difference;
    for (int r = 1; r < rows; r++) {
      difference = value(v, r) - pivot;
      first += difference;
      second += difference * difference;
    }
    double mean[w.lanes], deviations[w.lanes];
    for (int i = 0; i < w.lanes; i++) {
      const double shift = double(first[i]) / rows;
      mean[i] = pivot[i] + shift;
      deviations[i] = std::max(second[i] - shift * first[i], 0.0);
    }
    merge_moments(sums, rows, mean, deviations, v * w.lanes, w.lanes);
  }
  sums.rows += rows;
}

}  // namespace grass
