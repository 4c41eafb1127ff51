// What `run`, `loss` and `fit` have in common: data, expressions and an engine, made ready from the command line. All
// functions throw ErrorException for faults of options, data or machine.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "tools/files/data.h"
#include "tools/options.h"

namespace srjit {

struct EvaluationOptions {
  ExpressionOptions expressions;  ///< whose limits are those of the data, too
  EngineOptions engine;
  std::string data, target, weights, passes, out = "-";
  CsvForm form = {};  ///< MissingCells::kRead: rows with missing values are left out
  bool json = false, quiet = false;
  bool simplify = true;                          ///< CompileOptions
  std::optional<double> default_parameter = {};  ///< of lines without values; not set: they need some
};

/// Adds the options of data and of the engine, and --quiet; --drop-missing, which leaves out rows of the data; -o; and
/// all of `options` but --drop-missing and --json, whose meaning is the command's own.
void addDataOptions(CLI::App& app, EvaluationOptions& options);
void addDropMissingOption(CLI::App& app, EvaluationOptions& options);
void addOutOption(CLI::App& app, std::string& out);
void addEvaluationOptions(CLI::App& app, EvaluationOptions& options);

/// Expressions to compile together, and their parameters one after another.
struct Batch {
  std::vector<Expression> expressions;
  std::vector<double> parameters;
};

/// The data that `options` name, without the rows that --drop-missing leaves out; tells the number of these.
DataTable readTable(const EvaluationOptions& options);

/// Data of a file, and an engine that holds them.
struct LoadedData {
  DataTable table;
  Roles roles;
  Engine engine;
  Dataset data;
  std::size_t notices = 0;  ///< of the engine, that were told
};
/// Makes an engine, tells its notices, and uploads the data that `options` name.
LoadedData loadData(const EvaluationOptions& options);

/// Data, expressions and an engine that fit together.
struct Evaluation : LoadedData {
  std::vector<SourceLine> lines;  ///< bad ones were reported
  CompileOptions compile;         ///< of all programs: their passes, whether they simplify, the number of rows
  std::size_t copies = 1;         ///< how many evaluations of each expression a step has in memory at once

  /// Indices of the good lines.
  std::vector<std::size_t> good() const;
  /// Those of the lines with these indices, which must be good.
  Batch batchOf(std::span<const std::size_t> indices) const;
};
/// Columns, target and weights for upload.
DataView viewOf(const Roles& roles);

/// Throws CLI::ValidationError if data and expressions are both to come from standard input.
void checkStandardInput(const std::string& data, const ExpressionOptions& expressions);

/// Makes ready what `options` ask for; `writes_npy`: --out FILE.npy gives a matrix. Throws CLI::ValidationError if
/// options contradict each other.
Evaluation prepare(const EvaluationOptions& options, bool writes_npy);

/// One line on standard error if kernels are not kept on the disk although they were to be.
void noticeCacheFault(const Engine& engine);

/// Tells the notices of an engine or a search, but the first `told`; gives how many there are.
std::size_t tellNotices(std::span<const std::string> notices, std::size_t told = 0);

/// Calls `step` for the good lines, some thousands at a time, with a program of them, their indices, and their
/// parameters one after another; shows progress. What the step or the program reports as failed becomes the line's
/// error and is reported. Tells what the engine has given notice of meanwhile.
using EvaluationStep = std::function<std::vector<Failure>(const Program& program, std::span<const std::size_t> lines,
                                                          std::span<const double> parameters)>;
void evaluateInParts(Evaluation& evaluation, const EvaluationOptions& options, const EvaluationStep& step);

/// Losses::valid_rows of an expression in decimal digits, or `open` if they were not counted.
std::string validRowsText(std::uint64_t rows, const char* open);

/// Opens the output, before anything is evaluated, lets `write` evaluate and fill it, and publishes it. If no line is
/// good, and that is an error, nothing is opened. Gives the status of the lines.
ExitStatus writeEvaluation(Evaluation& evaluation, const EvaluationOptions& options,
                           const std::function<void(OutputFile& out)>& write);

}  // namespace srjit
