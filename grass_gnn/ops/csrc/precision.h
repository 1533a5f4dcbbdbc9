// The precision of products and of saved rows. The library is compiled once for each precision that
// is used: in float32, or, with GRASS_MIXED, with bfloat16 operands and float32 sums. Weights,
// norms, softmax sums and all gradients that leave the library are float32 in both.
#pragma once

#include <cstdint>
#include <cstring>

#include "memory.h"

namespace grass {

// The upper half of a float: the same range, 8 significant bits.
struct Bfloat16 {
  uint16_t bits;
};

#ifdef GRASS_MIXED
constexpr bool is_mixed = true;
using Element = Bfloat16;  // of operands and saved rows
#else
constexpr bool is_mixed = false;
using Element = float;
#endif

constexpr int pair = is_mixed ? 2 : 1;  // elements that one step of a product takes of each operand

// Rounds to nearest even. NaN stays NaN.
inline void set(float& element, float value) { element = value; }
inline void set(Bfloat16& element, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  element.bits = value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0;
}

// Where the operand of a product is: in the floats themselves, or in a rounded copy.
#ifdef GRASS_MIXED
GRASS_INLINE Element* operand(float*, Element* rounded) { return rounded; }
#else
GRASS_INLINE Element* operand(float* floats, Element*) { return floats; }
#endif
inline size_t rounded_size(size_t size) { return is_mixed ? size : 0; }

// Rows of a layer: float32 before the first and after the last layer, saved elements in between.
struct Rows {
  void* data;
  bool is_float;

  size_t element_size() const { return is_float ? sizeof(float) : sizeof(Element); }
};

// Calls use with a pointer of the right type.
template <class Use>
GRASS_INLINE void with(Rows rows, Use use) {
  if (!is_mixed || rows.is_float)
    use(static_cast<float*>(rows.data));
  else
    use(static_cast<Element*>(rows.data));
}

}  // namespace grass
