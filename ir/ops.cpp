#include "ir/ops.h"

#include <array>
#include <unordered_map>

namespace srjit {
namespace {

constexpr std::array kOps = {
#define SRJIT_OP(id, name, text, arity, props, value, dx, dy, dz, doc) \
  OpInfo{name, text, arity, static_cast<std::uint8_t>(props), #value, doc},
#include "ir/ops.def"
#undef SRJIT_OP
};

constexpr std::array kFunctions = {
#define SRJIT_FUNCTION(id, arity, libdevice, libmvec, ulp_device32, ulp_device64, ulp_host, fast_error) \
  FunctionInfo{#id, arity, libdevice, libmvec, ulp_device32, ulp_device64, ulp_host},
#include "ir/functions.def"
#undef SRJIT_FUNCTION
};

// The preprocessor's spelling of every cell, so that no change of a table goes unnoticed.
constexpr std::string_view kTableText =
#define SRJIT_OP(...) #__VA_ARGS__ "\n"
#include "ir/ops.def"
#undef SRJIT_OP
#define SRJIT_FUNCTION(...) #__VA_ARGS__ "\n"
#include "ir/functions.def"
#undef SRJIT_FUNCTION
    ;

}  // namespace

std::span<const OpInfo> allOps() noexcept { return kOps; }
std::span<const FunctionInfo> allFunctions() noexcept { return kFunctions; }

std::optional<Op> findOp(std::string_view name_or_text) noexcept {
  static const auto index = [] {
    std::unordered_map<std::string_view, Op> map;
    for (std::size_t i = 0; i < kOps.size(); ++i) {
      map.emplace(kOps[i].name, static_cast<Op>(i));
      map.emplace(kOps[i].text, static_cast<Op>(i));
    }
    return map;
  }();
  const auto found = index.find(name_or_text);
  if (found == index.end()) return std::nullopt;
  return found->second;
}

std::uint64_t tableVersion() noexcept {
  // FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv): the text is hashed at compile time, once.
  constexpr std::uint64_t kHash = [] {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : kTableText) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return hash;
  }();
  return kHash;
}

}  // namespace srjit
