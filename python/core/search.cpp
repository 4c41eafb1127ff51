// The search for formulas, as srjit.SymbolicRegressor runs it.
#include "tools/search/interface/options.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <optional>
#include <tuple>

#include "core/bindings.h"
#include "ir/text/latex.h"
#include "tools/files/checkpoint.h"
#include "tools/files/output.h"
#include "tools/search/formulas/neighbourhood.h"
#include "tools/search/formulas/uncertainty.h"
#include "tools/search/page/report_data.h"
#include "tools/search/resume/checkpoint.h"

namespace srjit::python {

namespace {

using search::SearchState;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenSignals{100}, kBetweenReports{250};

nb::tuple tupleOf(const search::Formula& formula, const ColumnNames& names) {
  return nb::make_tuple(formula.complexity, formula.loss, formula.held_out,
                        print(formula.expression, Language::kInfix, names), text::latexText(formula.expression, names),
                        formula.evidence, formula.bic, formula.r2);
}

nb::list listOf(const search::Front& front, const ColumnNames& names) {
  nb::list formulas;
  for (const search::Formula& formula : front.formulas()) formulas.append(tupleOf(formula, names));
  return formulas;
}

/// The number of the formula of a choice. The front is not empty.
std::ptrdiff_t chosenOf(const search::Front& front) { return front.chosen() - front.formulas().data(); }

/// What Python does during a search: handlers of signals, and a function that progress is told to. The search calls
/// this without the GIL, in the thread that called it: the only one in which Python runs handlers.
class Attendant {
 public:
  Attendant(std::optional<nb::callable> tell, const ColumnNames& names) : tell_(std::move(tell)), names_(names) {}

  /// Whether a handler or the function has raised an exception, or the function wants the search to end.
  bool mustStop() {
    if (const auto now = Clock::now(); now >= next_signals_) {
      next_signals_ = now + kBetweenSignals;
      attend([] {
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
      });
    }
    return is_interrupted_ || wants_end_ || error_ != nullptr;
  }

  void take(const SearchState& state) {
    const auto now = Clock::now();
    if (!tell_ || now < next_report_ || state.front.empty() || is_interrupted_ || wants_end_ || error_ != nullptr)
      return;
    next_report_ = now + kBetweenReports;
    attend([&] {
      const nb::list front = listOf(state.front, names_);
      wants_end_ = nb::cast<bool>(
          (*tell_)(state.seconds, state.generations, state.candidates, front, front[chosenOf(state.front)]));
    });
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
  bool is_interrupted_ = false, wants_end_ = false;
  std::exception_ptr error_;
};

nb::dict dictOf(const search::SearchResult& result, const ColumnNames& names, bool is_interrupted,
                const Status& checkpoint) {
  nb::dict dict;
  dict["front"] = listOf(result.state.front, names);
  dict["chosen"] = chosenOf(result.state.front);
  dict["seconds"] = result.state.seconds;
  dict["generations"] = result.state.generations;
  dict["candidates"] = result.state.candidates;
  dict["fits"] = result.state.fits;
  dict["end"] = is_interrupted ? "interrupted" : nameOf(result.end);
  dict["notices"] = result.notices;
  dict["checkpoint_error"] = checkpoint ? nb::none() : errorObject(checkpoint.error());
  return dict;
}

/// `begun`: of time.monotonic(). `last`: the state of a search that this one goes on with if its data and options are
/// the same; limits then count anew. With it, even if it is empty, the result has such a state. The arrays are
/// arguments, so they live until this returns.
nb::dict runSearch(const std::vector<Column>& columns, const Column& target, const std::optional<Column>& weights,
                   const std::vector<std::string>& names, const std::vector<std::string>& words, double begun,
                   std::optional<std::string> checkpoint, std::optional<nb::callable> progress,
                   const std::optional<std::string>& last) {
  search::SearchOptions options = search::parseSearchOptions(words).value();
  options.begun = Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(begun)));
  const DataView data = viewOf(columns, target, weights, names);
  Attendant attendant(std::move(progress), data.names);
  CheckpointFile file(std::move(checkpoint));
  options.stop = [&] { return attendant.mustStop(); };
  options.progress = [&](const SearchState& state) { attendant.take(state); };
  std::string next;
  options.checkpoint = [&](const SearchState& state, bool is_last) {
    file.take(state, is_last);
    if (last && is_last) next = search::checkpointText(state);
  };
  bool is_resumed = false;
  const auto run = [&] {
    const nb::gil_scoped_release free;
    const std::uint64_t fingerprint = search::fingerprintOf(data, options);
    std::optional<SearchState> resumed = file.read(fingerprint).value();
    Result<SearchState> before = search::readCheckpoint(last.value_or(""));
    if (!resumed && before && before->fingerprint == fingerprint) {
      if (options.seconds > 0) options.seconds += before->seconds;
      if (options.generations > 0) options.generations += before->generations;
      resumed = *std::move(before);
    }
    is_resumed = resumed.has_value();
    return search::search(data, options, std::move(resumed)).value();
  };
  const search::SearchResult result = run();
  nb::dict dict = dictOf(result, data.names, attendant.finish(), file.status());
  nb::list box;
  for (const ColumnView& column : data.columns) {
    const Interval side = search::widened(search::rangeOf(column));
    box.append(nb::make_tuple(side.low, side.high));
  }
  dict["box"] = box;
  dict["is_resumed"] = is_resumed;
  dict["state"] = next;
  return dict;
}

void writeReport(const std::string& path, const std::vector<Column>& columns, const Column& target,
                 const std::vector<std::string>& names, std::string_view front, std::string target_name,
                 std::string loss_name, std::string command, std::vector<std::string> facts) {
  const search::Report report{parseJson(front).value(), viewOf(columns, target, {}, names),
                              std::move(target_name),   std::move(loss_name),
                              std::move(command),       std::move(facts)};
  const nb::gil_scoped_release free;
  OutputFile out = OutputFile::create(path).value();
  const Engine engine = Engine::create({.device = "cpu", .precision = Precision::kF64}).value();
  out.write(search::reportPage(engine, report).value());
  out.publish().value();
}

/// The members of an Uncertainty, as Python keeps them.
using UncertaintyTuple = std::tuple<std::vector<double>, double, std::size_t, std::vector<double>, std::vector<double>>;

/// What data say of a formula: its uncertainty, and the importances of the columns.
std::tuple<UncertaintyTuple, std::vector<double>> judge(const Engine& engine, std::string_view formula,
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
                               const std::vector<std::string>& names, const UncertaintyTuple& kept, double level) {
  const DataView data = viewOf(columns, {}, {}, names);
  const Expression expression = parse(formula, Language::kInfix, data.names).value();
  const nb::gil_scoped_release free;
  return search::halfWidths(engine, expression, std::make_from_tuple<search::Uncertainty>(kept), data, level);
}

}  // namespace

void defineSearch(nb::module_& module) {
  module.def("search", runSearch, nb::arg("columns"), nb::arg("target"), nb::arg("weights").none(), nb::arg("names"),
             nb::arg("options"), nb::arg("begun"), nb::arg("checkpoint").none(), nb::arg("progress").none(),
             nb::arg("last").none());
  module.def("write_report", writeReport);
  module.attr("most_drawn_rows") = search::kMostDrawnRows;
  module.def("judge", judge, nb::arg("engine"), nb::arg("formula"), nb::arg("columns"), nb::arg("target"),
             nb::arg("weights").none(), nb::arg("names"));
  module.def("half_widths", halfWidths, nb::arg("engine"), nb::arg("formula"), nb::arg("columns"), nb::arg("names"),
             nb::arg("uncertainty"), nb::arg("level"));
}

}  // namespace srjit::python
