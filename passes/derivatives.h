// By what expressions are differentiated.
#pragma once

#include <cstdint>

namespace srjit {

enum class DerivativesBy : std::uint8_t {
  kParameters,  ///< those of the expression
  kVariables,   ///< all columns of the data
};

}  // namespace srjit
