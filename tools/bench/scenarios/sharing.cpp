// Common subtrees of a population: their share of the tokens, the time that machine code saves by computing them once
// per kernel, and the effect of the order of expressions.
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "compiler/kernels/sharing_order.h"
#include "runtime/evaluation/optimized_dag.h"
#include "tests/generators/enumeration.h"
#include "tests/generators/klein_nishina.h"
#include "tools/bench/gpu_context.h"
#include "tools/bench/scenarios/baseline_runs.h"
#include "tools/bench/scenarios/kept_generations.h"
#include "tools/bench/scenarios/roofline.h"
#include "tools/progress.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSharingPart = "sharing";
constexpr std::size_t kBatches[] = {1, 16, 64};
constexpr std::size_t kLeastSubtree = 3, kLargerSubtrees[] = {8, 16, 32};  // tokens

struct SharedPopulation {
  const char* name;
  std::vector<Expression> expressions;
  std::size_t columns;
};

std::string keyOf(std::span<const Token> subtree) {
  std::string key;
  for (const Token& token : subtree) {
    key +=
        fmt::format("{} {} {} {};", static_cast<int>(token.kind), static_cast<int>(token.op), token.index, token.value);
  }
  return key;
}

/// Calls visit(key, size) for the subtrees of at least kLeastSubtree tokens without parameters, larger ones first. If
/// it returns true, the subtrees inside are skipped.
template <class Visit>
void forSubtrees(const Expression& expression, const Visit& visit) {
  const auto tokens = expression.tokens();
  const std::vector<std::uint32_t> starts = subtreeStarts(tokens);
  for (std::size_t end = tokens.size(); end > 0;) {
    const auto subtree = tokens.subspan(starts[end - 1], end - starts[end - 1]);
    const bool has_parameter =
        std::ranges::any_of(subtree, [](const Token& token) { return token.kind == Token::Kind::kParameter; });
    const bool covered = subtree.size() >= kLeastSubtree && !has_parameter && visit(keyOf(subtree), subtree.size());
    end = covered ? starts[end - 1] : end - 1;
  }
}

/// The share of tokens in subtrees of at least `least` tokens that are in `known` or, if that is null, occur twice in
/// the population.
double coveredPart(std::span<const Expression> expressions, const std::unordered_set<std::string>* known,
                   std::size_t least = kLeastSubtree) {
  std::unordered_map<std::string, int> uses;
  for (const Expression& expression : expressions) {
    forSubtrees(expression, [&](const std::string& key, std::size_t) {
      ++uses[key];
      return false;
    });
  }
  std::size_t covered = 0;
  for (const Expression& expression : expressions) {
    forSubtrees(expression, [&](const std::string& key, std::size_t size) {
      const bool counts = size >= least && (known != nullptr ? known->contains(key) : uses[key] > 1);
      covered += counts ? size : 0;
      return counts;
    });
  }
  return static_cast<double>(covered) / nodesOf(expressions);
}

std::size_t nodesOfBatches(std::span<const Expression> expressions, std::size_t batch) {
  std::size_t nodes = 0;
  const Pipeline pipeline = Pipeline::standard(Math::kFast);
  for (std::size_t first = 0; first < expressions.size(); first += batch) {
    const auto members = expressions.subspan(first, std::min(batch, expressions.size() - first));
    nodes += must(optimizedDag(members, pipeline, Precision::kF32, Math::kFast)).size();
  }
  return nodes;
}

std::vector<Expression> ordered(std::span<const Expression> expressions) {
  std::vector<std::uint32_t> all(expressions.size());
  std::iota(all.begin(), all.end(), 0U);
  std::vector<Expression> sorted;
  for (const std::uint32_t e : orderedBySharing(Population(expressions), all, Precision::kF32, Math::kFast)) {
    sorted.push_back(expressions[e]);
  }
  return sorted;
}

class SharingBench {
 public:
  SharingBench(const BenchContext& context, const SharedPopulation& population, std::size_t rows)
      : context_(context),
        population_(population),
        sorted_(ordered(population.expressions)),
        engine_(context.engine(Math::kFast)),
        data_(must(engine_.upload(BenchData(population.columns, rows).view()))) {}

  Json run() {
    const Stopwatch watch;
    ordered(population_.expressions);
    const double order_seconds = watch.seconds();
    Json row = {{"name", population_.name},
                {"expressions", population_.expressions.size()},
                {"tokens", nodesOf(population_.expressions)},
                {"covered_by_common_subtrees", coveredPart(population_.expressions, nullptr)},
                {"order_seconds", order_seconds},
                {"batches", batches()}};
    figure("tokens in common subtrees of 3 tokens or more", "part", {row["covered_by_common_subtrees"].get<double>()});
    row["as_given"] = timed("as given", population_.expressions);
    row["ordered"] = timed("ordered by what they share", sorted_);
    row["alone"] = alone();
    return row;
  }

 private:
  void figure(const std::string& what, const char* unit, std::vector<double> samples) const {
    context_.report->add(kSharingPart, {fmt::format("{}: {}", population_.name, what), unit, std::move(samples)});
  }

  Json batches() const {
    Json rows = Json::array();
    const auto add = [&](std::size_t batch) {
      const std::size_t given = nodesOfBatches(population_.expressions, batch);
      const bool same = batch == 1 || batch == population_.expressions.size();
      const std::size_t sorted = same ? given : nodesOfBatches(sorted_, batch);
      rows.push_back({{"expressions_per_graph", batch}, {"nodes_as_given", given}, {"nodes_ordered", sorted}});
      figure(fmt::format("nodes after the passes, {} per graph", batch), "nodes", {static_cast<double>(given)});
      if (same) return;
      figure(fmt::format("nodes after the passes, {} per graph, ordered", batch), "nodes",
             {static_cast<double>(sorted)});
    };
    for (const std::size_t batch : kBatches) add(batch);
    add(population_.expressions.size());
    return rows;
  }

  Json timed(const char* name, std::span<const Expression> expressions) const {
    const Stopwatch watch;
    const Program program = engine_.compile(expressions, {.tier = Tier::kCompile, .group_by_sharing = false});
    must(engine_.prepare(program, data_, LossOptions{}));
    const double ready = watch.seconds();
    timeLoss(engine_, program, data_, {});
    std::vector<double> kernels;
    context_.sample(15, 1, [&] {
      kernels.push_back(timeLoss(engine_, program, data_, {}).device * 1e3);
      return kernels.back();
    });
    figure(fmt::format("machine code, {}: kernels", name), "ms", kernels);
    figure(fmt::format("machine code, {}: making ready", name), "ms", {ready * 1e3});
    return {{"kernel_ms", kernels}, {"ready_seconds", ready}};
  }

  // Kernels of one expression each, which share nothing, against common kernels of the same expressions.
  Json alone() const {
    const std::size_t count = context_.quick ? 8 : 128;
    const auto chosen = evenlySpread(sorted_, std::min(count, sorted_.size()));
    double seconds = 0;
    for (const Expression& expression : chosen) {
      const Program program = engine_.compile({&expression, 1}, {.tier = Tier::kCompile});
      must(engine_.prepare(program, data_, LossOptions{}));
      timeLoss(engine_, program, data_, {});
      seconds += medianOf(context_.sample(5, 0.05, [&] { return timeLoss(engine_, program, data_, {}).device; }));
    }
    const Program together = engine_.compile(chosen, {.tier = Tier::kCompile});
    must(engine_.prepare(together, data_, LossOptions{}));
    timeLoss(engine_, together, data_, {});
    const double shared =
        medianOf(context_.sample(9, 0.5, [&] { return timeLoss(engine_, together, data_, {}).device; }));
    figure(fmt::format("machine code, {} expressions, a kernel each: kernels", chosen.size()), "ms", {seconds * 1e3});
    figure(fmt::format("machine code, the same {} in common kernels: kernels", chosen.size()), "ms", {shared * 1e3});
    return {{"expressions", chosen.size()}, {"alone_ms", seconds * 1e3}, {"together_ms", shared * 1e3}};
  }

  const BenchContext& context_;
  const SharedPopulation& population_;
  const std::vector<Expression> sorted_;
  const Engine engine_;
  const Dataset data_;
};

/// Possible savings by keeping subtree values from one generation to the next, and the size of a subtree from which on
/// reading a value is faster than computing it at `rate` tokens per second.
Json persistence(const BenchContext& context, std::size_t count, double rate) {
  Generations population(count);
  std::unordered_set<std::string> known;
  for (const Expression& expression : population.current()) {
    forSubtrees(expression, [&](std::string key, std::size_t) {
      known.insert(std::move(key));
      return false;
    });
  }
  population.next();
  Json parts = Json::array();
  const auto add = [&](std::size_t least) {
    const double covered = coveredPart(population.current(), &known, least);
    parts.push_back({{"least_tokens", least}, {"covered", covered}});
    context.report->add(
        kSharingPart,
        {fmt::format("generations: tokens in subtrees of {} or more that the generation before has, too", least),
         "part",
         {covered}});
  };
  add(kLeastSubtree);
  for (const std::size_t least : kLargerSubtrees) add(least);
  Json row = {{"covered_by_last_generation", std::move(parts)}};
  const Json limits = deviceLimits(context);
  if (limits.is_null()) return row;
  const double tokens = rate * sizeof(float) / limits["bytes_per_second"].get<double>();
  context.report->add(kSharingPart,
                      {"generations: tokens that are computed while one value is read", "tokens", {tokens}});
  row["tokens_computed_per_value_read"] = tokens;
  return row;
}

/// Generations of both populations with and without kept subtrees, in all tiers. Starts at the third generation, the
/// first that can read kept values.
Json keptSubtrees(const BenchContext& context) {
  constexpr std::size_t kUnread = 2;
  const std::size_t expressions = context.quick ? 100 : 2000, rows = context.quick ? 250000 : 1000000;
  const Engine engine = must(Engine::create({.device = context.device,
                                             .math = Math::kFast,
                                             .cache_directory = context.scratch + "/cache",
                                             .subtree_bytes = std::uint64_t{256} << 20}));
  Json runs = Json::array();
  for (const char* const population : {"mit-generation", "mixed"}) {
    const BenchData columns(population == std::string_view("mixed") ? 10 : kKleinNishinaVariables, rows);
    for (const Tier tier : tiersOf(engine)) {
      if (!context.mayBegin(kSharingPart, fmt::format("kept subtrees, {}, {}", population, titleOf(tier)))) continue;
      // Fewer generations for LLVM, which takes seconds for each.
      const std::size_t count = context.quick || tier == Tier::kCompile ? kUnread + 2 : kUnread + 10;
      const Dataset data = must(engine.upload(columns.view()));
      Json run = {{"population", population}, {"expressions", expressions}};
      run.update(timeGenerations(engine, data, generationsOf(population, count, expressions), tier));
      for (const auto& [way, name] : {std::pair("kept", "subtrees kept"), std::pair("computed", "all computed")}) {
        const auto add = [&](const char* field, const char* what, const char* unit) {
          auto samples = run[way][field].get<std::vector<double>>();
          samples.erase(samples.begin(), samples.begin() + kUnread);
          context.report->add(kSharingPart, {fmt::format("{}, {}, {}: {}", population, titleOf(tier), name, what), unit,
                                             std::move(samples)});
        };
        add("total_ms", "a generation", "ms");
        add("kernel_ms", "kernels of a generation", "ms");
        add("nodes", "nodes after the passes", "nodes");
      }
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

}  // namespace

void benchSharing(const BenchContext& context) {
  const std::size_t count = context.quick ? 100 : context.onGpu() ? 2000 : 500;
  const std::size_t rows = context.quick ? 10000 : context.onGpu() ? 1000000 : 100000;
  Generations generations(count);
  for (int i = 0; i < 5; ++i) generations.next();
  std::vector<SharedPopulation> populations;
  populations.push_back({"mit-generation", generations.current(), kKleinNishinaVariables});
  populations.push_back({"mixed", populationOf("mixed", count), 10});
  Progress progress(kSharingPart, populations.size(), false);
  Json rows_of = Json::array();
  double rate = 0;
  for (const SharedPopulation& population : populations) {
    if (!context.mayBegin(kSharingPart, population.name)) continue;
    rows_of.push_back(SharingBench(context, population, rows).run());
    const Json& row = rows_of.back();
    const double seconds = medianOf(row["ordered"]["kernel_ms"].get<std::vector<double>>()) / 1e3;
    if (rate == 0) rate = row["tokens"].get<double>() * static_cast<double>(rows) / seconds;
    progress.advance();
  }
  Json details = {{"populations", std::move(rows_of)}, {"generations", persistence(context, count, rate)}};
  if (context.onGpu()) details["kept_subtrees"] = keptSubtrees(context);
  context.report->attach(kSharingPart, std::move(details));
}

}  // namespace srjit
