// Dispatches a C call to the code for its width. Exceptions are converted to a GrassStatus.
#pragma once

#include <new>
#include <stdexcept>

#include "stack.h"

namespace grass {

// Runs a pass with a compile-time width: one of the paper's presets, or 0 for any other.
template <template <int> class Pass>
int run_pass(const GrassStack& stack) {
  try {
    switch (stack.width) {
      case 24:
        Pass<24>::run(stack);
        break;
      case 32:
        Pass<32>::run(stack);
        break;
      case 96:
        Pass<96>::run(stack);
        break;
      default:
        Pass<0>::run(stack);
    }
    return grass_ok;
  } catch (const std::invalid_argument&) {
    return grass_bad_order;
  } catch (const std::bad_alloc&) {
    return grass_no_memory;
  } catch (...) {
    return grass_failed;
  }
}

}  // namespace grass
