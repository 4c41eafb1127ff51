// The search for formulas, as srjit.SymbolicRegressor runs it.
#include "tools/search/evolution.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <optional>
#include <tuple>

#include "core/bindings.h"
#include "ir/text/latex.h"
#include "runtime/loss_text.h"
#include "tools/files/checkpoint.h"
#include "tools/search/formulas/uncertainty.h"

namespace srjit::python {

namespace {

using search::SearchOptions;
using search::SearchState;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenSignals{100}, kBetweenReports{500};

nb::tuple tupleOf(const search::Formula& formula, const ColumnNames& names) {
  return nb::make_tuple(formula.complexity, formula.loss, formula.held_out,
                        print(formula.expression, Language::kInfix, names), text::latexText(formula.expression, names),
                        formula.evidence, formula.bic, formula.r2);
}

/// What Python does during a search: handlers of signals, and a function that progress is told to. The search calls
/// this without the GIL, in the thread that called it: the only one in which Python runs handlers.
class Attendant {
 public:
  Attendant(std::optional<nb::callable> tell, const ColumnNames& names) : tell_(std::move(tell)), names_(names) {}

  /// Whether a handler or the function has raised an exception.
  bool mustStop() {
    if (const auto now = Clock::now(); now >= next_signals_) {
      next_signals_ = now + kBetweenSignals;
      attend([] {
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
      });
    }
    return is_interrupted_ || error_ != nullptr;
  }

  void take(const SearchState& state) {
    const auto now = Clock::now();
    const search::Formula* const best = state.front.chosen();
    if (!tell_ || now < next_report_ || best == nullptr || is_interrupted_ || error_ != nullptr) return;
    next_report_ = now + kBetweenReports;
    attend([&] { (*tell_)(state.seconds, state.generations, tupleOf(*best, names_)); });
  }

  /// With the GIL, after the search: throws the exception, unless it was KeyboardInterrupt. Gives whether it was that.
  bool finish() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
    return is_interrupted_;
  }

 private:
  template <class Work>
  void attend(const Work& work) {
    const nb::gil_scoped_acquire gil;
    try {
      work();
    } catch (const nb::python_error& raised) {
      if (raised.matches(PyExc_KeyboardInterrupt)) {
        is_interrupted_ = true;
      } else {
        error_ = std::current_exception();
      }
    }
  }

  std::optional<nb::callable> tell_;
  const ColumnNames& names_;
  Clock::time_point next_signals_ = Clock::now(), next_report_ = Clock::now();
  bool is_interrupted_ = false;
  std::exception_ptr error_;
};

const char* nameOf(search::SearchEnd end, bool is_interrupted) {
  switch (end) {
    case search::SearchEnd::kTime:
      return "seconds";
    case search::SearchEnd::kGenerations:
      return "generations";
    case search::SearchEnd::kEnough:
      return "tol";
    case search::SearchEnd::kStopped:
      break;
  }
  return is_interrupted ? "interrupted" : "stopped";
}

nb::dict dictOf(const search::SearchResult& result, const ColumnNames& names, bool is_interrupted,
                const Status& checkpoint) {
  const search::Front& front = result.state.front;
  nb::list formulas;
  for (const search::Formula& formula : front.formulas()) formulas.append(tupleOf(formula, names));
  nb::dict dict;
  dict["front"] = formulas;
  dict["chosen"] = front.empty() ? -1 : front.chosen() - front.formulas().data();
  dict["seconds"] = result.state.seconds;
  dict["generations"] = result.state.generations;
  dict["candidates"] = result.state.candidates;
  dict["fits"] = result.state.fits;
  dict["end"] = nameOf(result.end, is_interrupted);
  dict["notices"] = result.notices;
  dict["checkpoint_error"] = checkpoint ? nb::none() : errorObject(checkpoint.error());
  return dict;
}

/// The arrays are arguments, so they live until this returns.
nb::dict runSearch(const std::vector<Column>& columns, const Column& target, const std::optional<Column>& weights,
                   const std::vector<std::string>& names, SearchOptions options, std::optional<std::string> checkpoint,
                   std::optional<nb::callable> progress) {
  const DataView data = viewOf(columns, target, weights, names);
  Attendant attendant(std::move(progress), data.names);
  CheckpointFile file(std::move(checkpoint));
  options.stop = [&] { return attendant.mustStop(); };
  options.progress = [&](const SearchState& state) { attendant.take(state); };
  options.checkpoint = [&](const SearchState& state, bool is_last) { file.take(state, is_last); };
  const auto run = [&] {
    const nb::gil_scoped_release free;
    return search::search(data, options, file.read(search::fingerprintOf(data, options)).value()).value();
  };
  const search::SearchResult result = run();
  return dictOf(result, data.names, attendant.finish(), file.status());
}

/// The members of an Uncertainty, as Python keeps them.
using Kept = std::tuple<std::vector<double>, double, std::size_t, std::vector<double>, std::vector<double>>;

/// What data say of a formula: its uncertainty, and the importances of the columns.
std::tuple<Kept, std::vector<double>> judge(const Engine& engine, std::string_view formula,
                                            const std::vector<Column>& columns, const Column& target,
                                            const std::optional<Column>& weights,
                                            const std::vector<std::string>& names) {
  const DataView data = viewOf(columns, target, weights, names);
  const Expression expression = parse(formula, Language::kInfix, data.names).value();
  const nb::gil_scoped_release free;
  search::Uncertainty of = search::uncertaintyOf(engine, expression, data);
  return {{of.standard_errors, of.residual, of.freedom, of.lengths, of.cosines},
          search::importancesOf(engine, expression, data)};
}

std::vector<double> halfWidths(const Engine& engine, std::string_view formula, const std::vector<Column>& columns,
                               const std::vector<std::string>& names, const Kept& kept, double level) {
  const DataView data = viewOf(columns, {}, {}, names);
  const Expression expression = parse(formula, Language::kInfix, data.names).value();
  const nb::gil_scoped_release free;
  return search::halfWidths(engine, expression, std::make_from_tuple<search::Uncertainty>(kept), data, level);
}

}  // namespace

void defineSearch(nb::module_& module) {
  nb::class_<SearchOptions> options(module, "SearchOptions");
  options.def(nb::init<>())
      .def_rw("seconds", &SearchOptions::seconds)
      // A time of time.monotonic().
      .def_prop_rw("begun", nullptr,
                   [](SearchOptions& of, double seconds) {
                     using Time = search::Timekeeper::Clock::time_point;
                     of.begun =
                         Time(std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds)));
                   })
      .def_rw("generations", &SearchOptions::generations)
      .def_rw("tol", &SearchOptions::enough)
      .def_rw("seed", &SearchOptions::seed)
      .def_rw("held_out", &SearchOptions::held_out)
      .def_rw("islands", &SearchOptions::islands)
      .def_rw("rows", &SearchOptions::rows)
      .def_rw("links", &SearchOptions::links);
  const auto define = [&](const char* name, auto set) { options.def_prop_rw(name, nullptr, set); };
  define("operators",
         [](SearchOptions& of, std::string_view text) { of.grammar.operators = search::parseOperators(text).value(); });
  define("nesting",
         [](SearchOptions& of, std::string_view text) { of.grammar.nesting = search::parseNesting(text).value(); });
  define("self_nesting", [](SearchOptions& of, bool allow) { of.grammar.allow_self_nesting = allow; });
  define("max_complexity", [](SearchOptions& of, std::size_t most) { of.grammar.max_complexity = most; });
  define("variable_complexity", [](SearchOptions& of, unsigned cost) { of.grammar.variable_complexity = cost; });
  define("constant_complexity", [](SearchOptions& of, unsigned cost) { of.grammar.constant_complexity = cost; });
  define("loss", [](SearchOptions& of, std::string_view text) { of.loss = parseLoss(text).value(); });
  define("population", [](SearchOptions& of, std::size_t size) { of.island.population = size; });
  define("offspring", [](SearchOptions& of, std::size_t size) { of.island.offspring = size; });
  define("device", [](SearchOptions& of, std::string device) { of.engine.device = std::move(device); });
  define("choose", [](SearchOptions& of, std::string_view text) { of.choice = search::parseChoice(text).value(); });
  define("precision", [](SearchOptions& of, std::string_view word) {
    of.engine.precision = choiceOf("precision", word, kPrecisions);
  });
  define("threads", [](SearchOptions& of, unsigned threads) { of.engine.threads = threads; });
  module.def("search", runSearch, nb::arg("columns"), nb::arg("target"), nb::arg("weights").none(), nb::arg("names"),
             nb::arg("options"), nb::arg("checkpoint").none(), nb::arg("progress").none());
  module.def("judge", judge, nb::arg("engine"), nb::arg("formula"), nb::arg("columns"), nb::arg("target"),
             nb::arg("weights").none(), nb::arg("names"));
  module.def("half_widths", halfWidths, nb::arg("engine"), nb::arg("formula"), nb::arg("columns"), nb::arg("names"),
             nb::arg("uncertainty"), nb::arg("level"));
}

}  // namespace srjit::python
