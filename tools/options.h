// Options that several commands share.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/numeric.h"
#include "runtime/engine.h"
#include "tools/files/expressions.h"
#include "tools/json.h"
#include "tools/report.h"
#include "tools/values.h"

namespace srjit {

/// Adds a positional option that takes any number of words, each as it is given.
CLI::Option* addWords(CLI::App& app, const std::string& name, std::vector<std::string>& words, const std::string& doc);

/// Where expressions come from.
struct ExpressionOptions {
  std::vector<std::string> texts;
  std::string file;
  Language from = Language::kInfix;
  std::string parameters;
  bool keep_going = false;
  InputLimits limits;
};
void addExpressionOptions(CLI::App& app, ExpressionOptions& options);

/// Adds --max-seconds, a finite number above 0, which `store` gets.
void addSeconds(CLI::App& app, const std::function<void(double)>& store, const std::string& doc);

/// The expressions that were asked for, with the parameters of --params where a line has none of its own. Bad ones are
/// reported to standard error. Throws CLI::ValidationError if none were asked for, and ErrorException.
std::vector<SourceLine> readExpressions(const ExpressionOptions& options, const ColumnNames& columns);

/// The exit status of a command that did everything but the bad lines of `list`.
ExitStatus batchStatus(const std::vector<SourceLine>& list, const ExpressionOptions& options);

/// Adds --loss of a loss that kernels have, and --nan.
CLI::Option* addLossChoice(CLI::App& app, LossKind& kind, const std::string& doc);
CLI::Option* addNanChoice(CLI::App& app, NanPolicy& policy, const std::string& doc);

/// Names of variables where no data file gives them: "--columns mass,speed", read as the header line of a CSV file, so
/// that a name with a comma is quoted as there. Reading throws ErrorException.
void addColumnsOption(CLI::App& app, std::string& columns);
ColumnNames readColumns(const std::string& columns);

/// Adds --simplify on|off.
CLI::Option* addSimplifyOption(CLI::App& app, bool& simplify);

/// The passes that --passes names. Throws ErrorException, with the place.
Pipeline readPasses(const std::string& passes, Math math);

void addJsonOption(CLI::App& app, bool& json);

/// Writes results to standard output, and reports what goes wrong.
ExitStatus writeResults(std::string_view text);

/// Parses the command line of a program without commands. Gives the exit status if the program is to end, since help
/// was asked for or the usage is wrong; the library has then said so.
std::optional<ExitStatus> parseCommandLine(CLI::App& app, int argc, const char* const* argv);

/// The library's message about `error` as one short line behind "sr-jit: ", which may hold words of the command line,
/// and where help is.
std::string usageMessage(const CLI::App* app, const CLI::Error& error);

}  // namespace srjit
