// Selects the subtrees of a population that are evaluated once, and writes the remaining programs.
#include <algorithm>
#include <unordered_map>

#include "tools/bench/designs/code.h"

namespace srjit {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};

/// A distinct subtree.
struct Subtree {
  StackToken top;
  std::uint32_t left = kNone, right = kNone;  ///< subtrees below it, which have lower numbers
  std::uint32_t begin = 0, size = 0;          ///< tokens of its first occurrence
  std::uint64_t uses = 0;                     ///< occurrences outside of cached subtrees
  std::uint32_t column = kNone;               ///< if it is cached
};

struct Key {
  StackToken top;
  std::uint32_t left, right;
  friend bool operator==(const Key&, const Key&) = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept {
    const auto mix = [](std::uint64_t x) { return (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u; };
    const std::uint64_t top = (std::uint64_t{key.top.code} << 32) | key.top.value;
    const std::uint64_t below = (std::uint64_t{key.left} << 32) | key.right;
    const std::uint64_t hash = mix(mix(top + 0x9e3779b97f4a7c15u) + below);
    return static_cast<std::size_t>(hash ^ (hash >> 32));
  }
};

class Planner {
 public:
  explicit Planner(std::span<const Expression> expressions) : plain_(stackPrograms(expressions)) {
    numbers_.reserve(plain_.tokens.size());
    known_.reserve(plain_.tokens.size());
    for (std::size_t e = 0; e < expressions.size(); ++e) addExpression(expressions[e]);
  }

  CachePlan plan(std::size_t max_cached) {
    std::vector<bool> wanted(subtrees_.size(), true);
    std::vector<std::uint32_t> cached = choose(wanted);
    if (cached.size() > max_cached) {
      const auto saved = [this](std::uint32_t s) { return (subtrees_[s].uses - 1) * (subtrees_[s].size - 1); };
      std::ranges::stable_sort(cached, [&](std::uint32_t a, std::uint32_t b) { return saved(a) > saved(b); });
      wanted.assign(subtrees_.size(), false);
      for (std::size_t i = 0; i < max_cached; ++i) wanted[cached[i]] = true;
      cached = choose(wanted);
    }
    return write(cached);
  }

 private:
  void addExpression(const Expression& expression) {
    std::vector<std::uint32_t> stack;
    for (const Token& token : expression.tokens()) {
      const auto at = static_cast<std::uint32_t>(numbers_.size());
      Subtree subtree{plain_.tokens[at]};
      subtree.size = 1;
      const auto take = [&] {
        const std::uint32_t operand = stack.back();
        stack.pop_back();
        subtree.size += subtrees_[operand].size;
        return operand;
      };
      if (token.arity() == 2) subtree.right = take();
      if (token.arity() >= 1) subtree.left = take();
      subtree.begin = at + 1 - subtree.size;
      const auto [found, is_new] = known_.try_emplace(Key{subtree.top, subtree.left, subtree.right},
                                                      static_cast<std::uint32_t>(subtrees_.size()));
      if (is_new) subtrees_.push_back(subtree);
      numbers_.push_back(found->second);
      stack.push_back(found->second);
    }
    roots_.push_back(stack.back());
  }

  // From the roots down: a subtree that is used twice is cached, and the uses below it no longer count.
  std::vector<std::uint32_t> choose(const std::vector<bool>& wanted) {
    for (Subtree& subtree : subtrees_) subtree.uses = 0;
    for (const std::uint32_t root : roots_) ++subtrees_[root].uses;
    std::vector<std::uint32_t> cached;
    for (auto s = static_cast<std::uint32_t>(subtrees_.size()); s-- > 0;) {
      const Subtree& subtree = subtrees_[s];
      if (subtree.left == kNone) continue;
      if (subtree.uses > 1 && wanted[s]) {
        cached.push_back(s);
        continue;
      }
      subtrees_[subtree.left].uses += subtree.uses;
      if (subtree.right != kNone) subtrees_[subtree.right].uses += subtree.uses;
    }
    return cached;
  }

  CachePlan write(const std::vector<std::uint32_t>& cached) {
    CachePlan plan{.programs = {}, .cached = cached.size(), .tokens = plain_.tokens.size()};
    for (const std::uint32_t s : cached) {
      Subtree& subtree = subtrees_[s];
      subtree.column = static_cast<std::uint32_t>(plan.programs.size());
      const auto first = plain_.tokens.begin() + subtree.begin;
      plan.programs.tokens.insert(plan.programs.tokens.end(), first, first + subtree.size);
      plan.programs.endProgram();
    }
    for (std::size_t e = 0; e + 1 < plain_.offsets.size(); ++e) {
      const std::size_t begin = plan.programs.tokens.size();
      // Backwards, so that the root of a subtree is visited before its operands.
      for (std::uint32_t i = plain_.offsets[e + 1]; i > plain_.offsets[e];) {
        const Subtree& subtree = subtrees_[numbers_[i - 1]];
        const bool is_cached = subtree.column != kNone;
        plan.programs.tokens.push_back(is_cached ? StackToken{StackToken::kCached, subtree.column}
                                                 : plain_.tokens[i - 1]);
        if (is_cached) plan.covered += subtree.size;
        i -= is_cached ? subtree.size : 1;
      }
      std::reverse(plan.programs.tokens.begin() + static_cast<std::ptrdiff_t>(begin), plan.programs.tokens.end());
      plan.programs.endProgram();
    }
    return plan;
  }

  StackPrograms plain_;
  std::vector<Subtree> subtrees_;
  std::vector<std::uint32_t> numbers_;  ///< for each token, the subtree whose root it is
  std::vector<std::uint32_t> roots_;
  std::unordered_map<Key, std::uint32_t, KeyHash> known_;
};

}  // namespace

CachePlan planSubtreeCache(std::span<const Expression> expressions, std::size_t max_cached) {
  return Planner(expressions).plan(max_cached);
}

}  // namespace srjit
