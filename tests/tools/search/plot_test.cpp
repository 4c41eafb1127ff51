#include "tools/search/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "ir/text.h"
#include "tests/generators/scratch.h"

namespace srjit::search {
namespace {

using testing::HasSubstr;
using testing::Not;

Front frontOf(std::initializer_list<double> losses) {
  Front front;
  std::size_t complexity = 1;
  for (const double loss : losses) {
    EXPECT_TRUE(front.add({*Expression::create({Token::variable(0)}), complexity, loss}));
    complexity += 2;
  }
  return front;
}

std::size_t linesOf(const std::string& script, std::string_view block) {
  const std::size_t begin = script.find(std::string(block) + " << END\n");
  if (begin == std::string::npos) return 0;
  const std::string_view rows = std::string_view(script).substr(begin, script.find("\nEND\n", begin) - begin);
  return static_cast<std::size_t>(std::ranges::count(rows, '\n'));
}

/// PATH, as it was before.
class PlotPath {
 public:
  explicit PlotPath(const std::string& path) : before_(std::getenv("PATH")) { setenv("PATH", path.c_str(), 1); }
  ~PlotPath() { setenv("PATH", before_.c_str(), 1); }
  PlotPath(const PlotPath&) = delete;
  PlotPath& operator=(const PlotPath&) = delete;

 private:
  std::string before_;
};

TEST(PlotScript, DrawsLossesWithoutLogarithmBelowTheOthers) {
  const Front front = frontOf({2, 1e-3, 0});
  const std::string script = plotScript({front, "x", {}, {}});
  EXPECT_THAT(script, HasSubstr("1 2\n3 0.001\n5 0.0001\n"));
  EXPECT_THAT(script, HasSubstr("ytics add ('0' 0.0001)"));
  const Front zero = frontOf({0});
  EXPECT_THAT(plotScript({zero, "x", {}, {}}), HasSubstr("1 1e-16\n"));
  const Front positive = frontOf({2, 1e-3});
  EXPECT_THAT(plotScript({positive, "x", {}, {}}), Not(HasSubstr("ytics add")));
}

TEST(PlotScript, QuotesWhatItIsGiven) {
  const Front front;
  const std::string script = plotScript({front, "it's `a`\n!rm @x \\", {}, {}, "tar'get"});
  EXPECT_THAT(script, HasSubstr("title 'it'.\"\\047\".'s `a`\\x0a!rm @x \\' noenhanced\n"));
  EXPECT_THAT(script, HasSubstr("set xlabel 'tar'.\"\\047\".'get' noenhanced\n"));
}

TEST(PlotScript, CutsLongFormulas) {
  const Front front;
  std::string formula;
  for (int i = 0; i < 200; ++i) formula += "\u00e4";
  const std::string script = plotScript({front, formula, {}, {}});
  EXPECT_THAT(script, HasSubstr("\u00e4\u2026' noenhanced"));
  EXPECT_THAT(script, Not(HasSubstr(formula)));
}

TEST(PlotScript, DrawsRowsAtEqualDistances) {
  const Front front = frontOf({1});
  std::vector<double> target(20'000), prediction(20'000);
  for (std::size_t i = 0; i < target.size(); ++i) target[i] = prediction[i] = static_cast<double>(i);
  const std::string script = plotScript({front, "x", target, prediction});
  EXPECT_EQ(linesOf(script, "$rows"), 5'000u);
  EXPECT_THAT(script, HasSubstr("\n0 0\n4 4\n8 8\n"));
  prediction[4] = std::numeric_limits<double>::quiet_NaN();
  prediction[8] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(linesOf(plotScript({front, "x", target, prediction}), "$rows"), 4'998u);
}

TEST(Plot, IsAnSvg) {
  if (!findGnuplot()) GTEST_SKIP() << "gnuplot is not installed";
  const std::vector<double> target{1, 2, 3}, prediction{1.1, 1.9, 3.2}, huge{-1e299, 1e299, 0};
  const std::vector<double> same{5, 5, 5}, nan(3, std::numeric_limits<double>::quiet_NaN());
  for (const Front& front :
       {Front(), frontOf({0}), frontOf({1}), frontOf({2, 1e-3, 0}), frontOf({1e308, 1e-308}), frontOf({-1})}) {
    for (const std::vector<double>& values : {prediction, same, nan, huge}) {
      const Result<std::string> svg = plotSvg({front, "it's {x}^2 + \\alpha", target, values, "ma_ss"});
      ASSERT_TRUE(svg.ok()) << svg.error().message;
      EXPECT_THAT(*svg, HasSubstr("<svg"));
      EXPECT_TRUE(svg->find("</svg>") != std::string::npos);
      EXPECT_THAT(*svg, HasSubstr("it's {x}^2 + \\alpha"));
      EXPECT_THAT(*svg, HasSubstr("prediction of ma_ss"));
    }
    EXPECT_TRUE(plotSvg({front, "x", {}, {}}).ok());
  }
}

// Names come from files: nothing in them ends a string of the script or is carried out.
TEST(Plot, ShowsEveryNameAsItIs) {
  if (!findGnuplot()) GTEST_SKIP() << "gnuplot is not installed";
  const Scratch scratch;
  const std::string touched = scratch.path("touched"), command = "system(\"touch " + touched + "\")";
  const Front front = frontOf({1});
  for (const std::string& name : {std::string("'rate'"), std::string("it''s"), "a''; " + command + " #",
                                  "'" + command + "'", "`touch " + touched + "`", "a'''" + command + ".''"}) {
    const Result<std::string> svg = plotSvg({front, name.substr(0, 60), {}, {}, name});
    ASSERT_TRUE(svg.ok()) << svg.error().message;
    EXPECT_THAT(*svg, HasSubstr("<text>" + name.substr(0, 60) + "<")) << name;
    EXPECT_THAT(*svg, HasSubstr("<text>prediction of " + name + "<")) << name;
    EXPECT_FALSE(std::filesystem::exists(touched)) << name;
  }
}

TEST(Plot, TargetAndPredictionAreOfOneLength) {
  const Front front;
  const std::vector<double> target{1, 2}, prediction{1};
  const Result<std::string> svg = plotSvg({front, "x", target, prediction});
  ASSERT_FALSE(svg.ok());
  EXPECT_EQ(svg.error().code, Errc::kInvalid);
}

TEST(Plot, SaysThatGnuplotIsMissing) {
  for (const char* const path : {"", "/nowhere", "::"}) {
    const PlotPath without(path);
    const Front front;
    const Result<std::string> svg = plotSvg({front, "x", {}, {}});
    ASSERT_FALSE(svg.ok());
    EXPECT_EQ(svg.error().code, Errc::kMachine);
    EXPECT_THAT(svg.error().message, HasSubstr("gnuplot was not found"));
  }
}

// A process that ignores SIGCHLD does not learn how its children end.
TEST(Plot, NoticesFailuresWithoutAStatus) {
  const Scratch scratch;
  std::filesystem::permissions(scratch.write("gnuplot", "#!/bin/sh\necho its own words >&2\nexit 3\n"),
                               std::filesystem::perms::owner_all);
  const PlotPath with(scratch.path(""));
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const Result<std::string> answer = runGnuplot("plot x");
  std::signal(SIGCHLD, before);
  ASSERT_FALSE(answer.ok());
  EXPECT_THAT(answer.error().message, HasSubstr("its own words"));
}

TEST(Plot, GivesTheMessageOfGnuplot) {
  const Scratch scratch;
  std::filesystem::permissions(scratch.write("gnuplot", "#!/bin/sh\necho its own words >&2\nexit 3\n"),
                               std::filesystem::perms::owner_all);
  const PlotPath with(scratch.path(""));
  const Result<std::string> failed = runGnuplot("plot x\n");
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "gnuplot failed (exit status 3): its own words");
  scratch.write("gnuplot", "no program\0");
  EXPECT_FALSE(runGnuplot("plot x\n").ok());
}

// Neither a script that no one reads nor a long answer blocks, and no signal arises.
TEST(Plot, GnuplotNeedNotReadItsScript) {
  const Scratch scratch;
  std::filesystem::permissions(
      scratch.write("gnuplot", "#!/bin/sh\ni=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done\n"),
      std::filesystem::perms::owner_all);
  const PlotPath with(scratch.path(""));
  const Result<std::string> answer = runGnuplot(std::string(4'000'000, '#'));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->size(), 220'000u);
}

TEST(Plot, RealGnuplotSaysWhatIsWrong) {
  if (!findGnuplot()) GTEST_SKIP() << "gnuplot is not installed";
  const Result<std::string> failed = runGnuplot("plot nonsense(\n");
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, HasSubstr("plot nonsense( ^ line 0: invalid expression"));
}

}  // namespace
}  // namespace srjit::search
