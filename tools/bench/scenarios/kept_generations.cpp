#include "tools/bench/scenarios/kept_generations.h"

#include <fmt/format.h>

#include "ir/numeric.h"
#include "tests/generators/klein_nishina.h"

namespace srjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNew = 1.0 / 3;  // share of new expressions in a generation of random trees

/// Times of one variant, by generation.
struct Series {
  std::vector<double> ready, losses, total, kernels;
  std::vector<std::size_t> nodes, read;

  std::vector<double> evaluate(const Engine& engine, const Dataset& data, const Generation& expressions,
                               const CompileOptions& options) {
    const Stopwatch watch;
    const Program program = engine.compile(expressions, options);
    must(engine.prepare(program, data, LossOptions{}));
    ready.push_back(watch.seconds() * 1e3);
    const std::vector<double> parameters = parametersFor(program, 0);
    const Losses made = must(engine.loss(program, data, parameters));
    total.push_back(watch.seconds() * 1e3);
    if (!made.failures.empty()) throw BenchFailure{made.failures.front().error};
    losses.push_back(total.back() - ready.back());
    kernels.push_back(program.status().device_seconds * 1e3);
    nodes.push_back(program.info().nodes_after);
    read.push_back(program.info().subtrees_read);
    return made.values;
  }

  Json json() const {
    return {{"ready_ms", ready},    {"losses_ms", losses}, {"total_ms", total},
            {"kernel_ms", kernels}, {"nodes", nodes},      {"columns_read", read}};
  }
};

void compare(std::span<const double> kept, std::span<const double> computed, std::size_t generation) {
  for (std::size_t e = 0; e < kept.size(); ++e) {
    if (sameBits(kept[e], computed[e])) continue;
    throw BenchFailure{{Errc::kMachine,
                        fmt::format("generation {}, expression {}: a loss of {} with kept subtrees and {} without",
                                    generation, e, kept[e], computed[e]),
                        {}}};
  }
}

}  // namespace

std::vector<Generation> generationsOf(std::string_view population, std::size_t count, std::size_t expressions) {
  std::vector<Generation> all;
  if (population == "mit-generation") {
    Generations generations(expressions);
    for (std::size_t i = 0; i < count; ++i, generations.next()) all.push_back(generations.current());
    return all;
  }
  ExpressionGenerator generator(findPopulation(population).value());
  Generation current = generator.batch(expressions);
  Random random(17);
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(current);
    for (Expression& expression : current) {
      if (random.chance(kNew)) expression = generator.next();
    }
  }
  return all;
}

Json timeGenerations(const Engine& engine, const Dataset& data, std::span<const Generation> generations, Tier tier) {
  Series kept, computed;
  for (std::size_t g = 0; g < generations.size(); ++g) {
    std::vector<double> with, without;
    const auto keep = [&] { with = kept.evaluate(engine, data, generations[g], {.tier = tier, .data = &data}); };
    if (g % 2 == 0) keep();
    without = computed.evaluate(engine, data, generations[g], {.tier = tier});
    if (g % 2 == 1) keep();
    compare(with, without, g);
  }
  const SubtreeStats stats = data.subtrees();
  return {{"tier", nameOf(tier)},
          {"rows", data.rows()},
          {"columns", stats.capacity},
          {"column_bytes", stats.bytes},
          {"columns_computed", stats.computed},
          {"kept", kept.json()},
          {"computed", computed.json()}};
}

}  // namespace srjit
