// Options that several commands share.
#pragma once

#include <CLI/CLI.hpp>

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/numeric.h"
#include "ir/text/lexer.h"
#include "runtime/engine.h"
#include "tools/files/expressions.h"
#include "tools/json.h"
#include "tools/report.h"

namespace srjit {

/// Adds an option with a fixed set of words, stored in `value`, whose present content is the default.
template <class T>
CLI::Option* addChoice(CLI::App& app, const std::string& name, T& value,
                       const std::vector<std::pair<std::string, T>>& choices, const std::string& doc) {
  std::map<std::string, T> meanings;
  std::string words, initial;
  for (const auto& [word, meaning] : choices) {
    meanings.emplace(word, meaning);
    words += (words.empty() ? "" : "|") + word;
    if (meaning == value) initial = word;
  }
  const auto check = [meanings, words](const std::string& word) {
    return meanings.contains(word) ? std::string() : text::inQuotes(word) + " is none of " + words;
  };
  const auto store = [meanings, &value](const std::string& word) { value = meanings.at(word); };
  return app.add_option_function<std::string>(name, store, doc)
      ->check(check, "")
      ->type_name(words)
      ->default_str(initial);
}

/// The same for values that have names.
template <class T, class Values>
CLI::Option* addNamed(CLI::App& app, const std::string& name, T& value, const Values& values, const std::string& doc) {
  std::vector<std::pair<std::string, T>> choices;
  for (const T choice : values) choices.emplace_back(nameOf(choice), choice);
  return addChoice(app, name, value, choices, doc);
}

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
/// The name of the expressions among the options that addExpressionOptions() adds.
inline constexpr const char* kExpressionsOption = "expressions";
void addExpressionOptions(CLI::App& app, ExpressionOptions& options);

/// Adds an option for a whole number from `least` to `most` in decimal digits, which `store` gets. Words such as -1,
/// 1.5 and 0x10, and numbers out of the range, are wrong usage; CLI11's own conversion takes -1 for 2^64 - 1.
CLI::Option* addWholeNumber(CLI::App& app, const std::string& name, std::function<void(std::uint64_t)> store,
                            const std::string& doc, std::uint64_t least, std::uint64_t most);
/// The same, stored in `value`, whose present content is the default.
template <std::unsigned_integral T>
CLI::Option* addCount(CLI::App& app, const std::string& name, T& value, const std::string& doc, std::uint64_t least = 0,
                      std::uint64_t most = std::numeric_limits<T>::max()) {
  const auto store = [&value](std::uint64_t number) { value = static_cast<T>(number); };
  return addWholeNumber(app, name, store, doc, least, most)->default_str(std::to_string(value));
}
/// Adds an option for a whole number of at least 1, which is a limit; without the option there is none.
template <std::unsigned_integral T>
void addLimit(CLI::App& app, const std::string& name, T& limit, const std::string& doc) {
  addCount(app, name, limit, doc, 1)->default_str("");
}

/// Adds an option for a finite number from `least` to `most`, stored in `value`, whose present content is the default.
CLI::Option* addNumber(CLI::App& app, const std::string& name, double& value, const std::string& doc, double least = 0,
                       double most = std::numeric_limits<double>::max());

/// Adds --max-seconds, a finite number above 0, which `store` gets.
void addSeconds(CLI::App& app, const std::function<void(double)>& store, const std::string& doc);

/// The expressions that were asked for, with the parameters of --params where a line has none of its own. Bad ones are
/// reported to standard error. Throws CLI::ValidationError if none were asked for, and ErrorException.
std::vector<SourceLine> readExpressions(const ExpressionOptions& options, const ColumnNames& columns);

/// The exit status of a command that did everything but the bad lines of `list`.
ExitStatus batchStatus(const std::vector<SourceLine>& list, const ExpressionOptions& options);

/// Adds --math and --precision, which fix what numbers mean.
void addNumericOptions(CLI::App& app, Math& math, Precision& precision);

/// Adds --loss of a loss that kernels have, and --nan.
CLI::Option* addLossChoice(CLI::App& app, LossKind& kind, const std::string& doc);
CLI::Option* addNanChoice(CLI::App& app, NanPolicy& policy, const std::string& doc);

/// Adds --loss of any loss: text for readLoss(). The help lists those that the command `takes`.
CLI::Option* addLossOption(
    CLI::App& app, std::string& loss, const std::string& doc,
    const std::function<bool(const LossInfo&)>& takes = [](const LossInfo&) { return true; });
/// Sets the loss of `options` to what `text` says: a name, name:constant, or an expression over f, y and w. Throws
/// ErrorException for bad text, with its place, and CLI::ValidationError for a word that is none of the names.
void readLoss(const std::string& text, LossOptions& options);

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

/// The words of a command line, the last first, as CLI::App::parse() takes them. "--name=" becomes "--name" and an
/// empty word, since the library would take the word behind it for the value.
std::vector<std::string> commandWords(int argc, const char* const* argv);

/// Throws CLI::ParseError for the first word that `app`, or the command that was given, does not accept. The library
/// looks for those last, behind required and excluded options, so call it where parsing failed for any reason.
void checkUnknownWords(const CLI::App& app);

/// The library's message about `error` as one short line behind "sr-jit: ", which may hold words of the command line,
/// and where help is.
std::string usageMessage(const CLI::App* app, const CLI::Error& error);

}  // namespace srjit
