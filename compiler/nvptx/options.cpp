#include "compiler/nvptx/options.h"

#include <array>

namespace srjit {

std::span<const std::string_view> deviceArchitectures() noexcept {
  static constexpr std::array<std::string_view, 6> kArchitectures = {"sm_75", "sm_80", "sm_86",
                                                                     "sm_87", "sm_89", "sm_90"};
  return kArchitectures;
}

}  // namespace srjit
