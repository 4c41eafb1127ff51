// What `run` and `loss` have in common: data, expressions and an engine, made ready from the command line.
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
  MissingCells missing = MissingCells::kRefused;  ///< kRead: rows with missing values are left out
  bool json = false, quiet = false;
  std::optional<double> default_parameter = {};  ///< of lines without values; not set: they need some
};

/// Adds the options of data and of the engine, and --quiet.
void addDataOptions(CLI::App& app, EvaluationOptions& options);
/// Adds --drop-missing, which leaves out rows of the data.
void addDropMissingOption(CLI::App& app, EvaluationOptions& options);
/// Adds these and all other options of `options`; but not --json, whose meaning is the command's own.
void addEvaluationOptions(CLI::App& app, EvaluationOptions& options);

/// Expressions to compile together, and their parameters one after another.
struct Batch {
  std::vector<Expression> expressions;
  std::vector<double> parameters;
};

/// The data that `options` name, without the rows that --drop-missing leaves out; tells the number of these.
Result<DataTable> readTable(const EvaluationOptions& options);

/// Data of a file, and an engine that holds them.
struct LoadedData {
  DataTable table;
  Roles roles;
  Engine engine;
  Dataset data;
  std::size_t notices = 0;  ///< of the engine, that were told
};
/// Makes an engine, tells its notices, and uploads the data that `options` name.
Result<LoadedData> loadData(const EvaluationOptions& options);

/// Data, expressions and an engine that fit together.
struct Evaluation : LoadedData {
  std::vector<SourceLine> lines;  ///< bad ones were reported
  std::optional<Pipeline> pipeline;
  std::size_t copies = 1;  ///< how many evaluations of each expression a step has in memory at once
  bool deferred = false;   ///< CompileOptions, of the step's programs

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
Result<Evaluation> prepare(const EvaluationOptions& options, bool writes_npy);

/// One line on standard error if kernels are not kept on the disk although they were to be.
void noticeCacheFault(const Engine& engine);

/// Calls `step` for the good lines, some thousands at a time, with a program of them, their indices, and their
/// parameters one after another; shows progress. What the step or the program reports as failed becomes the line's
/// error and is reported. Tells what the engine has given notice of meanwhile. Stops at the first error that is not one
/// expression's.
using EvaluationStep = std::function<Result<std::vector<Failure>>(
    const Program& program, std::span<const std::size_t> lines, std::span<const double> parameters)>;
Status evaluateInParts(Evaluation& evaluation, const EvaluationOptions& options, const EvaluationStep& step);

}  // namespace srjit
