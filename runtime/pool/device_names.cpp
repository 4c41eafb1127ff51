#include "runtime/pool/device_names.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/text/lexer.h"

namespace srjit {
namespace {

constexpr std::string_view kCudaPrefix = "cuda:";

Error malformed(std::string_view device) {
  return {Errc::kInvalid, fmt::format("device {}, expected {}", text::inQuotes(device), kDeviceForms), {}};
}

}  // namespace

Result<std::optional<std::vector<unsigned>>> cudaOrdinals(std::string_view device,
                                                          const std::function<Result<std::size_t>()>& count) {
  using Ordinals = std::optional<std::vector<unsigned>>;
  if (!device.starts_with(kCudaPrefix)) return Ordinals();
  const std::string_view list = device.substr(kCudaPrefix.size());
  std::vector<unsigned> ordinals;
  if (list == "all") {
    const Result<std::size_t> all = count();
    if (!all) return all.error();
    if (*all == 0) return Error{Errc::kMachine, "device cuda:all, but this machine has no device", {}};
    ordinals.resize(*all);
    std::iota(ordinals.begin(), ordinals.end(), 0U);
    return Ordinals(std::move(ordinals));
  }
  const char* next = list.data();
  const char* const end = list.data() + list.size();
  for (;;) {
    unsigned ordinal = 0;
    const auto [after, error] = std::from_chars(next, end, ordinal);
    if (error != std::errc()) return malformed(device);
    if (std::ranges::find(ordinals, ordinal) != ordinals.end()) {
      return Error{
          Errc::kInvalid, fmt::format("device {}, which has cuda:{} twice", text::inQuotes(device), ordinal), {}};
    }
    ordinals.push_back(ordinal);
    if (after == end) return Ordinals(std::move(ordinals));
    if (*after != ',') return malformed(device);
    next = after + 1;
  }
}

std::string nameOfDevices(const std::vector<unsigned>& ordinals) {
  return fmt::format("{}{}", kCudaPrefix, fmt::join(ordinals, ","));
}

}  // namespace srjit
