#include "tools/search/link.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <fmt/format.h>

#include "ir/text/lexer.h"

namespace srjit::search {
namespace {

constexpr double kLeast = 1e-15, kMost = 1e15;  // beyond, squares and their reciprocals leave the range of f32
bool isPositive(double y) { return y > kLeast && y < kMost; }
bool hasLogarithm(double y) { return y >= std::numeric_limits<double>::min() && std::isfinite(y); }

constexpr Op kInverse[] = {Op::kInv};
constexpr Op kRoot[] = {Op::kSqrt};
constexpr Op kInverseRoot[] = {Op::kSqrt, Op::kInv};
constexpr Op kExponential[] = {Op::kExp};
constexpr Op kLogarithm[] = {Op::kLog};
constexpr Op kArcSine[] = {Op::kAsin};
constexpr Op kArcCosine[] = {Op::kAcos};

constexpr Link kLinks[] = {
    {"identity", [](double y) { return y; }, [](double) { return true; }, {}},
    {"inverse", [](double y) { return 1 / y; }, [](double y) { return isPositive(std::fabs(y)); }, kInverse},
    {"square", [](double y) { return y * y; }, [](double y) { return y >= 0 && y < kMost; }, kRoot},
    {"inverse-square", [](double y) { return 1 / (y * y); }, isPositive, kInverseRoot},
    {"log", [](double y) { return std::log(y); }, hasLogarithm, kExponential},
    {"exp", [](double y) { return std::exp(y); }, [](double y) { return std::fabs(y) < 20; }, kLogarithm},
    {"sin", [](double y) { return std::sin(y); }, [](double y) { return std::fabs(y) <= std::numbers::pi / 2; },
     kArcSine},
    {"cos", [](double y) { return std::cos(y); }, [](double y) { return y >= 0 && y <= std::numbers::pi; }, kArcCosine},
};

/// Whether a search with this grammar uses the link if nothing is said of links.
bool isUsual(const Link& link, const Grammar& grammar) {
  return std::ranges::all_of(link.inverse, [&](Op op) {
    switch (op) {
      case Op::kInv:
        return grammar.has(Op::kInv) || grammar.has(Op::kDiv);
      case Op::kAsin:
        return grammar.has(Op::kAsin) || grammar.has(Op::kSin);
      case Op::kAcos:
        return grammar.has(Op::kAcos) || grammar.has(Op::kCos);
      default:
        return grammar.has(op);
    }
  });
}

bool admits(const Link& link, std::span<const double> target) {
  if (!std::ranges::all_of(target, link.admits)) return false;
  const auto [least, most] = std::ranges::minmax(target, {}, link.forward);
  return link.forward(least) < link.forward(most);
}

}  // namespace

std::span<const Link> allLinks() noexcept { return kLinks; }

Result<std::vector<const Link*>> linksFor(std::span<const std::string> names, const Grammar& grammar,
                                          std::span<const double> target) {
  std::vector<const Link*> links;
  for (const std::string& name : names) {
    const auto link = std::ranges::find(kLinks, std::string_view(name), &Link::name);
    if (link == std::end(kLinks)) {
      std::string known;
      for (const Link& other : kLinks) known += (known.empty() ? "" : ", ") + std::string(other.name);
      return Error{Errc::kInvalid, fmt::format("unknown link {}; there are {}", text::inQuotes(name), known), {}};
    }
    if (link != std::begin(kLinks) && !admits(*link, target)) {
      return Error{Errc::kInvalid, fmt::format("the target has values that link {} is not for", name), {}};
    }
    if (std::ranges::find(links, link) != links.end()) {
      return Error{Errc::kInvalid, fmt::format("link {} occurs twice", name), {}};
    }
    links.push_back(link);
  }
  if (!names.empty()) return links;
  for (const Link& link : kLinks) {
    if (&link == std::begin(kLinks) || (isUsual(link, grammar) && admits(link, target))) links.push_back(&link);
  }
  return links;
}

}  // namespace srjit::search
