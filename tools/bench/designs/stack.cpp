// The textbook interpreter on a GPU: all expressions in one launch (MIT's), each in a launch of its own (the thesis'),
// or with common subtrees evaluated once per step, into device memory (MIT's cache).
#include <algorithm>
#include <bit>
#include <unordered_map>

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include "tools/bench/designs/baseline.h"
#include "tools/bench/designs/code.h"
#include "tools/bench/designs/device.h"

namespace srjit {
namespace {

constexpr std::size_t kCacheBytes = std::size_t{16} << 30;

constexpr const char* kStackDeclarations =
    R"( .local .align 4 .b8 stack[{}]; .reg .b32 %code, %value; .reg .b64 %sp, %token, %end;
)";

constexpr const char* kStackLoop =
    R"( mov.u32 %j, %ctaid.y; ld.param.u64 %a, [offsets]; mul.wide.u32 %b, %j, 4; add.u64 %a, %a, %b;
 ld.global.nc.u32 %i, [%a]; ld.global.nc.u32 %j, [%a+4]; ld.param.u64 %a, [tokens]; mul.wide.u32 %token, %i, 8;
 add.u64 %token, %token, %a; mul.wide.u32 %end, %j, 8; add.u64 %end, %end, %a; mov.u64 %sp, stack;
NEXT: setp.ge.u64 %p, %token, %end; @%p bra DONE; ld.global.nc.v2.u32 {%code, %value}, [%token];
 add.u64 %token, %token, 8;
)";

constexpr const char* kStackLeaves = R"(CASE_0: st.local.b32 [%sp], %value; add.u64 %sp, %sp, 4; bra NEXT;
CASE_1: cvt.u64.u32 %a, %value; mad.lo.u64 %a, %a, %pitch, %column; ld.global.nc.f32 %r, [%a];
 st.local.f32 [%sp], %r; add.u64 %sp, %sp, 4; bra NEXT;
CASE_2: ld.param.u64 %a, [parameters]; mul.wide.u32 %b, %value, 4; add.u64 %a, %a, %b;
 ld.global.nc.f32 %r, [%a]; st.local.f32 [%sp], %r; add.u64 %sp, %sp, 4; bra NEXT;
CASE_3: ld.param.u64 %b, [cached]; mul.wide.u32 %c, %row, 4; add.u64 %b, %b, %c; cvt.u64.u32 %a, %value;
 mad.lo.u64 %a, %a, %pitch, %b; ld.global.nc.f32 %r, [%a]; st.local.f32 [%sp], %r; add.u64 %sp, %sp, 4;
 bra NEXT;
)";

StackToken stackToken(const Token& token, std::uint32_t first_parameter) {
  switch (token.kind) {
    case Token::Kind::kConstant:
      return {StackToken::kConstant, std::bit_cast<std::uint32_t>(static_cast<float>(token.value))};
    case Token::Kind::kVariable:
      return {StackToken::kVariable, token.index};
    case Token::Kind::kParameter:
      return {StackToken::kParameter, first_parameter + token.index};
    case Token::Kind::kOp:
      break;
  }
  return {StackToken::kFirstOp + static_cast<std::uint32_t>(baselineOpNumber(token.op)), 0};
}

class StackBaseline : public DeviceBaseline {
 public:
  StackBaseline(std::shared_ptr<const Cuda> device, const BenchData& data, std::size_t expressions_per_launch)
      : DeviceBaseline(std::move(device), data),
        most_(expressions_per_launch),
        kernel_(load(imageOfPtx(stackInterpreterPtx()), kStackKernel)) {}

 protected:
  void build(std::span<const Expression> expressions) override { take(stackPrograms(expressions)); }
  void take(const StackPrograms& programs) {
    tokens_ = upload(programs.tokens);
    offsets_ = upload(programs.offsets);
  }

  void launch(std::size_t first, std::size_t count, CUdeviceptr target, CUdeviceptr out) override {
    CUdeviceptr all_columns = columns(), all_parameters = parameters(), cached = cache_.address(), result = 0;
    CUdeviceptr tokens = tokens_.address(), offsets = 0;
    std::uint32_t row_count = rows();
    const auto arguments = addressesOf(all_columns, row_count, all_parameters, target, result, cached, tokens, offsets);
    for (std::size_t done = 0; done < count; done += most_) {
      offsets = offsets_.address() + (first + done) * sizeof(std::uint32_t);
      result = out + done * resultBytes(target);
      run(kernel_, rowBlocks(), std::min(most_, count - done), arguments);
    }
  }

  DeviceBuffer cache_;  ///< columns of common subtrees

 private:
  const std::size_t most_;  ///< expressions per launch
  const Kernel kernel_;
  DeviceBuffer tokens_, offsets_;
};

class CacheBaseline final : public StackBaseline {
 public:
  CacheBaseline(std::shared_ptr<const Cuda> device, const BenchData& data)
      : StackBaseline(std::move(device), data, kMaxGridY) {}

 private:
  void build(std::span<const Expression> expressions) override {
    cache_ = {};
    const std::size_t column_bytes = rows() * sizeof(float);
    const std::size_t budget = std::min(kCacheBytes, cuda().freeMemory() / 4);
    const CachePlan plan = planSubtreeCache(expressions, budget / column_bytes);
    cached_ = plan.cached;
    cache_ = allocate(cached_ * column_bytes);
    take(plan.programs);
  }
  void launchShared() override { StackBaseline::launch(0, cached_, 0, cache_.address()); }
  void launch(std::size_t first, std::size_t count, CUdeviceptr target, CUdeviceptr out) override {
    StackBaseline::launch(cached_ + first, count, target, out);
  }

  std::size_t cached_ = 0;
};

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
    CachePlan plan{.programs = {}, .cached = cached.size()};
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

StackPrograms stackPrograms(std::span<const Expression> expressions) {
  StackPrograms programs;
  programs.offsets.reserve(expressions.size() + 1);
  for (const Expression& expression : expressions) {
    programs.offsets.push_back(programs.offsets.back() + static_cast<std::uint32_t>(expression.size()));
  }
  programs.tokens.resize(programs.offsets.back());
  const std::vector<std::uint32_t> parameters = parameterOffsets(expressions);
  tbb::parallel_for(std::size_t{0}, expressions.size(), [&](std::size_t e) {
    if (const std::size_t height = expressions[e].stackHeight(); height > kStackEntries) {
      failBench(Errc::kUnsupported, fmt::format("an expression needs a stack of {} values, but the baseline's has {}",
                                                height, kStackEntries));
    }
    std::ranges::transform(expressions[e].tokens(), programs.tokens.begin() + programs.offsets[e],
                           [&](const Token& token) { return stackToken(token, parameters[e]); });
  });
  return programs;
}

std::string stackInterpreterPtx() {
  std::string ptx;
  beginBaselineKernel(kStackKernel, ", .param .u64 cached, .param .u64 tokens, .param .u64 offsets",
                      fmt::format(kStackDeclarations, kStackEntries * sizeof(float)), ptx);
  ptx += kStackLoop;
  const auto ops = allBaselineOps();
  writeBaselineDispatch(0, StackToken::kFirstOp + ops.size(), ptx);
  ptx += kStackLeaves;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ptx += fmt::format("CASE_{}:\n", StackToken::kFirstOp + i);
    if (arityOf(ops[i].op) == 2) ptx += " add.u64 %sp, %sp, -4;\n ld.local.f32 %y, [%sp];\n";
    ptx += fmt::format(" ld.local.f32 %x, [%sp+-4];\n {}\n st.local.f32 [%sp+-4], %r;\n bra NEXT;\n",
                       fillBaselineOp(ops[i].ptx, "%x", "%y", "%r"));
  }
  ptx += "DONE:\n ld.local.f32 %r, [%sp+-4];\n";
  endBaselineKernel(ptx);
  return ptx;
}

std::unique_ptr<Baseline> makeStackBaseline(std::shared_ptr<const Cuda> cuda, const BenchData& data,
                                            std::size_t expressions_per_launch) {
  return std::make_unique<StackBaseline>(std::move(cuda), data, expressions_per_launch);
}

std::unique_ptr<Baseline> makeCacheBaseline(std::shared_ptr<const Cuda> cuda, const BenchData& data) {
  return std::make_unique<CacheBaseline>(std::move(cuda), data);
}

CachePlan planSubtreeCache(std::span<const Expression> expressions, std::size_t max_cached) {
  return Planner(expressions).plan(max_cached);
}

}  // namespace srjit
