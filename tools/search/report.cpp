#include "tools/search/report.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <llvm/Support/Program.h>

#include "ir/text/latex.h"
#include "ir/text/lexer.h"
#include "ir/text/words.h"
#include "tools/json.h"
#include "tools/search/formulas/rounding.h"

namespace srjit::search {
namespace {

/// A field of a table: in quotes where it has to be.
std::string csvField(std::string field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string quoted = "\"";
  for (const char c : field) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string exactText(double value) { return text::numberText(value, Precision::kF64); }

std::string reasonOf(int number) { return std::generic_category().message(number); }

/// A file in memory. Each stream of the child is one: unlike a pipe it can neither fill up nor break.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("srjit-gnuplot", MFD_CLOEXEC)) {}
  ~MemoryFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int descriptor() const noexcept { return descriptor_; }

  /// Writes all of it and goes back to the start; false if that fails (errno).
  bool fill(std::string_view content) const {
    while (!content.empty()) {
      const ssize_t written = ::write(descriptor_, content.data(), content.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      content.remove_prefix(static_cast<std::size_t>(written));
    }
    return lseek(descriptor_, 0, SEEK_SET) == 0;
  }

  std::string content() const {
    std::string content;
    char block[1 << 16];
    for (off_t offset = 0;;) {
      const ssize_t count = pread(descriptor_, block, sizeof block, offset);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return content;
      content.append(block, static_cast<std::size_t>(count));
      offset += count;
    }
  }

 private:
  int descriptor_;
};

/// The end of what it wrote to standard error, as one line: an error stands there.
std::string lastWords(std::string_view errors) {
  constexpr std::size_t kLongest = 400;
  std::string words;
  for (const char c : errors) {
    const bool is_space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!is_space) words += c;
    if (is_space && !words.empty() && words.back() != ' ') words += ' ';
  }
  if (words.ends_with(' ')) words.pop_back();
  return words.size() <= kLongest ? words : "..." + words.substr(words.size() - kLongest);
}

/// The status of a child when it has ended; none where another part of the process has taken it, or no one may (SIGCHLD
/// is ignored).
std::optional<int> waitFor(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return std::nullopt;
  }
  return status;
}

constexpr std::size_t kMostPoints = 5'000;
constexpr std::size_t kLongestTitle = 96;  // characters
constexpr double kLeastShown = 1e-300;
constexpr double kAxisLimit = 1e300;  // of an axis: gnuplot computes with its ends

/// The colours are of M. Okabe and K. Ito, "Color Universal Design" (2008), which is safe for colour-blind readers.
constexpr std::string_view kLook = R"(set encoding utf8
set terminal svg size 1000,470 fixed font 'Helvetica,Arial,sans-serif,14' background '#ffffff'
set border 3 lc rgb '#555555'
set tics nomirror out scale 0.6
set grid back lc rgb '#dddddd' lt 1 lw 0.7
set key bottom left samplen 1.5 spacing 1.2
set style line 1 lc rgb '#0072B2' lw 2 pt 7 ps 0.7
set style line 2 lc rgb '#D55E00' lw 2.5 pt 6 ps 1.6
set style line 3 lc rgb '#80000000' lw 1.5 dt 2
set style line 4 lc rgb '#700072B2' pt 7 ps 0.4
)";

struct AxisRange {
  double low, high;
};

/// `text` as an expression of gnuplot, which takes everything between single quotes as it is, but for the quote and the
/// line end. A quote is a string of its own: gnuplot (5.4) misreads '' next to another one.
std::string gnuplotString(std::string_view text) {
  std::string out = "'";
  for (const char c : text::printable(text)) {
    if (c == '\'') {
      out += "'.\"\\047\".'";
    } else {
      out += c;
    }
  }
  return out + '\'';
}

/// At most kLongestTitle characters of `text`.
std::string cutTitle(std::string_view text) {
  std::size_t characters = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (starts && ++characters > kLongestTitle) {
      const std::size_t end = i;
      return std::string(text.substr(0, end)) + "\u2026";
    }
  }
  return std::string(text);
}

/// Where losses are drawn that have no logarithm: at a power of ten, a decade or more below all others.
double floorOf(const Front& front) {
  double least = std::numeric_limits<double>::infinity();
  for (const Formula& formula : front.formulas()) {
    if (formula.loss > kLeastShown) least = std::min(least, formula.loss);
  }
  return std::isfinite(least) ? std::pow(10.0, std::floor(std::log10(least)) - 1) : 1e-16;
}

/// From one power of ten to another, so that an axis of logarithms has two marks at least.
AxisRange decadesAround(AxisRange values) {
  const double low = std::floor(std::log10(values.low) - 0.1), high = std::ceil(std::log10(values.high) + 0.1);
  return {std::pow(10.0, std::max(low, -305.0)), std::pow(10.0, std::min(high, 305.0))};
}

void appendFront(std::string& script, const Front& front) {
  const double floor = floorOf(front);
  const auto drawnLoss = [&](const Formula& formula) { return std::max(formula.loss, floor); };
  const std::vector<Formula>& formulas = front.formulas();
  script += "set xlabel 'complexity'\nset ylabel 'loss'\nset logscale y\nset format y '10^{%T}'\n";
  if (formulas.empty()) {
    script += "set xrange [0:10]\nset yrange [0.1:10]\nset label 1 'no formula' at graph 0.5,0.5 center\n";
    script += "plot NaN notitle\nunset label 1\n";
    return;
  }
  AxisRange losses = decadesAround({drawnLoss(formulas.back()), drawnLoss(formulas.front())});
  const bool has_floor = formulas.back().loss < floor;
  if (has_floor) losses.low = floor * 0.4;  // no mark below that of 0
  script += "$front << END\n";
  for (const Formula& formula : formulas) {
    fmt::format_to(std::back_inserter(script), "{} {}\n", formula.complexity, drawnLoss(formula));
  }
  script += "END\n";
  const std::size_t margin = 1 + (formulas.back().complexity - formulas.front().complexity) / 20;
  fmt::format_to(std::back_inserter(script), "set xrange [{}:{}]\nset yrange [{}:{}]\n",
                 static_cast<double>(formulas.front().complexity) - static_cast<double>(margin),
                 formulas.back().complexity + margin, losses.low, losses.high);
  if (has_floor) fmt::format_to(std::back_inserter(script), "set ytics add ('0' {})\n", floor);
  if (formulas.back().complexity - formulas.front().complexity < 10) script += "set xtics 1\n";
  script += "plot $front with steps ls 1 title 'Pareto front', $front with points ls 1 notitle";
  if (const Formula* const chosen = front.chosen()) {
    fmt::format_to(std::back_inserter(script),
                   ", \\\n  '+' using ({}):({}) every ::::0 with points ls 2 title 'chosen'", chosen->complexity,
                   drawnLoss(*chosen));
  }
  script += '\n';
}

/// Both ends of the axes of target and prediction.
AxisRange rangeOfRows(std::string_view rows, AxisRange values) {
  if (rows.empty()) return {0, 1};
  const double margin =
      values.high > values.low ? 0.04 * values.high - 0.04 * values.low : std::max(0.1 * std::abs(values.high), 1e-9);
  return {std::max(values.low - margin, -kAxisLimit), std::min(values.high + margin, kAxisLimit)};
}

void appendRows(std::string& script, const PlotData& data) {
  const std::size_t rows = std::min(data.target.size(), data.prediction.size());
  const std::size_t shown = std::min(rows, kMostPoints);
  AxisRange values{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  std::string points;
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t row = i * rows / shown;
    const double target = data.target[row], prediction = data.prediction[row];
    if (!(std::abs(target) < kAxisLimit && std::abs(prediction) < kAxisLimit)) continue;
    values = {std::min({values.low, target, prediction}), std::max({values.high, target, prediction})};
    fmt::format_to(std::back_inserter(points), "{} {}\n", target, prediction);
  }
  const AxisRange range = rangeOfRows(points, values);
  fmt::format_to(std::back_inserter(script),
                 "unset logscale\nset xtics autofreq\nset ytics autofreq\nset format '%g'\nset key off\nset xlabel {} "
                 "noenhanced\nset ylabel {} noenhanced\n"
                 "set xrange [{}:{}]\nset yrange [{}:{}]\n",
                 gnuplotString(data.target_name), gnuplotString("prediction of " + data.target_name), range.low,
                 range.high, range.low, range.high);
  if (points.empty()) {
    script += "set label 1 'no rows' at graph 0.5,0.5 center\nplot NaN notitle\n";
    return;
  }
  script += "$rows << END\n" + points + "END\nplot $rows with points ls 4 notitle, x with lines ls 3 notitle\n";
}

}  // namespace

std::string csvText(const Front& front, const ColumnNames& columns) {
  std::string out = "complexity,loss,held_out,evidence,bic,r2,formula\n";
  const auto cell = [](double value) { return std::isnan(value) ? "" : fmt::format("{:.6g}", value); };
  for (const Formula& formula : front.formulas()) {
    fmt::format_to(std::back_inserter(out), "{},{},{},{},{},{},{}\n", formula.complexity, exactText(formula.loss),
                   std::isnan(formula.held_out) ? "" : exactText(formula.held_out), cell(formula.evidence),
                   cell(formula.bic), cell(formula.r2), csvField(print(formula.expression, Language::kInfix, columns)));
  }
  return out;
}

std::string jsonText(const Front& front, const ColumnNames& columns, const GrammarOptions& options) {
  Json array = Json::array();
  for (const Formula& formula : front.formulas()) {
    array.push_back({{"complexity", formula.complexity},
                     {"loss", formula.loss},
                     {"held_out", formula.held_out},  // NaN and infinities become null
                     {"evidence", formula.evidence},
                     {"bic", formula.bic},
                     {"r2", formula.r2},
                     {"formula", print(formula.expression, Language::kInfix, columns)},
                     {"latex", text::latexText(formula.expression, columns)},
                     {"postfix", print(formula.expression, Language::kPostfix, columns)},
                     {"chosen", &formula == front.chosen()}});
    Json units = Json::array(), constants = Json::array();
    for (const Token& token : formula.expression.tokens()) {
      const auto physical = token.kind == Token::Kind::kConstant ? physicalNear(token.value, 0) : std::nullopt;
      if (physical) constants.push_back({{"value", token.value}, {"name", physical->name}});
    }
    if (options.codata) array.back()["constants"] = constants;
    if (!options.units) continue;
    for (const auto& unit : options.units->ofConstants(formula.expression))
      units.push_back(unit ? Json(*unit) : Json());
    array.back()["units"] = units;
  }
  return dump(array);
}

std::string latexTable(const Front& front, const ColumnNames& columns) {
  std::string out = "\\begin{tabular}{rrl}\n\\hline\nComplexity & Loss & Formula \\\\\n\\hline\n";
  for (const Formula& formula : front.formulas()) {
    fmt::format_to(std::back_inserter(out), "{} & ${}$ & $\\displaystyle {}$ \\\\\n", formula.complexity,
                   text::latexNumber(fmt::format("{:.3g}", formula.loss)),
                   text::latexText(formula.expression, columns));
  }
  return out + "\\hline\n\\end{tabular}\n";
}

Result<std::string> findGnuplot() {
  const llvm::ErrorOr<std::string> program = llvm::sys::findProgramByName("gnuplot");
  if (program) return *program;
  return Error{
      Errc::kMachine, "gnuplot was not found; plots need it: install it (Debian's package is gnuplot-nox)", {}};
}

Result<std::string> runGnuplot(std::string_view script) {
  const Result<std::string> program = findGnuplot();
  if (!program) return program.error();
  const MemoryFile in, out, err;
  if (in.descriptor() < 0 || out.descriptor() < 0 || err.descriptor() < 0 || !in.fill(script)) {
    return Error{Errc::kMachine, fmt::format("cannot keep what gnuplot reads and writes: {}", reasonOf(errno)), {}};
  }
  std::string name = "gnuplot", defaults = "-d";
  char* const arguments[] = {name.data(), defaults.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.descriptor(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.descriptor(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.descriptor(), STDERR_FILENO);
  pid_t child = 0;
  const int code = posix_spawn(&child, program->c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code != 0) {
    return Error{Errc::kMachine, fmt::format("cannot start {}: {}", *program, reasonOf(code)), {}};
  }
  const std::optional<int> status = waitFor(child);
  const std::string words = lastWords(err.content());
  // Where the status is not known, only words tell of a failure.
  if (status ? *status != 0 : !words.empty()) {
    const std::string ending = !status                ? "no status"
                               : WIFSIGNALED(*status) ? fmt::format("signal {}", WTERMSIG(*status))
                                                      : fmt::format("exit status {}", WEXITSTATUS(*status));
    return Error{Errc::kMachine, fmt::format("gnuplot failed ({}): {}", ending, words), {}};
  }
  return out.content();
}

std::string plotScript(const PlotData& data) {
  std::string script(kLook);
  script += "set multiplot layout 1,2 title " + gnuplotString(cutTitle(data.formula)) + " noenhanced\n";
  appendFront(script, data.front);
  appendRows(script, data);
  return script + "unset multiplot\n";
}

Result<std::string> plotSvg(const PlotData& data) {
  if (data.target.size() != data.prediction.size()) {
    return Error{Errc::kInvalid,
                 fmt::format("{} predictions for {} rows of the target", data.prediction.size(), data.target.size()),
                 {}};
  }
  return runGnuplot(plotScript(data));
}

}  // namespace srjit::search
