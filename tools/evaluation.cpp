#include "tools/evaluation.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "ir/numbers/rounding.h"
#include "ir/text/lexer.h"
#include "runtime/platform/clock.h"
#include "tools/files/read.h"
#include "tools/progress.h"
#include "tools/report.h"

namespace srjit {
namespace {

/// How many expressions make one part: enough to keep all threads, or a GPU, busy, few enough for the progress to move.
std::size_t partSize(std::size_t rows, bool gpu) {
  const std::size_t cells = std::size_t{1} << (gpu ? 31 : 28);
  return std::clamp<std::size_t>(cells / rows, 64, gpu ? 65536 : 4096);
}

/// What evaluated the expressions, as ", interpreted" or ", 12 compiled, 3 interpreted". Empty if none was: fits and
/// losses of graphs evaluate other expressions, which are derived of these.
std::string servedWords(const ServedExpressions& served) {
  const std::pair<std::size_t, const char*> parts[] = {
      {served.compiled, "compiled"}, {served.direct, "direct code"}, {served.interpreted, "interpreted"}};
  const std::size_t all = served.compiled + served.direct + served.interpreted;
  std::string words;
  for (const auto& [count, word] : parts) {
    if (count == 0) continue;
    if (count == all) return fmt::format(", {}", word);
    words += fmt::format(", {} {}", count, word);
  }
  return words;
}

void add(ServedExpressions& sum, const ServedExpressions& part) {
  sum.interpreted += part.interpreted;
  sum.direct += part.direct;
  sum.compiled += part.compiled;
}

/// Refuses a name of the output that says another form than what will be in it.
void checkOutName(const EvaluationOptions& options, bool writes_npy) {
  const std::string& out = options.out;
  const char* form = options.json ? "JSON" : "CSV";
  if (out.ends_with(".gz") || out.ends_with(".xz")) {
    throw CLI::ValidationError("--out", out + ": output is not compressed, so give another name");
  }
  if ((out.ends_with(".npy") && (options.json || !writes_npy)) || (out.ends_with(".csv") && options.json)) {
    throw CLI::ValidationError("--out", out + ": the output is " + form + ", so give another name");
  }
}

/// Makes it an error of the line if f32 has a constant or a parameter only as 0 or infinity.
void checkNumbers(SourceLine& line) {
  std::vector<double> numbers(line.parameters().begin(), line.parameters().end());
  for (const Token& token : line.expression->tokens()) {
    if (token.kind == Token::Kind::kConstant) numbers.push_back(token.value);
  }
  for (const double number : numbers) {
    const auto rounded = static_cast<double>(static_cast<float>(number));
    if (number == rounded || !(rounded == 0 || std::isinf(rounded))) continue;
    return line.fail({Errc::kInvalid, fmt::format("the number {} is {} in f32: choose f64", number, rounded), {}});
  }
}

/// One character, no digit, letter, quote or sign.
void addCharacter(CLI::App& app, const std::string& name, char& character, const std::string& help) {
  app.add_option_function<std::string>(
         name,
         [&character, name](const std::string& text) {
           constexpr std::string_view kOthers = "\"'+-\r\n";
           const std::string_view given = text == "tab" ? std::string_view("\t") : text;
           const bool is_one = given.size() == 1 && std::isalnum(static_cast<unsigned char>(given[0])) == 0;
           if (!is_one || kOthers.find(given[0]) != std::string_view::npos) {
             throw CLI::ValidationError(name, text + ": expected one character, no digit, letter, quote or sign");
           }
           character = given[0];
         },
         help)
      ->type_name("CHARACTER")
      ->default_str(std::string(1, character));
}

void checkForm(const CsvForm& form) {
  if (form.delimiter != form.decimal) return;
  throw CLI::ValidationError(
      "--decimal", std::string(1, form.decimal) + ": the same as between cells; expected another --delimiter, as ';'");
}

}  // namespace

void addDataOptions(CLI::App& app, EvaluationOptions& options) {
  app.add_option("--data", options.data,
                 "the data: CSV with a header line, or .npy; .gz and .xz too; - is standard input")
      ->type_name("FILE")
      ->required();
  addCharacter(app, "--delimiter", options.form.delimiter, "what is between the cells of a CSV file; or 'tab'");
  addCharacter(app, "--decimal", options.form.decimal, "what is before the digits of a fraction in a CSV file");
  app.add_option("--ignore", options.form.ignored, "a column that is not read, as one of texts; again for another")
      ->type_name("NAME")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--target", options.target, "the target column; it is no variable (.npy columns are called 0, 1, ...)")
      ->type_name("NAME");
  app.add_option("--weights", options.weights, "the column of row weights; it is no variable")->type_name("NAME");
  addEngineOptions(app, options.engine);
  app.add_flag("--quiet", options.quiet, "print nothing but results and errors");
}

void addDropMissingOption(CLI::App& app, EvaluationOptions& options) {
  options.form.missing = MissingCells::kDroppable;
  app.add_flag_callback(
      "--drop-missing", [&options] { options.form.missing = MissingCells::kRead; },
      "leave out rows in which a column, the target or the weights are nan, NA, N/A, NULL or empty");
}

void addOutOption(CLI::App& app, std::string& out) {
  app.add_option("-o,--out", out, "write to FILE, which appears only when complete")
      ->type_name("FILE")
      ->default_str("standard output");
}

void addEvaluationOptions(CLI::App& app, EvaluationOptions& options) {
  addExpressionOptions(app, options.expressions);
  addDataOptions(app, options);
  addOutOption(app, options.out);
  CLI::Option* const passes =
      app.add_option("--passes", options.passes, "the passes to run instead of the standard ones, as simplify,fma")
          ->type_name("LIST");
  addSimplifyOption(app, options.simplify)->excludes(passes);
}

std::vector<std::size_t> Evaluation::good() const {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].ok()) indices.push_back(i);
  }
  return indices;
}

Batch Evaluation::batchOf(std::span<const std::size_t> indices) const {
  Batch batch;
  for (const std::size_t index : indices) {
    const SourceLine& line = lines[index];
    batch.expressions.push_back(*line.expression);
    batch.parameters.insert(batch.parameters.end(), line.parameters().begin(), line.parameters().end());
  }
  return batch;
}

std::size_t tellNotices(std::span<const std::string> notices, std::size_t told) {
  for (std::size_t i = told; i < notices.size(); ++i) tell(fmt::format("sr-jit: {}\n", text::printable(notices[i])));
  return notices.size();
}

void noticeCacheFault(const Engine& engine) {
  const std::string fault = engine.cacheStats().disk_fault;
  if (!fault.empty()) tell(fmt::format("sr-jit: {}\n", text::printable(fault)));
}

DataView viewOf(const Roles& roles) {
  DataView view;
  view.columns.assign(roles.variables.begin(), roles.variables.end());
  if (!roles.target.empty()) view.target = roles.target;
  if (!roles.weights.empty()) view.weights = roles.weights;
  view.names = ColumnNames(roles.names, roles.others);
  return view;
}

DataTable readTable(const EvaluationOptions& options) {
  checkForm(options.form);
  DataTable table = readData(options.data, options.expressions.limits.max_bytes, options.form).value();
  if (options.form.missing != MissingCells::kRead) return table;
  const std::string name = displayName(options.data);
  const std::size_t all = table.rows(), dropped = dropMissing(table);
  if (dropped == all) refuse("{}: --drop-missing leaves no row: each of {} has a missing value", name, all);
  if (dropped > 0 && !options.quiet) {
    tell(fmt::format("sr-jit: {}: {} of {} rows left out, since they have missing values\n", name, dropped, all));
  }
  return table;
}

LoadedData loadData(const EvaluationOptions& options) {
  const Engine engine = Engine::create(options.engine).value();
  std::size_t notices = 0;
  if (!options.quiet) {
    notices = tellNotices(engine.notices());
    noticeCacheFault(engine);
  }
  DataTable table = readTable(options);
  // Roles hold spans into the columns, whose storage stays where it is when the table moves.
  Roles roles = assignRoles(table, options.target, options.weights).value();
  const Result<Dataset> data = engine.upload(viewOf(roles));
  if (!data) {
    const auto has_nan = [](std::span<const double> column) {
      return std::ranges::any_of(column, [](double value) { return std::isnan(value); });
    };
    const bool can_drop =
        options.form.missing == MissingCells::kDroppable && (has_nan(roles.target) || has_nan(roles.weights));
    Error error = data.error();
    error.message = fmt::format("{}: {}{}", displayName(options.data), error.message,
                                can_drop ? "; --drop-missing leaves out rows with missing values" : "");
    throwError(error);
  }
  return {std::move(table), std::move(roles), engine, *data, notices};
}

void checkStandardInput(const std::string& data, const ExpressionOptions& expressions) {
  if (data == "-" && expressions.file == "-") {
    throw CLI::ValidationError("--data", "data and expressions cannot both come from standard input");
  }
}

Evaluation prepare(const EvaluationOptions& options, bool writes_npy) {
  checkOutName(options, writes_npy);
  checkStandardInput(options.data, options.expressions);
  CompileOptions compile{.simplify = options.simplify};
  if (!options.passes.empty()) compile.pipeline = readPasses(options.passes, options.engine.math);
  LoadedData loaded = loadData(options);
  const ColumnNames columns = viewOf(loaded.roles).names;
  std::vector<SourceLine> lines = readExpressions(options.expressions, columns);
  for (SourceLine& line : lines) {
    if (line.ok() && options.default_parameter && (!line.values || line.values->empty())) {
      line.values =
          std::make_shared<const std::vector<double>>(line.expression->parameterCount(), *options.default_parameter);
    }
    if (!line.ok()) continue;
    if (requireInputs(line, loaded.roles.variables.size(), columns) && options.engine.precision == Precision::kF32) {
      checkNumbers(line);
    }
    if (!line.ok()) report(line.expression.error());
  }
  compile.expected_rows = loaded.data.rows();
  return {std::move(loaded), std::move(lines), std::move(compile)};
}

void evaluateInParts(Evaluation& evaluation, const EvaluationOptions& options, const EvaluationStep& step) {
  const Stopwatch watch;
  const std::vector<std::size_t> good = evaluation.good();
  const std::size_t rows = evaluation.data.rows();
  const std::string& device = evaluation.engine.options().device;
  Progress progress("evaluating", good.size(), options.quiet);
  ServedExpressions served;
  for (std::size_t begin = 0; begin < good.size();) {
    const std::size_t count =
        std::min(ceilDivide(partSize(rows, device != "cpu"), evaluation.copies), good.size() - begin);
    const std::span<const std::size_t> part(good.data() + begin, count);
    const Batch batch = evaluation.batchOf(part);
    const Program program = evaluation.engine.compile(batch.expressions, evaluation.compile);
    const std::vector<Failure> failures = step(program, part, batch.parameters);
    add(served, program.status().served);
    if (!failures.empty()) progress.hide();
    for (const Failure& failed : failures) {
      SourceLine& line = evaluation.lines[part[failed.expression]];
      line.fail(failed.error);
      report(line.expression.error());
    }
    begin += count;
    progress.advance(count);
  }
  progress.hide();
  if (options.quiet) return;
  evaluation.notices = tellNotices(evaluation.engine.notices(), evaluation.notices);
  if (good.empty()) return;
  tell(fmt::format("sr-jit: {} expression{} x {} rows{} on {}, in {:.3g} s\n", good.size(), good.size() == 1 ? "" : "s",
                   rows, servedWords(served), device, watch.seconds()));
}

std::string validRowsText(std::uint64_t rows, const char* open) {
  return rows == Losses::kNotCounted ? open : std::to_string(rows);
}

ExitStatus writeEvaluation(Evaluation& evaluation, const EvaluationOptions& options,
                           const std::function<void(OutputFile& out)>& write) {
  if (!evaluation.good().empty() || options.expressions.keep_going) {
    OutputFile out = OutputFile::create(options.out).value();
    write(out);
    out.publish().value();
  }
  return batchStatus(evaluation.lines, options.expressions);
}

}  // namespace srjit
