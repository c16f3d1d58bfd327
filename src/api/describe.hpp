#pragma once

// Pieces of error messages: "q: shape [1, 2, 3] has rank 3, expected 4".

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "tilewise/types.hpp"

namespace tilewise::api {

inline std::string list_of(const std::int64_t* values, int count) {
  std::string text = "[";
  for (int n = 0; n < count; ++n) text += (n > 0 ? ", " : "") + std::to_string(values[n]);
  return text + "]";
}

inline std::string shape_of(const ConstTensorView& view) { return list_of(view.shape.data(), view.rank); }

[[noreturn]] inline void refuse(const char* argument, const std::string& what) {
  throw std::invalid_argument(std::string(argument) + ": " + what);
}

}  // namespace tilewise::api
