// What SECURITY.md promises of expressions, data, parameters and cache files from elsewhere: an error that says where,
// no crash, nothing read, run or written.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/gpu_model/device_engine.h"
#include "tests/tools/process.h"

namespace srjit {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kMillion = 1000000;

std::string timesOf(std::string_view text, std::size_t count) {
  std::string all;
  all.reserve(text.size() * count);
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}

struct HostileInput {
  const char* name;
  std::vector<std::string> words;
  std::function<std::string()> input;  ///< standard input
  int status;
  const char* message;  ///< a part of standard error, with the place if there is one; what is computed has none
};

void PrintTo(const HostileInput& input, std::ostream* stream) { *stream << input.name; }

std::vector<std::string> parseFrom(const char* from) { return {"parse", "--exprs", "-", "--from", from}; }
std::vector<std::string> hostileData(std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"run", "x[0]", "--data", "-", "--device", "cpu", "--quiet"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string hostileNpy(const std::string& header, const std::string& bytes = {}) {
  std::string file("\x93NUMPY\1\0", 8);
  file += {static_cast<char>(header.size()), '\0'};
  return file + header + bytes;
}

const HostileInput kHostileInputs[] = {
    // Nesting
    {"InfixDeep", parseFrom("infix"), [] { return std::string(kMillion, '(') + "x0" + std::string(kMillion, ')'); }, 0,
     ""},
    {"InfixOpen", parseFrom("infix"), [] { return std::string(kMillion, '('); }, 1, "standard input:1:1000001: "},
    {"InfixCalls", parseFrom("infix"), [] { return timesOf("sin(", kMillion); }, 1, "standard input:1:4000001: "},
    {"InfixSigns", parseFrom("infix"), [] { return std::string(kMillion, '-') + "x0"; }, 0, ""},
    {"InfixPowers", parseFrom("infix"), [] { return timesOf("x0^", kMillion) + "x0"; }, 0, ""},
    {"PostfixDeep", parseFrom("postfix"), [] { return "x0" + timesOf(" sin", kMillion); }, 0, ""},
    {"PostfixOperands", parseFrom("postfix"), [] { return timesOf("x0 ", kMillion); }, 1, "standard input:1:3000001: "},
    {"PrefixOpen", parseFrom("prefix"), [] { return timesOf("sin ", kMillion); }, 1, "standard input:1:4000001: "},
    {"JsonDeep", parseFrom("json"),
     [] { return timesOf(R"({"op":"sin","args":[)", kMillion) + "1" + timesOf("]}", kMillion); }, 0, ""},
    {"JsonOpen", parseFrom("json"), [] { return timesOf(R"({"op":"sin","args":[)", kMillion); }, 1,
     "standard input:1:20000001: "},
    {"JsonLists", parseFrom("json"), [] { return std::string(kMillion, '['); }, 1, "standard input:1:1: "},
    {"Limited",
     {"parse", "--exprs", "-", "--max-nodes", "1000"},
     [] { return timesOf("x0+", kMillion) + "x0"; },
     1,
     "standard input:1:1503: at least 1001 nodes"},
    // Names
    {"NameOfAFile", parseFrom("infix"), [] { return std::string("`/etc/passwd`"); }, 1, "standard input:1:1: unknown"},
    {"NameWithAPath", parseFrom("infix"), [] { return std::string("x0 + ../../etc/passwd"); }, 1,
     "standard input:1:6: "},
    {"NameOfACommand", parseFrom("infix"), [] { return std::string("`$(touch pwned)`"); }, 1, "standard input:1:1: "},
    {"NameAsLongAsAMegabyte", parseFrom("infix"), [] { return "x0 + " + std::string(kMillion, 'a'); }, 1,
     "standard input:1:6: unknown name"},
    {"Escapes", parseFrom("infix"), [] { return std::string("x0 + `\x1b]0;t\x07`"); }, 1, "standard input:1:7: "},
    // Bytes and numbers
    {"Zeros", parseFrom("infix"), [] { return std::string("x0 \0+ 1", 7); }, 1, "standard input:1:4: "},
    {"NotUtf8", parseFrom("infix"), [] { return std::string("x0 + \xff\xfe\xc0"); }, 1, "standard input:1:6: "},
    {"NotUtf8Json", parseFrom("json"), [] { return std::string("{\"var\":\"\xff\xfe\"}"); }, 1, "standard input:1:8: "},
    {"HugeNumber", parseFrom("infix"), [] { return "x0 + " + std::string(kMillion, '9'); }, 1, "standard input:1:6: "},
    {"HugeExponent", parseFrom("infix"), [] { return std::string("1e99999999999999999999"); }, 1,
     "standard input:1:1: "},
    {"LongFraction", parseFrom("infix"), [] { return "0." + std::string(kMillion, '1'); }, 0, ""},
    {"HugeIndex", parseFrom("infix"), [] { return "x" + std::string(1000, '9'); }, 1, "standard input:1:1: "},
    {"LargestIndex",
     {"run", "--exprs", "-", "--data", "good.csv", "--device", "cpu"},
     [] { return std::string("x1048575"); },
     1,
     "standard input:1:1: variable x1048575, but the data has 3 variables"},
    {"ParametersOfAMillion", parseFrom("infix"), [] { return "p0\t" + timesOf("1 ", kMillion); }, 1,
     "standard input:1:6: 1000000 parameters are given"},
    // Tables
    {"CsvHugeCell", hostileData(), [] { return "a\n" + std::string(10 * kMillion, 'x') + "\n"; }, 1,
     "standard input:2:1: "},
    {"CsvHugeName", hostileData(), [] { return std::string(10 * kMillion, 'x') + "\n1\n"; }, 0, ""},
    {"CsvOpenQuote", hostileData(), [] { return "a\n\"" + timesOf("1\n", kMillion); }, 1,
     "standard input:1000002:1: a quoted cell is not closed"},
    {"CsvManyColumns", hostileData(), [] { return timesOf("a,", kMillion) + "\n"; }, 1,
     "standard input:1:2000001: a column without a name"},
    {"CsvZeros", hostileData(), [] { return std::string("a\n1\0\n", 5); }, 1, "standard input:2:1: "},
    {"CsvNotUtf8", hostileData(), [] { return std::string("a\n\xff\xfe\n"); }, 1, "standard input:2:1: "},
    {"CsvHugeNumber", hostileData(), [] { return "a\n" + std::string(kMillion, '9') + "\n"; }, 1,
     "standard input:2:1: "},
    {"CsvLimited", hostileData({"--max-bytes", "1000"}), [] { return "a\n" + timesOf("1\n", kMillion); }, 1,
     "standard input: more than 1000 bytes"},
    {"NpyHugeRows", hostileData(),
     [] {
       return hostileNpy("{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976, 1)}", "12345678");
     },
     1, "standard input: shape (1152921504606846976, 1) of 8-byte elements does not fit the 8 bytes"},
    {"NpyOverflow", hostileData(),
     [] { return hostileNpy("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"); }, 1,
     "standard input: shape (4294967296, 4294967296) of 8-byte elements does not fit the 0 bytes"},
    {"NpyNegative", hostileData(),
     [] { return hostileNpy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 1)}"); }, 1,
     "standard input: header, byte 52: expected a shape"},
    {"NpyHugeHeader", hostileData(), [] { return std::string("\x93NUMPY\2\0\xff\xff\xff\xff{'descr'", 20); }, 1,
     "standard input: the file ends within its header"},
    {"NpyObjects", hostileData(),
     [] { return hostileNpy("{'descr': '|O', 'fortran_order': False, 'shape': (1, 1)}", "cos\nsystem"); }, 1,
     "standard input: elements of type '|O'"},
    {"NpyCode", hostileData(), [] { return hostileNpy("__import__('os').system('touch pwned')"); }, 1,
     "standard input: header, byte 1: expected '{'"},
    {"GzipDamaged", hostileData(), [] { return std::string("\x1f\x8b\x08\x04\xff\xff\xff\xff\xff\xff\xff\xff", 12); },
     1, "standard input: the gzip archive is damaged"},
};

class HostileInputs : public testing::TestWithParam<HostileInput> {};

TEST_P(HostileInputs, AreComputedOrRefused) {
  const HostileInput& hostile = GetParam();
  const Scratch scratch;
  scratch.write("good.csv", "a,b,c\n1,2,3\n");
  const std::vector<std::string> before = scratch.list();
  const Outcome outcome = runCommand(hostile.words, scratch.path(""), hostile.input());
  EXPECT_EQ(outcome.status, hostile.status) << outcome.err.substr(0, 2000);
  if (hostile.status == 0) {
    EXPECT_EQ(outcome.err, "");
  } else {
    EXPECT_THAT(outcome.err, HasSubstr(hostile.message));
    EXPECT_THAT(outcome.err, Not(HasSubstr("root:"))) << "a line of /etc/passwd";
    EXPECT_LT(outcome.err.size(), 5000U) << "messages are short";
  }
  EXPECT_EQ(outcome.err.find_first_of(std::string_view("\0\x1b\x07", 3)), std::string::npos);
  EXPECT_EQ(scratch.list(), before) << "nothing is written";
}

INSTANTIATE_TEST_SUITE_P(Command, HostileInputs, testing::ValuesIn(kHostileInputs),
                         [](const auto& hostile) { return std::string(hostile.param.name); });

/// A bomb: a megabyte of zeros a thousand times.
TEST(HostileArchive, IsUnpackedUpToTheLimit) {
  const Scratch scratch;
  const Outcome made = runShell("head -c 1000000000 /dev/zero | gzip -1 >bomb.gz", scratch.path(""));
  ASSERT_EQ(made.status, 0) << made.err;
#ifdef SRJIT_SANITIZED
  constexpr rlim_t kMemory = RLIM_INFINITY;  // sanitizers reserve terabytes of addresses
#else
  constexpr rlim_t kMemory = rlim_t{1} << 30;
#endif
  const Outcome outcome =
      runCommand({"run", "x0", "--data", "bomb.gz", "--max-bytes", "10000000"}, scratch.path(""), {}, {}, -1, kMemory);
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("bomb.gz: more than 10000000 bytes when unpacked; a larger --max-bytes"));
}

/// A file in the place of an image of the cache that is none.
struct HostileCache {
  const char* name;
  const char* script;   ///< makes $file
  const char* message;  ///< a part of standard error
};

void PrintTo(const HostileCache& cache, std::ostream* stream) { *stream << cache.name; }

/// Names, kinds, modes, targets of links, times of the last change and contents of all that is in the folder.
std::string stateOf(const Scratch& scratch) {
  const Outcome listed = runShell(
      "find . -printf '%p %y %m %l %T@ %s\\n' | sort && find . -type f -exec cksum {} + | sort", scratch.path(""));
  EXPECT_EQ(listed.status, 0) << listed.err;
  return listed.out;
}

/// A cache of one engine, in which all files were replaced.
class HostileCaches : public testing::TestWithParam<HostileCache> {
 protected:
  HostileCaches() {
    scratch_.write("other", "another file\n");
    losses_ = losses();
    const Outcome made =
        runShell("umask 022; cd cache; for file in *; do rm $file; " + std::string(GetParam().script) + "; done",
                 scratch_.path(""));
    EXPECT_EQ(made.status, 0) << made.err;
  }

  Losses losses() const {
    FakeMachine machine;
    const Engine engine = machine.engine({.math = Math::kStrict, .cache_directory = scratch_.path("cache")});
    Losses losses = lossesOf(engine, workload_, Tier::kCompile, {});
    EXPECT_GT(machine.images->count("rows"), 0U) << "kernels are made, which a cache would keep";
    return losses;
  }

  Scratch scratch_;
  const Workload workload_ = arithmeticWorkload(1, 20, 100, Precision::kF32);
  Losses losses_;
};

TEST_P(HostileCaches, AreNeitherUsedNorChangedByTheCommand) {
  const std::string before = stateOf(scratch_);
  EXPECT_THAT(before, testing::AllOf(HasSubstr(".kernel "), HasSubstr(".fact ")));
  for (const char* action : {"stats", "list", "verify", "clear"}) {
    const Outcome outcome = runCommand({"cache", action, "--cache-dir", "cache"}, scratch_.path(""));
    EXPECT_EQ(outcome.status, 3) << action;
    EXPECT_EQ(outcome.out, "") << action;
    EXPECT_THAT(outcome.err,
                testing::ContainsRegex("/cache/[0-9a-f]+.(kernel|fact) is " + std::string(GetParam().message)))
        << action;
    EXPECT_EQ(stateOf(scratch_), before) << action;
  }
}

TEST_P(HostileCaches, AreNeitherUsedNorChangedByEngines) {
  const std::string before = stateOf(scratch_);
  expectSameLosses(losses(), losses_, "with a hostile cache");
  expectSameLosses(losses_, lossesOf(cpuEngine(Precision::kF32), workload_, Tier::kInterpret, {}), "without a cache");
  EXPECT_EQ(stateOf(scratch_), before);
}

constexpr const char* kNoImage = "not a kernel image of sr-jit, so it is neither used nor changed; delete it";
INSTANTIATE_TEST_SUITE_P(
    All, HostileCaches,
    testing::Values(HostileCache{"NoImage", "echo no image >$file", kNoImage},
                    HostileCache{"LinkToAFile", "ln -s ../other $file", "a symbolic link; remove it"},
                    HostileCache{"LinkToNothing", "ln -s ../none $file", "a symbolic link; remove it"},
                    HostileCache{"Folder", "mkdir $file", "no regular file; remove it"},
                    HostileCache{"Pipe", "mkfifo $file", "no regular file; remove it"},
                    HostileCache{"OtherHeader", "printf 'sr-jit imagf\\1\\0\\0\\0' >$file", kNoImage},
                    HostileCache{"Database", "printf 'SQLite format 3\\0\\20\\0\\377\\377' >$file", kNoImage}),
    [](const auto& cache) { return std::string(cache.param.name); });

}  // namespace
}  // namespace srjit
