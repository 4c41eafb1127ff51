#include "tools/usage.h"

#include <algorithm>

#include "ir/text/lexer.h"
#include "tools/options.h"

namespace srjit {
namespace {

constexpr const char* kHintOfMinus = "; put -- before an expression that starts with a minus sign";

/// Whether `app` has what addExpressionOptions() adds.
bool takesExpressions(const CLI::App& app) { return app.get_option_no_throw(kExpressionsOption) != nullptr; }

/// The library's words for an option without its value would list all values that it may have.
std::string wordsOf(const CLI::Error& error) {
  const std::string words = error.what();
  const bool lacks_value = error.get_name() == "ArgumentMismatch" && words.ends_with(" missing");
  return lacks_value ? words.substr(0, words.find(':')) + " needs a value" : words;
}

void checkUnknownWordsOf(const CLI::App& app) {
  if (app.remaining_size() == 0) return;
  for (const std::string& word : app.remaining()) {
    if (word == "--") continue;
    const char* what = word.starts_with('-') ? "unknown option " : "unexpected word ";
    const bool maybe_expression = word.starts_with('-') && !word.starts_with("--") && takesExpressions(app);
    throw CLI::ParseError(what + text::inQuotes(word) + (maybe_expression ? kHintOfMinus : ""),
                          CLI::ExitCodes::ExtrasError);
  }
}

}  // namespace

std::optional<ExitStatus> parseCommandLine(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? kDone : kWrongUsage;  // 0: help was asked for
  }
  return {};
}

std::vector<std::string> commandWords(int argc, const char* const* argv) {
  std::vector<std::string> words;
  bool options = true;  // until "--"
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    options = options && word != "--";
    const bool no_value = options && word.starts_with("--") && word.find('=') == word.size() - 1;
    if (no_value) word.pop_back();
    words.push_back(std::move(word));
    if (no_value) words.emplace_back();
  }
  std::ranges::reverse(words);
  return words;
}

void checkUnknownWords(const CLI::App& app) {
  checkUnknownWordsOf(app);
  for (const CLI::App* const command : app.get_subcommands()) checkUnknownWordsOf(*command);
}

std::string usageMessage(const CLI::App* app, const CLI::Error& error) {
  constexpr std::size_t kLongest = 1000;
  std::string line = "sr-jit: " + text::printable(wordsOf(error));
  if (line.size() > kLongest) line = line.substr(0, kLongest) + "...";
  return CLI::FailureMessage::simple(app, CLI::Error(error.get_name(), line, error.get_exit_code()));
}

}  // namespace srjit
