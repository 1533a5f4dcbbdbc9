// Dispatches a C call to the code for its width. Exceptions are converted to a GrassStatus.
#pragma once

#include <new>
#include <stdexcept>

#include "stack.h"

namespace grass {

// Calls run() with a compile-time width: one of the paper's presets, or 0 for any other.
template <class Run>
int for_width(int64_t width, Run run) {
  try {
    switch (width) {
      case 24:
        run.template operator()<24>();
        break;
      case 32:
        run.template operator()<32>();
        break;
      case 96:
        run.template operator()<96>();
        break;
      default:
        run.template operator()<0>();
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
