// The front end on one core: parsing and printing in each language, and preparation of populations for the interpreter,
// with and without the sums of a scaled loss.
#include <fmt/format.h>

#include "tests/generators/token_arrays.h"
#include "tools/bench/work.h"

namespace srjit {
namespace {

constexpr double kTextSeconds = 0.4;  // per series

/// Seconds of one body, per unit of `work`.
template <class Body>
std::vector<double> textSeconds(const Bench& bench, double work, const Body& body) {
  return bench.sample(15, kTextSeconds, [&] {
    const Stopwatch watch;
    body();
    return watch.seconds() / work;
  });
}

/// Expressions of `nodes` tokens of the operators that populations use, with two parameters.
std::vector<Expression> ofNodes(int nodes, std::size_t count) {
  GeneratorOptions options = *findPopulation("mixed");
  options.min_nodes = options.max_nodes = nodes;
  options.parameters = 2;
  options.parameter_probability = 0.2;
  return ExpressionGenerator(options).batch(count);
}

void benchLanguage(const Bench& bench, std::span<const Expression> expressions, int nodes, Language language,
                   const char* name) {
  std::vector<std::string> texts;
  for (const Expression& e : expressions) texts.push_back(print(e, language));
  const auto count = static_cast<double>(expressions.size());
  const Subject subject{fmt::format("{} tokens in {}", nodes, name), {{"nodes", nodes}, {"language", name}}};
  const auto rates = [&](const auto& body) {
    std::vector<double> samples = textSeconds(bench, count, body);
    for (double& sample : samples) sample = 1 / sample;
    return samples;
  };
  std::size_t tokens = 0, bytes = 0;
  bench.add(subject, "parsing", "expressions/s", rates([&] {
              for (const std::string& text : texts) tokens += must(parse(text, language)).size();
            }));
  bench.add(subject, "printing", "expressions/s", rates([&] {
              for (const Expression& e : expressions) bytes += print(e, language).size();
            }));
  if (tokens == 0 || bytes == 0) failBench(Errc::kMachine, "nothing was parsed or printed");
}

/// Postfix text of a large population, to expressions that are kept and to tokens in one array.
void benchPopulationText(const Bench& bench, std::size_t count) {
  std::vector<std::string> texts;
  double all = 0;
  for (const Expression& e : populationOf("small", count)) {
    texts.push_back(print(e, Language::kPostfix));
    all += static_cast<double>(e.size());
  }
  const Subject subject{fmt::format("{} small expressions in postfix", count), {{"expressions", count}}};
  std::vector<Expression> expressions;
  expressions.reserve(count);
  const std::vector<double> kept = bench.sample(15, kTextSeconds, [&] {
    expressions.clear();
    const Stopwatch watch;
    for (const std::string& text : texts) expressions.push_back(*parse(text, Language::kPostfix));
    return watch.seconds() / all;
  });
  bench.add(subject, "parse()", "ns/token", kept);
  std::vector<Token> tokens;
  bench.add(subject, "parseTokens()", "ns/token", textSeconds(bench, all, [&] {
              tokens.clear();
              for (const std::string& text : texts) must(parseTokens(text, Language::kPostfix, {}, tokens));
            }));
}

/// From token arrays to losses on one row, so preparation dominates.
void benchPreparation(const Bench& bench, int nodes, std::size_t count) {
  const std::vector<Expression> expressions = ofNodes(nodes, count);
  const Engine engine = must(Engine::create({.device = "cpu", .math = Math::kFast, .threads = 1}));
  const Dataset data = must(engine.upload(positiveData(kTreeColumns, 1).view()));
  const std::vector<double> parameters = parameterNumbers(parametersOf(expressions), 0);
  TokenArrays arrays;
  for (const Expression& e : expressions) arrays.addPostfix(e);
  for (const auto& [kind, name] : {std::pair(LossKind::kMse, "mse"), std::pair(LossKind::kScaledMse, "scaled-mse")}) {
    const LossOptions options{.kind = kind};
    const auto once = [&] { must(engine.loss(arrays.view(), data, parameters, options, {.tier = Tier::kInterpret})); };
    once();
    bench.add({fmt::format("{} expressions of {} tokens, one row, {}", count, nodes, name),
               {{"nodes", nodes}, {"loss", name}}},
              "token arrays to losses", "ns/token", textSeconds(bench, nodesOf(expressions), once));
  }
}

}  // namespace

void benchText(const Bench& bench) {
  const std::size_t part = bench.quick ? 50 : 1;
  for (const int nodes : {8, 30}) {
    const std::vector<Expression> expressions = ofNodes(nodes, 4096 / part);
    for (const auto& [language, name] : {std::pair(Language::kPostfix, "postfix"),
                                         {Language::kPrefix, "prefix"},
                                         {Language::kInfix, "infix"},
                                         {Language::kJson, "JSON"}}) {
      benchLanguage(bench, expressions, nodes, language, name);
    }
    benchPreparation(bench, nodes, 65'536 / part);
  }
  benchPopulationText(bench, 250'000 / part);
}

}  // namespace srjit
