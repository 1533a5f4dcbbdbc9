// Counter-based random edge removal: whether a score is kept follows from seed, layer, row and
// channel, so no mask is stored and the backward pass recomputes the same one. removal.py has the
// same function in PyTorch.
#pragma once

#include "vec.h"

namespace grass {

constexpr uint32_t golden_ratio = 0x9E3779B9u;

template <class U>
GRASS_INLINE U mix(U h) {  // the finaliser of MurmurHash3
  h ^= h >> 16;
  h *= 0x85EBCA6Bu;
  h ^= h >> 13;
  h *= 0xC2B2AE35u;
  h ^= h >> 16;
  return h;
}

class Removal {
 public:
  Removal(double probability, uint64_t seed, uint64_t layer)
      : threshold_(static_cast<uint32_t>(probability * 4294967296.0)),
        scale_(static_cast<float>(1.0 / (1.0 - probability))) {
    uint64_t h = seed + 0x9E3779B97F4A7C15u * (layer + 1);  // SplitMix64
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
    h ^= h >> 31;
    first_ = static_cast<uint32_t>(h);
    second_ = static_cast<uint32_t>(h >> 32);
  }

  bool is_on() const { return threshold_ > 0; }
  uint32_t row_key(uint32_t row) const { return mix(row * golden_ratio + first_) ^ second_; }

  // 0, or 1 / (1 - p), for the channels from `channel` on.
  template <int L>
  GRASS_INLINE typename Lanes<L>::F keep(uint32_t row_key, uint32_t channel) const {
    const auto h = mix((Lanes<L>::count() + channel) * golden_ratio + row_key);
    return h >= threshold_ ? Lanes<L>::all(scale_) : Lanes<L>::all(0.0f);
  }

 private:
  uint32_t threshold_, first_, second_;
  float scale_;
};

}  // namespace grass
