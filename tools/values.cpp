#include "tools/values.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "ir/text.h"
#include "runtime/loss_text.h"
#include "runtime/pool/make_executor.h"

namespace srjit {
namespace {

constexpr const char* kHintOfMinus = "; put -- before an expression that starts with a minus sign";

/// Whether `app` has what addExpressionOptions() adds.
bool takesExpressions(const CLI::App& app) { return app.get_option_no_throw(kExpressionsOption) != nullptr; }

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

/// The words of a command line, the last first, as CLI::App::parse() takes them. "--name=" becomes "--name" and an
/// empty word, since the library would take the word behind it for the value.
std::vector<std::string> commandWords(std::span<const std::string> given) {
  std::vector<std::string> words;
  bool options = true;  // until "--"
  for (std::string word : given) {
    options = options && word != "--";
    const bool no_value = options && word.starts_with("--") && word.find('=') == word.size() - 1;
    if (no_value) word.pop_back();
    words.push_back(std::move(word));
    if (no_value) words.emplace_back();
  }
  std::ranges::reverse(words);
  return words;
}

std::string checkDevice(const std::string& name) {
  if (name == "auto" || name == "cpu") return "";
  const auto ordinals = cudaOrdinals(name, [] { return Result<std::size_t>(std::size_t{1}); });
  if (ordinals && *ordinals) return "";
  return text::inQuotes(name) + " is none of auto, cpu, cuda:N, cuda:N,M,..., cuda:all";
}

constexpr const char* kLossOption = "--loss";

}  // namespace

Result<double> parseNumber(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r";
  std::string_view digits = text;
  digits.remove_prefix(std::min(digits.find_first_not_of(kSpaces), digits.size()));
  digits = digits.substr(0, digits.find_last_not_of(kSpaces) + 1);
  // from_chars() takes no plus sign.
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
  double value = 0;
  const text::NumberFault fault = text::readNumber(digits, value);
  if (fault == text::NumberFault::kNone && digits.back() != ')') return value;  // ')' ends a NaN with a payload
  const bool beyond = fault == text::NumberFault::kOutOfRange;
  return Error{
      Errc::kInvalid, fmt::format("{} {}", text::inQuotes(text), beyond ? text::kBeyondDouble : "is not a number"), {}};
}

Error showPlace(Error error, std::string_view line_text, std::string_view origin, std::size_t line) {
  if (!error.where) {
    error.message = fmt::format("{}:{}: {}", origin, line, error.message);
    return error;
  }
  // withCaret counts lines of its text, which here is a single line of the file.
  const std::size_t above = line - 1;
  const std::string shown = withCaret(error, line_text, origin);
  const std::string place = fmt::format("{}:{}:", origin, error.where->line);
  error.where->line += above;
  error.message = fmt::format("{}:{}:{}", origin, error.where->line, std::string_view(shown).substr(place.size()));
  return error;
}

CLI::Option* addWholeNumber(CLI::App& app, const std::string& name, std::function<void(std::uint64_t)> store,
                            const std::string& doc, std::uint64_t least, std::uint64_t most) {
  const auto read = [least, most](const std::string& word) -> std::optional<std::uint64_t> {
    std::uint64_t number = 0;
    const char* const end = word.data() + word.size();
    const auto [last, failed] = std::from_chars(word.data(), end, number);
    const bool is_good = failed == std::errc() && last == end && least <= number && number <= most;
    return is_good ? std::optional(number) : std::nullopt;
  };
  const auto check = [read, least, most](const std::string& word) {
    return read(word) ? std::string()
                      : fmt::format("{} is no whole number from {} to {}", text::inQuotes(word), least, most);
  };
  const auto take = [read, store = std::move(store)](const std::string& word) { store(read(word).value_or(0)); };
  return app.add_option_function<std::string>(name, take, doc)->type_name("N")->check(check, "");
}

CLI::Option* addNumber(CLI::App& app, const std::string& name, double& value, const std::string& doc, double least,
                       double most) {
  const auto check = [least, most](const std::string& word) {
    const Result<double> number = parseNumber(word);
    if (number && least <= *number && *number <= most) return std::string();  // NaN is in no range
    const bool has_end = most < std::numeric_limits<double>::max();
    return fmt::format("{} is no number from {} {}", text::inQuotes(word), least,
                       has_end ? fmt::format("to {}", most) : "on");
  };
  const auto take = [&value](const std::string& word) { value = parseNumber(word).value(); };
  return app.add_option_function<std::string>(name, take, doc)->check(check, "")->default_str(fmt::format("{}", value));
}

void addBoundsOption(CLI::App& app, std::vector<std::string>& bounds, const std::string& doc) {
  app.add_option("--bounds", bounds, doc)->type_name("P:LOWER:UPPER,...")->delimiter(',')->allow_extra_args(false);
}

std::vector<ParameterBounds> readBounds(const std::vector<std::string>& texts,
                                        const std::set<std::uint32_t>& parameters) {
  std::vector<ParameterBounds> bounds(parameters.empty() ? 0 : *parameters.rbegin() + 1);
  std::vector<std::uint32_t> places;
  for (const std::string& text : texts) {
    const auto check = [&](bool is_good, std::string_view why) {
      if (!is_good) refuse("--bounds: {}: {}; expected P:LOWER:UPPER, such as p0:0:", text::inQuotes(text), why);
    };
    auto [name, sides] = llvm::StringRef(text).split(':');
    std::uint32_t place = 0;
    check(name.consume_front("p") && !name.getAsInteger(10, place) && sides.count(':') == 1, "it is not of this form");
    check(parameters.contains(place), "no expression has this parameter");
    check(std::ranges::find(places, place) == places.end(), "the parameter occurs twice");
    places.push_back(place);
    const auto read = [&](llvm::StringRef side, double none) {
      const Result<double> number = side.empty() ? none : parseNumber(side);
      check(number && !std::isnan(*number), "a side is no number");
      return *number;
    };
    bounds[place] = {read(sides.split(':').first, -HUGE_VAL), read(sides.split(':').second, HUGE_VAL)};
    const auto& [lower, upper] = bounds[place];
    check(lower <= upper, "the lower bound is above the upper one");
    check(lower < HUGE_VAL && upper > -HUGE_VAL, "no number is between the bounds");
  }
  return bounds;
}

void addNumericOptions(CLI::App& app, Math& math, Precision& precision) {
  addNamed(app, "--math", math, kMathModes, "how faithfully kernels follow the expressions: docs/accuracy.md");
  addNamed(app, "--precision", precision, kPrecisions, "the type that kernels compute in");
}

void addEngineOptions(CLI::App& app, EngineOptions& options) {
  addNumericOptions(app, options.math, options.precision);
  addNamed(app, "--tier", options.tier, kTiers, "how expressions are executed; the numbers are the same");
  app.add_option("--device", options.device, "where they are executed")
      ->check(checkDevice, "")
      ->type_name("auto|cpu|cuda:N,M,...|cuda:all")
      ->capture_default_str();
  app.add_option("--cache-dir", options.cache_directory, "where kernels are kept between runs; '' keeps none")
      ->type_name("DIR")
      ->default_str("$SRJIT_CACHE_DIR, or ~/.cache/sr-jit");
  addCount(app, "--threads", options.threads, "threads to use at most; 0 for all processors", 0, kMaxThreads);
}

CLI::Option* addLossOption(CLI::App& app, std::string& loss, const std::string& doc,
                           const std::function<bool(const LossInfo&)>& takes) {
  std::string names;
  for (const LossInfo& info : allLosses()) {
    if (takes(info)) names += fmt::format("{}|", info.name);
  }
  return app.add_option(kLossOption, loss, doc)->type_name(names + "NAME:CONSTANT|EXPRESSION")->capture_default_str();
}

void readLoss(const std::string& text, LossOptions& options) {
  Result<LossOptions> loss = parseLoss(text);
  if (!loss && loss.error().where) throwError(showPlace(loss.error(), text, kLossOption, 1));
  if (!loss) throw CLI::ValidationError(kLossOption, loss.error().message);
  loss->nan = options.nan;
  options = std::move(*loss);
}

void parseWords(CLI::App& app, std::span<const std::string> words) {
  try {
    app.parse(commandWords(words));
  } catch (const CLI::ParseError& problem) {
    // The library looks for unknown words last, behind required and excluded options.
    if (problem.get_exit_code() == 0) throw;  // help was asked for
    checkUnknownWordsOf(app);
    for (const CLI::App* const command : app.get_subcommands()) checkUnknownWordsOf(*command);
    throw;
  }
}

std::string usageWords(const CLI::Error& error) {
  const std::string words = error.what();
  // The library would list all values that the option may have.
  const bool lacks_value = error.get_name() == "ArgumentMismatch" && words.ends_with(" missing");
  return lacks_value ? words.substr(0, words.find(':')) + " needs a value" : words;
}

}  // namespace srjit
