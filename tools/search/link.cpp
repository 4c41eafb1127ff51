#include "tools/search/link.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "ir/text/lexer.h"

namespace srjit::search {
namespace {

constexpr double kLeast = 0x1p-510, kMost = 0x1p510;  // beyond, squares and their reciprocals leave the range of f64
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
    {"square", [](double y) { return y * y; }, [](double y) { return y == 0 || isPositive(y); }, kRoot},
    {"inverse-square", [](double y) { return 1 / (y * y); }, isPositive, kInverseRoot},
    {"log", [](double y) { return std::log(y); }, hasLogarithm, kExponential},
    {"exp", [](double y) { return std::exp(y); }, [](double y) { return std::fabs(y) < 20; }, kLogarithm},
    {"sin", [](double y) { return std::sin(y); }, [](double y) { return std::fabs(y) <= std::numbers::pi / 2; },
     kArcSine, 0.5},
    {"cos", [](double y) { return std::cos(y); }, [](double y) { return y >= 0 && y <= std::numbers::pi; }, kArcCosine,
     0.5},
};

/// The first operator of g^-1 that the grammar cannot write.
std::optional<Op> missing(const Link& link, const Grammar& grammar) {
  const auto op = std::ranges::find_if(
      link.inverse, [&](Op inverse) { return !grammar.writable()[static_cast<std::size_t>(inverse)]; });
  return op == link.inverse.end() ? std::nullopt : std::optional(*op);
}

bool hasRoom(const Link& link, const Grammar& grammar, bool is_scaled) {
  return !missing(link, grammar) && grammar.within(wrapperOf(link, grammar, is_scaled)).admitsSome();
}

template <class... Args>
Error refusal(fmt::format_string<Args...> format, Args&&... args) {
  return {Errc::kInvalid, fmt::format(format, std::forward<Args>(args)...), {}};
}

Result<const Link*> findLink(std::string_view name) {
  const auto link = std::ranges::find(kLinks, name, &Link::name);
  if (link != std::end(kLinks)) return &*link;
  std::string known;
  for (const Link& other : kLinks) known += (known.empty() ? "" : ", ") + std::string(other.name);
  return refusal("unknown link {}; there are {}", text::inQuotes(name), known);
}

bool admits(const Link& link, std::span<const double> target) {
  if (!std::ranges::all_of(target, link.admits)) return false;
  const auto [smallest, greatest] = std::ranges::minmax(target);
  if (!(greatest - smallest >= link.least_move)) return false;
  const std::vector<double> linked = link.targetOf(target);
  const auto [least, most] = std::ranges::minmax(linked);
  return least < most;
}

}  // namespace

std::span<const Link> allLinks() noexcept { return kLinks; }

std::vector<double> Link::targetOf(std::span<const double> target) const {
  std::vector<double> linked(target.size());
  std::ranges::transform(target, linked.begin(), forward);
  return linked;
}

std::vector<Token> wrapperOf(const Link& link, const Grammar& grammar, bool is_scaled) {
  std::vector<Token> tokens = is_scaled ? grammar.scaling() : std::vector<Token>();
  for (const Op op : link.inverse) tokens.push_back(Token::operation(op));
  return tokens;
}

Result<std::vector<const Link*>> linksFor(std::span<const std::string> names, const Grammar& grammar,
                                          std::span<const double> target, bool is_scaled) {
  const auto isFree = [](const Link& link) { return &link == std::begin(kLinks); };
  std::vector<const Link*> links;
  for (const std::string& name : names) {
    const Result<const Link*> link = findLink(name);
    if (!link) return link.error();
    if (std::ranges::find(links, *link) != links.end()) return refusal("link {} occurs twice", name);
    if (!isFree(**link) && !admits(**link, target)) {
      return refusal("the target has values that link {} is not for{}", name,
                     (*link)->least_move > 0 ? fmt::format(", or moves by less than {}", (*link)->least_move) : "");
    }
    if (const std::optional<Op> op = missing(**link, grammar)) {
      return refusal(
          "formulas of link {0} have {1}, which is no operator of the search: add {1}, or leave out the link", name,
          infoOf(*op).name);
    }
    if (!isFree(**link) && !hasRoom(**link, grammar, is_scaled)) {
      return refusal("the largest complexity, a limit of nesting or a unit leaves no formula of link {}", name);
    }
    links.push_back(*link);
  }
  if (!names.empty()) return links;
  for (const Link& link : kLinks) {
    if (isFree(link) || (admits(link, target) && hasRoom(link, grammar, is_scaled))) links.push_back(&link);
  }
  return links;
}

}  // namespace srjit::search
