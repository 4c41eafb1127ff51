// Every kind of bad input has its exit status and a message with the position, and writes nothing.
#include <gmock/gmock.h>

#include "tests/tools/process.h"

namespace srjit {
namespace {

using testing::HasSubstr;

struct BadInput {
  const char* name;
  std::vector<std::string> arguments;
  int status;
  const char* message;  ///< part of standard error
};

void PrintTo(const BadInput& input, std::ostream* stream) { *stream << input.name; }

/// `loss EXPRESSION --data FILE ...` that writes out.csv.
std::vector<std::string> loss(const std::string& expression, const std::string& data,
                              std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"loss", expression, "--data", data, "--out", "out.csv"};
  if (std::ranges::find(more, "--target") == more.end()) more.insert(more.end(), {"--target", "y"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<std::string> exprs(const std::string& file) {
  return {"run", "--exprs", file, "--data", "good.csv", "--out", "out.csv"};
}

class BadInputs : public testing::TestWithParam<BadInput> {};

const BadInput kInputs[] = {
    // Expressions
    {"OperandMissing", loss("x0 + * 2", "good.csv"), 1,
     "expression 1:1:6: expected an operand before '*'\nx0 + * 2\n     ^"},
    {"ParenthesisOpen", loss("sin(x0", "good.csv"), 1, "expression 1:1:7: "},
    {"UnknownWord", loss("x0 + speed", "good.csv"), 1, "expression 1:1:6: "},
    {"UnknownName", loss("x0 + foo", "good.csv"), 1,
     "expression 1:1:6: unknown name 'foo'; expected x<i>, p<j>, a column name, pi, inf, nan or a function; the "
     "columns "
     "are a, b\n"},
    {"UnknownFunction", loss("gamma(x0)", "good.csv"), 1, "expression 1:1:1: "},
    {"TooFewArguments", loss("atan2(x0)", "good.csv"), 1, "expression 1:1:"},
    {"BadNumber", loss("x0 + 1e400", "good.csv"), 1, "expression 1:1:6: "},
    {"EmptyExpression", loss("", "good.csv"), 1, "expression 1:1:1: "},
    {"StrayByte", loss("x0 \x01 1", "good.csv"), 1, "expression 1:1:4: "},
    {"PostfixLeftOver", {"parse", "--from", "postfix", "x0 x1"}, 1, "expression 1:1:"},
    {"PrefixEndsEarly", {"parse", "--from", "prefix", "+ x0"}, 1, "expression 1:1:5: "},
    {"JsonBroken", {"parse", "--from", "json", "{\"op\": \"add\", \"args\": [1]"}, 1, "expression 1:1:"},
    {"VariableBeyondData", loss("x0*x9", "good.csv"), 1,
     "expression 1:1:4: variable x9, but the data has 2 variables: a, b\nx0*x9\n   ^~"},
    {"TargetInExpression", loss("a + y", "good.csv"), 1,
     "expression 1:1:5: 'y' is the target column, not a variable\na + y\n    ^"},
    {"WeightsInExpression", loss("`b`", "good.csv", {"--weights", "b"}), 1,
     "expression 1:1:1: 'b' is the weights column, not a variable\n`b`\n^~~"},
    {"IndexBesideNames",
     {"run", "x0*x1", "--data", "indices.csv", "--target", "y", "--out", "out.csv"},
     1,
     "expression 1:1:1: 'x0' names no column; since columns are called x1, x2, words of this form are names; the "
     "columns are x1, x2; x[0] is the first column\nx0*x1\n^~"},
    {"TargetWithTheNameOfAnIndex", loss("x0 + x1", "places.csv", {"--target", "x1"}), 1,
     "expression 1:1:6: 'x1' is the target column, not a variable\nx0 + x1\n     ^~"},
    {"ParametersTooMany", loss("p0\t1 2", "good.csv"), 1,
     "expression 1:1:6: 2 parameters are given, but the expression has p0 only"},
    {"ParametersTooSmall", loss("p0", "good.csv", {"--params", "1e-400"}), 1,
     "--params:1:1: parameter '1e-400' is out of the range of a double, 4.9e-324 to 1.8e308"},
    {"ParameterMissing", loss("p0 + p1\t1.5", "good.csv"), 1, "expression 1:1:6: parameter p1, but one is given"},
    {"ParameterNoNumber", loss("p0\t1.5,2", "good.csv"), 1,
     "expression 1:1:4: parameter '1.5,2' is not a number; separate them by spaces"},
    {"ParamsOptionNoNumber", loss("p0", "good.csv", {"--params", "1 two"}), 1,
     "--params:1:3: parameter 'two' is not a number\n"},
    {"LossOfAColumn", loss("a", "good.csv", {"--loss", "x0"}), 1,
     "--loss:1:1: 'x0' in a loss; expected f for the prediction, y for the target or w for the weight\nx0\n^~"},
    {"IndexTooLarge", loss("x99999999", "good.csv"), 1, "expression 1:1:1: "},
    // Files of expressions
    {"LineOfFile", exprs("bad.txt"), 1, "bad.txt:3:4: "},
    {"NoExpressions", exprs("comments.txt"), 1, "comments.txt: no expressions in it"},
    {"ExpressionsMissing", exprs("none.txt"), 1, "cannot read none.txt: No such file or directory"},
    {"ExpressionsCutXz", exprs("cut.xz"), 1, "cut.xz: the xz archive is damaged or cut short"},
    {"ExpressionsNotGzip", exprs("plain.gz"), 1, "plain.gz: not a gzip archive"},
    // Data
    {"DataMissing", loss("x0", "none.csv"), 1, "cannot read none.csv: No such file or directory"},
    {"DataWithoutName", loss("x0", ""), 1, "cannot read '': No such file or directory"},
    {"DataFolder", loss("x0", "."), 1, "cannot read .: Is a directory"},
    {"DataDevice", loss("x0", "/dev/full"), 1, "cannot read /dev/full: a device without an end\n"},
    {"DataEmptyDevice", loss("x0", "/dev/null"), 1, "/dev/null:1:1: the file is empty"},
    {"DataEmpty", loss("x0", "empty.csv"), 1, "empty.csv:1:1: the file is empty"},
    {"DataHeaderOnly", loss("x0", "header.csv"), 1, "header.csv:2:1: the file has a header, but no rows"},
    {"DataNoHeader", loss("x0", "noheader.csv"), 1, "noheader.csv:1:1: the first line must name the columns"},
    {"DataWord", loss("x0", "word.csv"), 1, "word.csv:3:3: 'oops' is not a number (column 'b')\n3,oops,5\n  ^~~~"},
    {"DataEmptyCell", loss("x0", "hole.csv"), 1,
     "hole.csv:2:3: empty cell in column 'b'; --drop-missing leaves out rows with missing values\n1,,3\n  ^"},
    {"DataBlankRow",
     {"run", "a", "--data", "blank.csv", "--out", "out.csv"},
     1,
     "blank.csv:3:1: empty cell in column 'a'\n\n^"},
    {"DataTooSmall", loss("a", "small.csv"), 1,
     "small.csv:2:1: '1e-400' is out of the range of a double, 4.9e-324 to 1.8e308 (column 'a')"},
    {"DataBeyondF32", loss("a", "beyond.csv"), 1,
     "beyond.csv: column 'b' (x1) has -2e+39 in row 1, which is beyond the range of f32: choose f64, or another unit"},
    {"DataBelowF32", loss("a", "below.csv"), 1,
     "below.csv: the target has 3e-50 in row 1, and all of its numbers are below the normal range of f32: choose f64, "
     "or "
     "another unit"},
    {"DataRaggedLong", loss("x0", "long.csv"), 1, "long.csv:2:7: a cell too many"},
    {"DataRaggedShort", loss("x0", "short.csv"), 1, "short.csv:2:4: the line ends after 2 cells"},
    {"DataSameNames", loss("x0", "twice.csv"), 1, "twice.csv:1:3: a second column called 'a'"},
    {"DataQuoteOpen", loss("x0", "quote.csv"), 1, "quote.csv:"},
    {"NpyCut", loss("x0", "cut.npy", {"--target", "0"}), 1,
     "cut.npy: shape (2, 2) of 8-byte elements does not fit the 31 bytes"},
    {"NpyComplex", loss("x0", "complex.npy", {"--target", "0"}), 1, "complex.npy: elements of type '<c16'"},
    {"NpyNot", loss("x0", "text.npy", {"--target", "0"}), 1, "text.npy: not an .npy file"},
    // Columns
    {"TargetUnknown", loss("x0", "good.csv", {"--target", "z"}), 1,
     "target column 'z' is not in the data; its columns are a, b, y"},
    {"WeightsUnknown", loss("x0", "good.csv", {"--weights", "z"}), 1,
     "weights column 'z' is not in the data; its columns are a, b, y"},
    {"WeightsNegative", loss("x0", "negative.csv", {"--weights", "b"}), 1,
     "negative.csv: weight -2 in row 1, expected"},
    // Passes
    {"PassUnknown", {"passes", "--passes", "hoist,melt", "x0"}, 1, "--passes:1:7: "},
    {"PassNotRun",
     {"passes", "--passes", "hoist", "--print-after", "fma", "x0"},
     1,
     "--print-after 'fma': no such pass runs; these do: hoist"},
    // Places to write
    {"OutFolderMissing",
     {"run", "x0", "--data", "good.csv", "--out", "no/out.csv"},
     1,
     "cannot write no/out.csv: No such file or directory"},
    {"OutFull",
     {"run", "x0", "--data", "good.csv", "--out", "/dev/full"},
     1,
     "cannot write /dev/full: No space left on device"},
    // Usage
    {"NoCommand", {}, 2, "sr-jit: A subcommand is required"},
    {"UnknownCommand", {"frobnicate"}, 2, "unknown command 'frobnicate'; there are ops, parse,"},
    {"UnknownOption", loss("x0", "good.csv", {"--speed"}), 2, "unknown option '--speed'\n"},
    {"UnknownOptionBeforeRequired", {"run", "--nope"}, 2, "unknown option '--nope'\n"},
    {"UnknownOptionBeforeTarget",
     {"loss", "x0", "--data", "good.csv", "-z"},
     2,
     "unknown option '-z'; put -- before an expression that starts with a minus sign\n"},
    {"ExpressionWithMinus",
     {"parse", "-x0"},
     2,
     "sr-jit: unknown option '-x0'; put -- before an expression that starts with a minus sign\n"},
    {"NoExpressionWithMinus", {"doctor", "-x0"}, 2, "sr-jit: unknown option '-x0'\n"},
    {"UnknownOptionBeforeOut", {"cubin", "x0", "--nope"}, 2, "unknown option '--nope'\n"},
    {"UnknownOptionBeforeAction", {"cache", "--nope=3"}, 2, "unknown option '--nope=3'\n"},
    {"UnknownOptionBeforeExcluded",
     {"llvm", "x0", "--host", "--arch", "sm_80", "--nope"},
     2,
     "unknown option '--nope'"},
    {"UnknownOptionBeforeCommand", {"--nope"}, 2, "unknown option '--nope'\n"},
    {"UnknownOptionBeforeBadValue", loss("x0", "good.csv", {"--math", "quick", "--nope"}), 2,
     "unknown option '--nope'"},
    {"WordTooMany", {"doctor", "twice"}, 2, "unexpected word 'twice'\n"},
    {"UnknownOptionIsEscaped", {"run", "--no\x1b[2J\npe"}, 2, "unknown option '--no\\x1b[2J\\x0ape'\n"},
    {"BadValueIsEscaped", {"parse", "x0", "--to", "\x1b[2J"}, 2, "'\\x1b[2J' is none of infix"},
    {"BadNumberIsEscaped", loss("x0", "good.csv", {"--threads", "\x1b[2J"}), 2, "\\x1b[2J"},
    {"ColumnsTwice", {"parse", "a", "--columns", "a", "--columns", "b"}, 2, "--columns"},
    {"ColumnsBad", {"parse", "a", "--columns", "a,,b"}, 1, "--columns:1:3: a column without a name\na,,b\n  ^"},
    {"UnknownMath", loss("x0", "good.csv", {"--math", "quick"}), 2, "'quick' is none of strict|precise|fast"},
    {"UnknownArch", {"ptx", "x0", "--arch", "sm_12"}, 2, "'sm_12' is none of sm_75"},
    {"ArchOfTheOtherTier", {"ptx", "x0", "--arch", "sm_120"}, 2, "--arch: 'sm_120' is none of sm_75"},
    {"UnknownDirectArch",
     {"sass", "x0", "--tier", "direct", "--arch", "sm_103"},
     2,
     "--arch: 'sm_103' is none of sm_80, sm_86, sm_89, sm_90, sm_100, sm_120\n"},
    {"UnknownDevice", loss("x0", "good.csv", {"--device", "tpu"}), 2, "'tpu' is none of auto, cpu, cuda:N"},
    {"DeviceTwice", loss("x0", "good.csv", {"--device", "cuda:0,0"}), 2, "'cuda:0,0' is none of auto, cpu, cuda:N"},
    {"EmptyListOfDevices", loss("x0", "good.csv", {"--device", "cuda:"}), 2, "'cuda:' is none of auto, cpu, cuda:N"},
    {"ThreadsTooMany", loss("x0", "good.csv", {"--threads", "1025"}), 2,
     "--threads: '1025' is no whole number from 0 to 1024"},
    {"ThreadsNegative", loss("x0", "good.csv", {"--threads", "-1"}), 2,
     "--threads: '-1' is no whole number from 0 to 1024"},
    {"ThreadsEmpty", loss("x0", "good.csv", {"--threads", ""}), 2, "--threads: '' is no whole number"},
    {"SeedNegative",
     {"fit", "p0", "--data", "good.csv", "--target", "y", "--seed", "-1"},
     2,
     "--seed: '-1' is no whole number from 0 to 18446744073709551615\n"},
    {"SeedTooLarge",
     {"fit", "p0", "--data", "good.csv", "--target", "y", "--seed", "18446744073709551616"},
     2,
     "--seed: '18446744073709551616' is no whole number"},
    {"RefineNegative",
     {"fit", "p0", "--data", "good.csv", "--target", "y", "--refine", "-3"},
     2,
     "--refine: '-3' is no whole number"},
    {"ToleranceNoNumber",
     {"fit", "p0", "--data", "good.csv", "--target", "y", "--tolerance", "x"},
     2,
     "--tolerance: 'x' is no number from 0 on\n"},
    {"ToleranceNan",
     {"fit", "p0", "--data", "good.csv", "--target", "y", "--tolerance", "nan"},
     2,
     "--tolerance: 'nan' is no number from 0 on\n"},
    {"LimitNegative", loss("x0", "good.csv", {"--max-nodes", "-3"}), 2,
     "--max-nodes: '-3' is no whole number from 1 to 18446744073709551615\n"},
    {"LimitFraction", loss("x0", "good.csv", {"--max-nodes", "1.5"}), 2, "--max-nodes: '1.5' is no whole number"},
    {"ValueMissing",
     {"loss", "x0", "--data", "good.csv", "--target", "y", "--loss"},
     2,
     "sr-jit: --loss needs a value\n"},
    {"NoExpression",
     {"run", "--data", "good.csv", "--out", "out.csv"},
     2,
     "sr-jit: expressions: give an expression, or --exprs FILE"},
    {"NoData", {"run", "x0", "--out", "out.csv"}, 2, "sr-jit: --data is required"},
    {"NoTarget", {"loss", "x0", "--data", "good.csv", "--out", "out.csv"}, 2, "--target is required"},
    {"InputTwice",
     {"run", "--exprs", "-", "--data", "-", "--out", "out.csv"},
     2,
     "cannot both come from standard input"},
    {"JsonIntoNpy",
     {"run", "x0", "--data", "good.csv", "--json", "--out", "x.npy"},
     2,
     "--out: x.npy: the output is JSON, so give another name"},
    {"JsonIntoCsv",
     {"run", "x0", "--data", "good.csv", "--json", "--out", "x.csv"},
     2,
     "--out: x.csv: the output is JSON, so give another name"},
    {"LossesIntoNpy",
     {"loss", "x0", "--data", "good.csv", "--target", "y", "--out", "x.npy"},
     2,
     "--out: x.npy: the output is CSV, so give another name"},
    {"OutCompressed",
     {"run", "x0", "--data", "good.csv", "--out", "x.csv.gz"},
     2,
     "--out: x.csv.gz: output is not compressed, so give another name"},
    {"HostAndArch", {"llvm", "x0", "--host", "--arch", "sm_80"}, 2, "--arch excludes --host"},
    {"HostAndDepth", {"bytecode", "x0", "--host", "--depth", "4"}, 2, "--depth excludes --host"},
    {"DirectInterpreter",
     {"sass", "x0", "--tier", "direct", "--kernel", "interpreter"},
     2,
     "--kernel: the direct tier has kernels for values and losses only"},
    {"DirectRows",
     {"sass", "x0", "--tier", "direct", "--rows-per-thread", "8"},
     2,
     "--rows-per-thread: the direct tier chooses the rows that a thread computes"},
    {"DirectLength",
     {"cubin", "x0", "--tier", "direct", "--max-length", "9", "-o", "x.cubin"},
     2,
     "--max-length: only kernels of expressions that LLVM compiles have a length limit"},
    {"DepthOfValues", {"ptx", "x0", "--depth", "4"}, 2, "--depth: only --kernel interpreter has a stack"},
    {"NanOfValues", {"llvm", "x0", "--nan", "skip"}, 2, "--nan: it is for losses: give --loss or --kernel loss"},
    {"WeightsOfValues", {"ptx", "x0", "--weighted"}, 2, "--weighted: it is for losses: give --loss or --kernel loss"},
    {"CubinToStandardOutput", {"cubin", "x0", "-o", "-"}, 2, "a cubin goes to a file only"},
    // The machine
    {"NoCudaEngine", loss("x0", "good.csv", {"--device", "cuda:0"}), 3, "cuda:0"},
    {"NoCudaEngines", loss("x0", "good.csv", {"--device", "cuda:all"}), 3, "device cuda:all: no CUDA driver"},
};

void writeFiles(const Scratch& scratch) {
  scratch.write("good.csv", "a,b,y\n1,2,3\n4,5,6\n");
  scratch.write("negative.csv", "a,b,y\n1,-2,3\n4,5,6\n");
  scratch.write("indices.csv", "x1,x2,y\n3,5,1\n");
  scratch.write("places.csv", "x0,x1,x2\n1,2,3\n");
  scratch.write("blank.csv", "a\n1\n\n3\n");
  scratch.write("small.csv", "a,b,y\n1e-400,2,3\n");
  scratch.write("beyond.csv", "a,b,y\n1,-2e39,3\n");
  scratch.write("below.csv", "a,b,y\n1,2,3e-50\n4,5,0\n");
  scratch.write("empty.csv", "");
  scratch.write("header.csv", "a,b,y\n");
  scratch.write("noheader.csv", "1.5,2,3\n4,5,6\n");
  scratch.write("word.csv", "a,b,y\n1,2,3\n3,oops,5\n");
  scratch.write("hole.csv", "a,b,y\n1,,3\n");
  scratch.write("long.csv", "a,b,y\n1,2,3,4\n");
  scratch.write("short.csv", "a,b,y\n1,2\n");
  scratch.write("twice.csv", "a,a,y\n1,2,3\n");
  scratch.write("quote.csv", "a,b,y\n1,\"2,3\n");
  scratch.write("bad.txt", "# a comment\n\nx0 ? 1\n");
  scratch.write("comments.txt", "# nothing\n\n");
  scratch.write("cut.xz", std::string("\xFD"
                                      "7zXZ\0\0\4",
                                      8));
  scratch.write("plain.gz", "x0\n");
  scratch.write("text.npy", "a,b\n1,2\n");
  const auto npy = [](std::string header, std::size_t bytes) {
    std::string file("\x93NUMPY\1\0", 8);
    file += {static_cast<char>(header.size()), '\0'};
    return file + header + std::string(bytes, '\0');
  };
  scratch.write("cut.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2)}", 31));
  scratch.write("complex.npy", npy("{'descr': '<c16', 'fortran_order': False, 'shape': (2, 2)}", 64));
}

TEST_P(BadInputs, HasStatusAndPositionAndWritesNothing) {
  const BadInput& input = GetParam();
  const Scratch scratch;
  writeFiles(scratch);
  const std::vector<std::string> before = scratch.list();
  const Outcome outcome = runCommand(input.arguments, scratch.path(""));
  EXPECT_EQ(outcome.status, input.status) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(input.message));
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("\x1b")));
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(scratch.list(), before);
}

INSTANTIATE_TEST_SUITE_P(Command, BadInputs, testing::ValuesIn(kInputs),
                         [](const testing::TestParamInfo<BadInput>& input) { return std::string(input.param.name); });

}  // namespace
}  // namespace srjit
