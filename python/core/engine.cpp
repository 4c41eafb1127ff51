// Engines and programs.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/bindings.h"
#include "ir/losses.h"
#include "runtime/engine.h"
#include "runtime/fit/starts.h"

namespace srjit::python {

namespace {

Engine makeEngine(const std::string& device, const std::string& precision, const std::string& math,
                  const std::string& tier, unsigned threads, std::optional<std::string> cache_directory,
                  std::uint64_t device_bytes, std::uint64_t subtree_bytes, std::size_t max_nodes,
                  std::size_t max_call_nodes, double max_seconds) {
  EngineOptions options;
  options.device = device;
  options.precision = choiceOf("precision", precision, kPrecisions);
  options.math = choiceOf("math", math, kMathModes);
  options.tier = choiceOf("tier", tier, kTiers);
  options.threads = threads;
  options.cache_directory = std::move(cache_directory);
  options.device_bytes = device_bytes;
  options.subtree_bytes = subtree_bytes;
  options.limits = {.max_nodes = max_nodes, .max_call_nodes = max_call_nodes, .max_seconds = max_seconds};
  const nb::gil_scoped_release free;
  return Engine::create(options).value();
}

nb::dict cacheStatsOf(const Engine& engine) {
  const CacheStats stats = engine.cacheStats();
  nb::dict dict;
#define SRJIT_CACHE_COUNTER(name) dict[#name] = stats.name;
#include "runtime/platform/counters.def"
  dict["disk_fault"] = stats.disk_fault;
  return dict;
}

CompileOptions compileOptionsOf(const Engine& engine, const std::optional<std::string>& tier,
                                const std::optional<std::string>& passes, double evaluations, std::size_t rows,
                                bool keep_order, bool deferred, bool simplify, const Dataset* data) {
  CompileOptions options;
  if (tier) options.tier = choiceOf("tier", *tier, kTiers);
  if (passes) options.pipeline = Pipeline::parse(*passes, engine.options().math).value();
  options.expected_evaluations = evaluations;
  options.expected_rows = rows;
  options.group_by_sharing = !keep_order;
  options.data = data;
  options.deferred = deferred;
  options.simplify = simplify;
  return options;
}

/// The arrays are read during the call, which is not interrupted.
CompiledTokens compileArrays(const Engine& engine, const Numbers<std::int32_t>& codes, const Numbers<double>& constants,
                             const Numbers<std::int64_t>& offsets, bool prefix, const std::optional<std::string>& tier,
                             const std::optional<std::string>& passes, double evaluations, std::size_t rows,
                             bool keep_order, bool deferred, bool simplify, const Dataset* data) {
  const PopulationView view = populationOf(codes, constants, offsets, prefix);
  const CompileOptions options =
      compileOptionsOf(engine, tier, passes, evaluations, rows, keep_order, deferred, simplify, data);
  const nb::gil_scoped_release free;
  return {engine.compile(view, options).value(), {view.size()}};
}

CompiledTokens compileTokens(const Engine& engine, const PopulationArrays& tokens,
                             const std::optional<std::string>& tier, const std::optional<std::string>& passes,
                             double evaluations, std::size_t rows, bool keep_order, bool deferred, bool simplify,
                             const Dataset* data) {
  const CompileOptions options =
      compileOptionsOf(engine, tier, passes, evaluations, rows, keep_order, deferred, simplify, data);
  const nb::gil_scoped_release free;
  return {engine.compile(tokens.view(), options).value(),
          {tokens.size(), std::make_shared<std::vector<Failure>>(tokens.failures)}};
}

nb::dict statusOf(const CompiledTokens& compiled) {
  const struct {
    const ProgramInfo& info;
    const ProgramStatus status;
  } of{compiled.program.info(), compiled.program.status()};
  nb::dict dict;
  dict["tier"] = nameOf(of.status.tier);
  dict["requested_tier"] = nameOf(of.info.tier);
#define SRJIT_PROGRAM_COUNTER(name, member, of_several) dict[#name] = of.member;
#include "runtime/platform/counters.def"
  dict["error"] = of.status.error ? errorObject(*of.status.error) : nb::none();
  return dict;
}

std::vector<std::int64_t> parameterOffsetsOf(const CompiledTokens& compiled) {
  std::vector<std::int64_t> offsets(compiled.program.size() + 1);
  for (std::size_t e = 0; e < offsets.size(); ++e) {
    offsets[e] = static_cast<std::int64_t>(compiled.program.parameterOffset(e));
  }
  return offsets;
}

nb::object drawStarts(const Numbers<std::int64_t>& offsets, const Numbers<double>& given, std::size_t count,
                      std::uint64_t seed) {
  const std::span<const std::int64_t> bounds(offsets.data(), offsets.size());
  if (bounds.empty() || bounds.front() != 0 || !std::ranges::is_sorted(bounds) ||
      static_cast<std::size_t>(bounds.back()) != given.size()) {
    throw nb::value_error("parameter_offsets do not divide the parameters");
  }
  std::vector<double> drawn;
  {
    const nb::gil_scoped_release free;
    drawn = fit::drawStarts({given.data(), given.size()}, bounds, count, seed);
  }
  return arrayOf(std::move(drawn));
}

}  // namespace

void defineEngine(nb::module_& module) {
  nb::class_<Engine>(module, "Engine")
      .def(nb::new_(&makeEngine), nb::arg("device"), nb::arg("precision"), nb::arg("math"), nb::arg("tier"),
           nb::arg("threads"), nb::arg("cache_directory").none(), nb::arg("device_bytes"), nb::arg("subtree_bytes"),
           nb::arg("max_nodes"), nb::arg("max_call_nodes"), nb::arg("max_seconds"))
      .def_prop_ro("device", [](const Engine& engine) { return engine.options().device; })
      .def_prop_ro("threads", [](const Engine& engine) { return engine.options().threads; })
      .def_prop_ro("notices", [](const Engine& engine) { return engine.notices(); })
      .def("cache_stats", cacheStatsOf);
  nb::class_<CompiledTokens>(module, "Program")
      .def("__len__", [](const CompiledTokens& compiled) { return compiled.program.size(); })
      .def_prop_ro("parameter_offsets",
                   [](const CompiledTokens& compiled) { return arrayOf(parameterOffsetsOf(compiled)); })
      .def_prop_ro("failures",
                   [](const CompiledTokens& compiled) {
                     const auto failures = compiled.program.failures();
                     return Failures({failures.begin(), failures.end()}, compiled.origin);
                   })
      .def("status", statusOf);
  const auto define_compile = [&](const char* name, auto function, const auto&... arrays) {
    module.def(name, function, nb::arg("engine"), arrays..., nb::arg("tier").none(), nb::arg("passes").none(),
               nb::arg("evaluations"), nb::arg("rows"), nb::arg("keep_order"), nb::arg("deferred"), nb::arg("simplify"),
               nb::arg("data").none());
  };
  define_compile("compile_arrays", compileArrays, nb::arg("codes"), nb::arg("constants"), nb::arg("offsets"),
                 nb::arg("prefix"));
  define_compile("compile_tokens", compileTokens, nb::arg("tokens"));
  module.def("draw_starts", drawStarts, nb::arg("offsets"), nb::arg("given"), nb::arg("count"), nb::arg("seed"));
  module.attr("LOSS_TOLERANCE") = FitOptions{}.loss_tolerance;
  module.attr("STEP_TOLERANCE") = FitOptions{}.step_tolerance;
  nb::list larger_is_better;
  for (const LossInfo& loss : allLosses()) {
    if (loss.worst < 0) larger_is_better.append(nb::str(loss.name.data(), loss.name.size()));
  }
  module.attr("LARGER_IS_BETTER") = nb::tuple(larger_is_better);
}

}  // namespace srjit::python
