// Options of values: numbers, choices, a loss, those of an engine; and messages about wrong ones. The library of the
// search has this, too.
#pragma once

#include <CLI/CLI.hpp>

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/numeric.h"
#include "ir/text/lexer.h"
#include "runtime/engine.h"

namespace srjit {

/// The number that all of `text` spells (spaces around it allowed): decimal, inf, infinity or nan. kInvalid if it is
/// none or out of the range of a double (1e400, 1e-400); the message starts with the quoted text.
Result<double> parseNumber(std::string_view text);

/// `error` made complete for a reader of standard error: "ORIGIN:LINE:COLUMN: MESSAGE", the line and a caret.
/// `error.where` counts in `line_text`, which is line number `line` of `origin`; the result's place counts in the
/// origin. Without a place the message becomes "ORIGIN:LINE: MESSAGE".
Error showPlace(Error error, std::string_view line_text, std::string_view origin, std::size_t line);

/// The value that was read of the text of an option. Throws an ErrorException with the place in the text.
template <class T>
T valueOfOption(Result<T> read, std::string_view text, std::string_view option) {
  if (!read) throwError(showPlace(read.error(), text, option, 1));
  return *std::move(read);
}

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

/// Adds --bounds: texts for readBounds().
void addBoundsOption(CLI::App& app, std::vector<std::string>& bounds, const std::string& doc);
/// Reads texts such as p0:0: and p1:-1:1, where a side without a number has no bound: bounds of p0, p1, ... up to the
/// last of `parameters`, which are those that occur. Throws ErrorException for other texts.
std::vector<ParameterBounds> readBounds(const std::vector<std::string>& texts,
                                        const std::set<std::uint32_t>& parameters);

/// Adds --math and --precision, which fix what numbers mean.
void addNumericOptions(CLI::App& app, Math& math, Precision& precision);
/// Adds those, --tier, --device, --cache-dir and --threads.
void addEngineOptions(CLI::App& app, EngineOptions& options);

/// Adds --loss of any loss: text for readLoss(). The help lists those that the command `takes`.
CLI::Option* addLossOption(
    CLI::App& app, std::string& loss, const std::string& doc,
    const std::function<bool(const LossInfo&)>& takes = [](const LossInfo&) { return true; });
/// Sets the loss of `options` to what `text` says: a name, name:constant, or an expression over f, y and w. Throws
/// ErrorException for bad text, with its place, and CLI::ValidationError for a word that is none of the names.
void readLoss(const std::string& text, LossOptions& options);

/// The name of the expressions among the options that addExpressionOptions() adds.
inline constexpr const char* kExpressionsOption = "expressions";

/// Parses the words of a command line, without the program's name, by CLI::App::parse(). Throws CLI::ParseError; for a
/// word that `app`, or the command that was given, does not accept, whatever else fails.
void parseWords(CLI::App& app, std::span<const std::string> words);

/// The library's message about `error`, short.
std::string usageWords(const CLI::Error& error);

}  // namespace srjit
