#include "tools/options.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "tools/files/data.h"
#include "tools/files/output.h"
#include "tools/files/read.h"
#include "tools/report.h"

namespace srjit {
std::optional<ExitStatus> parseCommandLine(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? kDone : kWrongUsage;  // 0: help was asked for
  }
  return {};
}

std::string usageMessage(const CLI::App* app, const CLI::Error& error) {
  constexpr std::size_t kLongest = 1000;
  std::string line = "sr-jit: " + text::printable(usageWords(error));
  if (line.size() > kLongest) line = line.substr(0, kLongest) + "...";
  return CLI::FailureMessage::simple(app, CLI::Error(error.get_name(), line, error.get_exit_code()));
}

CLI::Option* addWords(CLI::App& app, const std::string& name, std::vector<std::string>& words, const std::string& doc) {
  // Where an option takes extra words, CLI11 divides "[a,b]" in two, and its conversion to a vector reads "{}" and "%%"
  // as something else. This one has no conversion, and instead of extra words expects more than can be given.
  CLI::callback_t store = [&words](const CLI::results_t& given) {
    words = given;
    return true;
  };
  return app.add_option(name, std::move(store), doc)
      ->expected(CLI::detail::expected_max_vector_size, -1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void addExpressionOptions(CLI::App& app, ExpressionOptions& options) {
  auto* texts =
      addWords(app, kExpressionsOption, options.texts,
               "expressions of columns, by name (`net weight`, if it is no identifier) or place (x0, x1, ... without "
               "target and weights), and of parameters (p0, p1, ...); put -- before one that starts with a minus "
               "sign")
          ->type_name("EXPRESSION");
  app.add_option("--exprs", options.file,
                 "read expressions from FILE, one per line; - is standard input; .gz and .xz too")
      ->type_name("FILE")
      ->excludes(texts);
  std::vector<std::pair<std::string, Language>> forms;
  for (const char* word : {"infix", "postfix", "prefix", "json"}) forms.emplace_back(word, *findLanguage(word));
  addChoice(app, "--from", options.from, forms, "the form of the expressions");
  app.add_option(
         "--params", options.parameters,
         "values of p0, p1, ... for all expressions without their own, as \"1.5 0.7\"; an expression may need fewer")
      ->type_name("NUMBERS");
  app.add_flag("--keep-going", options.keep_going,
               "exit with 0 although some expressions are bad input; not where a tier has no code for some");
  addLimit(app, "--max-nodes", options.limits.max_nodes, "refuse expressions of more nodes (tokens)");
  addLimit(app, "--max-bytes", options.limits.max_bytes, "refuse files of more bytes, also when unpacked");
  addSeconds(app, endProcessAfter,
             "end after so many seconds with exit status 1 and a message, unless results are being written by then");
}

void addSeconds(CLI::App& app, const std::function<void(double)>& store, const std::string& doc) {
  const auto check = [](const std::string& word) {
    const Result<double> seconds = parseNumber(word);
    return seconds && std::isfinite(*seconds) && *seconds > 0 ? std::string()
                                                              : text::inQuotes(word) + " is no number above 0";
  };
  const auto take = [store](const std::string& word) { store(parseNumber(word).value()); };
  app.add_option_function<std::string>("--max-seconds", take, doc)->type_name("S")->check(check, "");
}

std::vector<SourceLine> readExpressions(const ExpressionOptions& options, const ColumnNames& columns) {
  if (options.texts.empty() && options.file.empty()) {
    throw CLI::ValidationError(kExpressionsOption, "give an expression, or --exprs FILE");
  }
  Result<std::vector<double>> parameters = parseNumbers(options.parameters);
  if (!parameters) throwError(showPlace(parameters.error(), options.parameters, "--params", 1));
  const auto shared = std::make_shared<const std::vector<double>>(std::move(*parameters));
  std::vector<SourceLine> list =
      options.file.empty() ? parseArguments(options.texts, options.from, columns, options.limits.max_nodes)
                           : srjit::readExpressions(options.file, options.from, columns, options.limits).value();
  if (list.empty()) refuse("{}: no expressions in it", displayName(options.file));
  for (SourceLine& line : list) {
    if (!line.ok()) report(line.expression.error());
    if (!line.values) line.values = shared;
  }
  return list;
}

ExitStatus batchStatus(const std::vector<SourceLine>& list, const ExpressionOptions& options) {
  ExitStatus worst = kDone;
  for (const SourceLine& line : list) {
    if (!line.ok()) worst = std::max(worst, exitStatus(line.expression.error().code));
  }
  return options.keep_going && worst == kBadInput ? kDone : worst;
}

CLI::Option* addLossChoice(CLI::App& app, LossKind& kind, const std::string& doc) {
  std::vector<std::pair<std::string, LossKind>> kinds;
  for (const LossInfo& info : allLosses()) {
    if (isInKernels(info.term) && !info.isScaled()) kinds.emplace_back(info.name, info.kind);
  }
  return addChoice(app, "--loss", kind, kinds, doc);
}

CLI::Option* addNanChoice(CLI::App& app, NanPolicy& policy, const std::string& doc) {
  return addNamed(app, "--nan", policy, kNanPolicies, doc);
}

void addColumnsOption(CLI::App& app, std::string& columns) {
  app.add_option("--columns", columns,
                 "names of the variables in one word, like the header line of a CSV file: mass,speed")
      ->type_name("NAME,NAME,...");
}

ColumnNames readColumns(const std::string& columns) {
  return ColumnNames(parseCsvHeader(columns, "--columns").value());
}

CLI::Option* addSimplifyOption(CLI::App& app, bool& simplify) {
  return addChoice<bool>(app, "--simplify", simplify, {{"on", true}, {"off", false}},
                         "whether expressions are simplified, or taken as they are written");
}

Pipeline readPasses(const std::string& passes, Math math) {
  const Result<Pipeline> pipeline = Pipeline::parse(passes, math);
  if (!pipeline) throwError(showPlace(pipeline.error(), passes, "--passes", 1));
  return *pipeline;
}

void addJsonOption(CLI::App& app, bool& json) { app.add_flag("--json", json, "print JSON"); }

ExitStatus writeResults(std::string_view text) {
  Result<OutputFile> out = OutputFile::create("-");
  if (!out) return report(out.error());
  out->write(text);
  const Status written = out->publish();
  return written ? kDone : report(written.error());
}

}  // namespace srjit
