#include "compiler/kernels/key.h"
#include "compiler/nvptx/options.h"

#include <array>
#include <functional>

#include <gmock/gmock.h>
#include <llvm/ADT/StringExtras.h>

#include "compiler/host/jit.h"
#include "compiler/kernels/image_maker.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

KernelKey rowsKey(const Dag& dag, const DeviceOptions& options = {}) { return keyOfRows({&dag, 1}, options, "me"); }

Dag ready(std::initializer_list<std::string_view> texts) {
  return ran(graphOf(texts, Precision::kF32), "fma,hoist,schedule");
}

TEST(KernelKey, DoesNotDependOnNumbersNorOnTheBatch) {
  EXPECT_EQ(rowsKey(ready({"x0 * 2 + sin(x1 - 3)"})), rowsKey(ready({"x0 * 7.5 + sin(x1 - 0.25)"})));
  EXPECT_EQ(rowsKey(ready({"x0 * p0", "x1 / p0"})), rowsKey(ready({"x0 * p4", "x1 / p2"})));
  // The second expression of one batch is the first of another.
  Dag second(Precision::kF32);
  second.addRoot(second.apply(Op::kMul, {second.variable(0), second.parameter(1, 0)}));
  EXPECT_EQ(rowsKey(second), rowsKey(graphOf({"x0 * p0"}, Precision::kF32)));
}

TEST(KernelKey, DependsOnTheGraphs) {
  const Dag a = ready({"x0 + x1"}), b = ready({"x0 * x1"});
  const std::vector<Dag> batches[] = {{}, {a}, {b}, {a, b}, {b, a}, {a, a}, {ready({"x0 + x1", "x0 * x1"})}};
  std::vector<KernelKey> keys;
  for (const auto& batch : batches) keys.push_back(keyOfRows(batch, {}, "me"));
  keys.push_back(rowsKey(graphOf({"x0 + 1"}, Precision::kF32)));  // literals that were not hoisted are part of the key
  keys.push_back(rowsKey(graphOf({"x0 + 2"}, Precision::kF32)));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) EXPECT_NE(keys[i], keys[k]) << i << " and " << k;
  }
}

TEST(KernelKey, DependsOnEveryOption) {
  const std::vector<std::function<void(DeviceOptions&)>> changes = {
      [](DeviceOptions&) {},
      [](DeviceOptions& o) { o.precision = Precision::kF64; },
      [](DeviceOptions& o) { o.math = Math::kStrict; },
      [](DeviceOptions& o) { o.math = Math::kFast; },
      [](DeviceOptions& o) { o.arch = "sm_80"; },
      [](DeviceOptions& o) { o.rows_per_thread = 8; },
      [](DeviceOptions& o) { o.strided_columns = true; },
      [](DeviceOptions& o) { o.loss = LossSpec{}; },
      [](DeviceOptions& o) { o.loss = LossSpec{.term = LossTerm::kAbsolute}; },
      [](DeviceOptions& o) { o.loss = LossSpec{.weighted = true}; },
      [](DeviceOptions& o) { o.loss = LossSpec{.skip_invalid = true}; },
  };
  const HandlerTable table({.ops = {Op::kAdd, Op::kSin}});
  std::vector<KernelKey> rows, interpreters;
  for (const auto& change : changes) {
    DeviceOptions options;
    change(options);
    rows.push_back(rowsKey(ready({"x0 + sin(x1)"}), options));
    interpreters.push_back(keyOfInterpreter(table, options, "me"));
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      EXPECT_NE(rows[i], rows[k]) << i << " and " << k;
      EXPECT_NE(interpreters[i], interpreters[k]) << i << " and " << k;
    }
    EXPECT_NE(rows[i], interpreters[i]);
  }
}

TEST(KernelKey, OfAnInterpreterDependsOnItsTable) {
  const std::vector<InterpreterSpec> specs = {{.ops = {Op::kAdd, Op::kSin}},
                                              {.ops = {Op::kAdd}},
                                              {.ops = {Op::kAdd, Op::kCos}},
                                              {.ops = {Op::kAdd, Op::kSin}, .depth = 6},
                                              {.ops = {Op::kAdd, Op::kSin}, .rows_per_thread = 4},
                                              {.math = Math::kFast, .ops = {Op::kAdd, Op::kSin}},
                                              {.precision = Precision::kF64, .ops = {Op::kAdd, Op::kSin}}};
  std::vector<KernelKey> keys;
  for (const InterpreterSpec& spec : specs) keys.push_back(keyOfInterpreter(HandlerTable(spec), {}, "me"));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) EXPECT_NE(keys[i], keys[k]) << i << " and " << k;
  }
  EXPECT_EQ(keys[0], keyOfInterpreter(HandlerTable(specs[0]), {}, "me"));
}

TEST(KernelKey, OfTotalsDependsOnPrecisionAndArchitectureAlone) {
  const KernelKey key = keyOfTotals({}, "me");
  DeviceOptions same, wide, older;
  same.math = Math::kFast;
  same.rows_per_thread = 8;
  same.loss.emplace();
  wide.precision = Precision::kF64;
  older.arch = "sm_75";
  EXPECT_EQ(key, keyOfTotals(same, "me"));
  EXPECT_NE(key, keyOfTotals(wide, "me"));
  EXPECT_NE(key, keyOfTotals(older, "me"));
}

TEST(KernelKey, OfLanesDependsOnTheArchitectureAndTheMachineAlone) {
  const KernelKey key = keyOfLanes({}, "me");
  DeviceOptions same, older, newer;
  same.precision = Precision::kF64;
  same.math = Math::kFast;
  same.rows_per_thread = 8;
  same.min_blocks = 2;
  same.strided_columns = true;
  same.loss.emplace();
  older.arch = "sm_75";
  newer.machine = "sm_103";
  EXPECT_EQ(key, keyOfLanes(same, "me"));
  EXPECT_NE(key, keyOfLanes(older, "me"));
  EXPECT_NE(key, keyOfLanes(newer, "me"));
  EXPECT_NE(key, keyOfTotals({}, "me"));
  EXPECT_EQ(key.title, "lanes sm_90");
}

TEST(KernelKey, OfAnObjectOfTheCpuDependsOnItsTitleAndOnTheProcessor) {
  const HostTarget target{.cpu = "znver4", .features = "+avx2,+fma", .vector_bytes = 32, .has_fma = true};
  const KernelKey key = keyOfHostObject("handler add(rows, rows) f32 fast", target, "me");
  EXPECT_EQ(key.title, "handler add(rows, rows) f32 fast znver4");
  EXPECT_EQ(key, keyOfHostObject("handler add(rows, rows) f32 fast", HostTarget(target), "me"));
  EXPECT_NE(key, keyOfHostObject("handler add(rows, rows) f32 precise", target, "me"));
  EXPECT_NE(key, keyOfHostObject("handler add(rows, rows) f32 fast", target, "you"));
  std::array<HostTarget, 4> others = {target, target, target, target};
  others[0].cpu = "znver5";
  others[1].features = "+avx2,-fma";
  others[2].vector_bytes = 16;
  others[3].has_fma = false;
  for (const HostTarget& other : others) {
    EXPECT_NE(key, keyOfHostObject("handler add(rows, rows) f32 fast", other, "me"));
  }
}

TEST(KernelKey, DependsOnTheCompilerIdentity) {
  const Dag dag = ready({"x0"});
  const HandlerTable table({.ops = {Op::kAdd}});
  EXPECT_NE(keyOfRows({&dag, 1}, {}, "me"), keyOfRows({&dag, 1}, {}, "you"));
  EXPECT_NE(keyOfInterpreter(table, {}, "me"), keyOfInterpreter(table, {}, "you"));
  EXPECT_NE(keyOfTotals({}, "me"), keyOfTotals({}, "you"));
  EXPECT_NE(keyOfLanes({}, "me"), keyOfLanes({}, "you"));
}

TEST(KernelKey, TitleDescribesTheKernel) {
  const std::vector<Dag> dags = {ready({"x0", "x1"}), ready({"x0"})};
  const DeviceOptions options = {.math = Math::kFast, .loss = LossSpec{.weighted = true}};
  EXPECT_EQ(keyOfRows(dags, options, "me").title,
            "rows f32 fast sm_90, 4 rows per thread, squared loss with weights, 3 expressions in 2 kernels");
}

// A new row of ops.def must not change the keys of kernels without it.
TEST(KernelKey, DependsOnOperatorNamesNotOnTheirNumbers) {
  const auto text = [](const KernelKey& key) { return llvm::toHex(key.digest, true); };
  EXPECT_EQ(text(rowsKey(ready({"erf(x0 * 2) + sin(x1 - p0)", "max(x0, x1) / 3"}))),
            "d5552521159449d7092a05588eee1fbae59a316e5f6a0ca9df81ab2ee988a01b");
  EXPECT_EQ(text(keyOfInterpreter(HandlerTable({.ops = {Op::kAdd, Op::kSin, Op::kErf}}), {}, "me")),
            "f587da4999b7265d7c10676944dec171d82dea0a302be75f6635cf3c526a9910");
}

TEST(DigestBuilder, DistinguishesValueBoundaries) {
  EXPECT_NE(DigestBuilder().add("ab").add("c").finish(), DigestBuilder().add("a").add("bc").finish());
  EXPECT_NE(DigestBuilder().add("").finish(), DigestBuilder().finish());
  EXPECT_NE(DigestBuilder().add(std::uint64_t{1}).finish(), DigestBuilder().add(std::uint64_t{2}).finish());
}

TEST(CompilerIdentity, NamesTheInputsOfCodeGeneration) {
  const std::string identity = compilerIdentity();
  EXPECT_EQ(identity, compilerIdentity());
  EXPECT_THAT(identity,
              testing::MatchesRegex("sr-jit [0-9.]+ [0-9a-f]+; LLVM 19[0-9.]+ on [-_a-z0-9]+; assembler .*\\(.*\\)"));
  EXPECT_THAT(identity, testing::StartsWith(buildIdentity() + ";"));
}

}  // namespace
}  // namespace srjit
