// Scenarios without a GPU: engines on the CPU, expressions and passes.
#include "ir/text.h"
#include "passes/pass.h"
#include "passes/simplify_expression.h"
#include "tests/faults/engine_calls.h"

namespace srjit {
namespace {

EngineOptions onCpu(Tier tier = Tier::kInterpret) { return {.device = "cpu", .math = Math::kStrict, .tier = tier}; }

/// Parses, prints and simplifies; each form gives its own tokens back.
Calls texts(World&) {
  return [] {
    Outcome outcome;
    const ColumnNames names = tried([] { return ColumnNames({"mass", "speed"}); });
    const std::string_view text = "mass * speed^2 / 2 + sin(0.5 * speed + p0) - (mass - mass)";
    const Result<Expression> read = tried([&] { return parse(text, Language::kInfix, names); });
    if (!outcome.isThere(read)) return outcome;
    for (const Language language : {Language::kInfix, Language::kPostfix, Language::kPrefix, Language::kJson}) {
      const std::string printed = tried([&] { return print(*read, language, names); });
      const Result<Expression> again = tried([&] { return parse(printed, language, names); });
      if (outcome.isThere(again)) outcome.numbers.push_back(*again == *read ? 1 : 0);
    }
    const Expression simple = tried([&] { return simplify(*read); });
    outcome.numbers.push_back(static_cast<double>(simple.tokens().size()));
    const Result<Pipeline> passes = tried([] { return Pipeline::parse("simplify,fma", Math::kPrecise); });
    if (outcome.isThere(passes)) outcome.numbers.push_back(1);
    return outcome;
  };
}

constexpr Scenario kHostScenarios[] = {
    {"Texts", kMemory, texts, [] { return FakeOptions(); }, true},
    {"CpuEngine", kMemory, [](World& w) { return creation(w, onCpu()); }},
    {"CpuWholeLife", kThreads, [](World& w) { return wholeLife(w, onCpu()); }, [] { return FakeOptions(); }, true},
    {"CpuFirstUse", kMemory, [](World& w) { return firstUse(w, onCpu()); }, [] { return FakeOptions(); }, true},
    {"CpuUploads", kMemory, [](World& w) { return uploads(w, onCpu()); }},
    {"CpuInterpreted", kMemory, [](World& w) { return compilation(w, onCpu()); }, [] { return FakeOptions(); }, true},
    {"CpuCompiled", kMemory | kCode, [](World& w) { return compilation(w, onCpu(Tier::kCompile)); },
     [] { return FakeOptions(); }, true},
    {"CpuTokenArrays", kMemory, [](World& w) { return tokenArrays(w, onCpu()); }, [] { return FakeOptions(); }, true},
    {"CpuPredictions", kMemory, [](World& w) { return predictions(w, onCpu()); }},
    {"CpuLosses", kMemory, [](World& w) { return losses(w, onCpu()); }},
    {"CpuGradients", kMemory, [](World& w) { return gradients(w, onCpu()); }},
    {"CpuFits", kMemory, [](World& w) { return fits(w, onCpu()); }},
    {"CpuFlights", kMemory, [](World& w) { return flights(w, onCpu()); }},
    {"CpuFitsInFlight", kMemory, [](World& w) { return fitsInFlight(w, onCpu()); }},
};

}  // namespace

std::span<const Scenario> hostScenarios() { return kHostScenarios; }

}  // namespace srjit
