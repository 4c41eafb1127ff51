// Options of `sr-jit search` that change what is found or shown: each test fails if its option has no effect.
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/tools/search/small_command.h"
#include "tools/search/report/gnuplot.h"

namespace srjit {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

std::string lastLineOf(const std::string& text) { return text.substr(text.rfind('\n', text.size() - 2) + 1); }

/// The front that a search of the rows writes, as CSV.
std::string frontOf(const std::string& table, const std::vector<std::string>& options) {
  const Scratch scratch;
  scratch.write("table.csv", table);
  const Outcome outcome = runCommand(commandOf(options), scratch.path("."));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("complexity,loss,held_out,formula\n1,"));
  return outcome.out;
}

// --- the picture

struct Tag {
  std::string name;
  std::string words;  ///< what follows the name
};

/// The tags of an XML text, in order. Fails the test where they do not nest, or something follows the root.
std::vector<Tag> tagsOf(const std::string& text) {
  std::vector<Tag> tags;
  std::vector<std::string> open;
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    const std::size_t end = text.find('>', at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "a tag without an end";
      break;
    }
    const std::string tag = text.substr(at + 1, end - at - 1);
    if (tag.starts_with('?') || tag.starts_with('!')) continue;
    EXPECT_EQ(tag.find('<'), std::string::npos) << tag;
    if (tag.starts_with('/')) {
      EXPECT_FALSE(open.empty() || open.back() != tag.substr(1)) << tag;
      if (!open.empty()) open.pop_back();
      continue;
    }
    EXPECT_TRUE(tags.empty() || !open.empty()) << "a second root";
    const std::string name = tag.substr(0, tag.find_first_of(" \n\t/"));
    if (!tag.ends_with('/')) open.push_back(name);
    tags.push_back({name, tag.substr(name.size())});
  }
  EXPECT_TRUE(open.empty());
  return tags;
}

/// Points of gnuplot's plot of this name: where they are.
std::vector<std::array<double, 2>> pointsOf(const std::vector<Tag>& tags, const std::string& plot) {
  std::vector<std::array<double, 2>> points;
  bool is_inside = false;
  for (const Tag& tag : tags) {
    if (tag.name == "g" && tag.words.find("id=\"") != std::string::npos) {
      is_inside = tag.words.find('"' + plot + '"') != std::string::npos;
    }
    const std::size_t place = tag.words.find("translate(");
    if (!is_inside || tag.name != "use" || place == std::string::npos) continue;
    std::size_t used = 0;
    const std::string numbers = tag.words.substr(place + 10);
    const double x = std::stod(numbers, &used);
    points.push_back({x, std::stod(numbers.substr(used + 1))});
  }
  return points;
}

TEST(SearchCommandPlot, HasTheFrontAndThePredictionOfEveryRow) {
  if (!search::findGnuplot()) GTEST_SKIP() << "gnuplot is not installed";
  const Scratch scratch;
  scratch.write("table.csv", tableOf(true));
  const Outcome outcome = runCommand(commandOf({"--plot", "front.svg", "--json"}), scratch.path("."));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json front = json::parse(outcome.out);
  const std::string svg = contentOf(scratch.path("front.svg"));
  const std::vector<Tag> tags = tagsOf(svg);
  ASSERT_FALSE(tags.empty());
  EXPECT_EQ(tags[0].name, "svg");
  const auto chosen = std::ranges::find_if(front, [](const json& formula) { return formula.at("chosen") == true; });
  ASSERT_NE(chosen, front.end());
  EXPECT_THAT(svg, HasSubstr("<text>" + chosen->at("formula").get<std::string>() + "<"));
  EXPECT_THAT(svg, HasSubstr("<text>prediction of energy<"));
  // Complexities grow to the right, and losses fall.
  const auto points = pointsOf(tags, "gnuplot_plot_2a");
  ASSERT_EQ(points.size(), front.size());
  const auto complexity = [&](std::size_t i) { return front[i].at("complexity").get<double>(); };
  const double scale = (points.back()[0] - points[0][0]) / (complexity(front.size() - 1) - complexity(0));
  EXPECT_GT(scale, 0);
  for (std::size_t i = 1; i < points.size(); ++i) {
    EXPECT_NEAR(points[i][0] - points[0][0], scale * (complexity(i) - complexity(0)), 0.02);
    EXPECT_GT(points[i][1], points[i - 1][1]);
  }
  // The law is found, so all rows lie on a line, the energy's range apart.
  const auto rows = pointsOf(tags, "gnuplot_plot_1b");
  ASSERT_EQ(rows.size(), 200U);
  const auto [least, most] = std::ranges::minmax_element(rows);
  EXPECT_GT((*most)[0] - (*least)[0], 200);
  for (const auto& [x, y] : rows) {
    EXPECT_NEAR((y - (*least)[1]) / ((*most)[1] - (*least)[1]), (x - (*least)[0]) / ((*most)[0] - (*least)[0]), 1e-3);
  }
}

// --- what is searched

// A third of the rows have another law, and no weight.
TEST(SearchCommandOptions, WeightsChooseTheRowsThatCount) {
  std::string table = "mass,speed,weight,energy\n";
  for (int i = 0; i < 150; ++i) {
    const double mass = 1 + 0.013 * i, speed = 1 + std::fmod(0.37 * i, 3.0);
    const bool is_other = i % 3 == 0;
    table += fmt::format("{},{},{},{}\n", mass, speed, is_other ? 0 : 1 + i % 2,
                         is_other ? 100 - 7 * speed : 0.5 * mass * speed);
  }
  const std::vector<std::string> options = {"--ops", "add,sub,mul", "--generations", "10"};
  std::vector<std::string> weighted = options;
  weighted.insert(weighted.end(), {"--weights", "weight"});
  const std::string front = frontOf(table, weighted);
  EXPECT_THAT(lastLineOf(front), MatchesRegex("5,[0-9.e-]+,,0\\.5 \\* \\((mass \\* speed|speed \\* mass)\\)\n"));
  EXPECT_THAT(front, Not(HasSubstr("weight"))) << "it is no variable";
  EXPECT_THAT(lastLineOf(frontOf(table, options)),
              Not(MatchesRegex(".*,0\\.5 \\* \\((mass \\* speed|speed \\* mass)\\)\n")));
}

TEST(SearchCommandOptions, AnAbsoluteLossIsNotLedByOutliers) {
  std::string table = "mass,speed,energy\n";
  for (int i = 0; i < 150; ++i) {
    const double mass = 1 + 0.013 * i, speed = 1 + std::fmod(0.37 * i, 3.0);
    table += fmt::format("{},{},{}\n", mass, speed, i % 10 == 0 ? 30.0 + i % 7 : mass + speed);
  }
  const auto search = [&](const std::string& loss) {
    return frontOf(table, {"--ops", "add,sub,mul", "--generations", "10", "--loss", loss});
  };
  const std::string mae = search("mae");
  EXPECT_THAT(mae, testing::ContainsRegex("\n3,[0-9.]+,,(mass \\+ speed|speed \\+ mass)\n"));
  EXPECT_EQ(search("abs(f - y)"), mae) << "the same loss as an expression";
  EXPECT_THAT(search("mse"), Not(testing::ContainsRegex(",(mass \\+ speed|speed \\+ mass)\n")));
}

bool hasSineWithinSine(const std::string& text) {
  int depth = 0;
  std::vector<int> sines;  // depths of the open ones
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 4, "sin(") == 0 && (i == 0 || text[i - 1] != 'a')) {
      if (!sines.empty()) return true;
      sines.push_back(depth);
    }
    if (text[i] == '(') ++depth;
    if (text[i] == ')' && --depth >= 0 && !sines.empty() && sines.back() == depth) sines.pop_back();
  }
  return false;
}

// The law is a sine within a sine.
TEST(SearchCommandOptions, NestingDecidesWhatStandsWithinASine) {
  std::string table = "x,energy\n";
  for (int i = 0; i < 200; ++i) table += fmt::format("{},{}\n", 0.02 * i, std::sin(0.02 * i + 2 * std::sin(0.02 * i)));
  const auto search = [&](std::vector<std::string> more) {
    std::vector<std::string> options = {"--ops", "add,mul,sin", "--generations", "6"};
    options.insert(options.end(), more.begin(), more.end());
    return frontOf(table, options);
  };
  const std::string usual = search({}), nested = search({"--self-nesting"});
  // The law, but for rounding.
  EXPECT_THAT(nested, testing::ContainsRegex("\n[0-9]+,[0-9.]+e-[23][0-9],,[^\n]*sin\\([^\n]*sin\\("));
  EXPECT_TRUE(hasSineWithinSine(nested));
  EXPECT_FALSE(hasSineWithinSine(usual)) << usual;
  EXPECT_EQ(search({"--self-nesting", "--nesting", "sin:sin:0"}), usual);
  EXPECT_EQ(search({"--self-nesting", "--nesting", "sin:sin:1"}), nested);
}

// --- the line of progress

/// A terminal of 200 columns, whose other side a test reads.
class Terminal {
 public:
  Terminal() : own_(posix_openpt(O_RDWR | O_NOCTTY)) {
    if (own_ < 0 || grantpt(own_) != 0 || unlockpt(own_) != 0) return;
    other_ = open(ptsname(own_), O_RDWR | O_NOCTTY);
    const winsize size{.ws_row = 24, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
    ioctl(other_, TIOCSWINSZ, &size);
  }
  ~Terminal() {
    close(other_);
    close(own_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  int descriptor() const { return other_; }
  /// Whether all that was written matches, within half a minute.
  bool shows(const testing::Matcher<const std::string&>& wanted) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!wanted.Matches(written_) && std::chrono::steady_clock::now() < deadline) {
      pollfd ready{.fd = own_, .events = POLLIN, .revents = 0};
      std::array<char, 4096> some{};
      if (poll(&ready, 1, 30'000) <= 0) return false;
      const ssize_t count = read(own_, some.data(), some.size());
      if (count <= 0) return false;
      written_.append(some.data(), static_cast<std::size_t>(count));
    }
    return wanted.Matches(written_);
  }
  const std::string& written() const { return written_; }

 private:
  int own_, other_ = -1;
  std::string written_;
};

TEST(SearchCommandSlow, ATerminalShowsTheBestFormulaSoFar) {
  Terminal terminal;
  ASSERT_GE(terminal.descriptor(), 0);
  const Scratch scratch;
  scratch.write("table.csv", tableOf(false));
  RunningSearch running(scratch, terminal.descriptor());
  // The first formulas may be constants.
  ASSERT_TRUE(
      terminal.shows(testing::ContainsRegex("\r[0-9]+ s, [0-9.e+]+ trees, [0-9]+ formulas, loss [0-9.e+-]+: "
                                            "[^\r]*(mass|speed)[^\r]*\x1b\\[K")))
      << terminal.written();
  EXPECT_EQ(running.end(SIGTERM), 0);
  ASSERT_TRUE(terminal.shows(HasSubstr("; stopped"))) << terminal.written();
  EXPECT_THAT(terminal.written(), HasSubstr("\r\x1b[Ksr-jit: ")) << "the line is cleared before the summary";
  EXPECT_THAT(contentOf(scratch.path("front.csv")), StartsWith("complexity,loss,held_out,formula\n1,"));
}

}  // namespace
}  // namespace srjit
