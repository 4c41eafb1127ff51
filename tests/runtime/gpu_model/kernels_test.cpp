// The models of kernels: they compute what the headers of the kernels say, and refuse launches that break its rules.
#include "tests/gpu_model/kernels.h"
#include "compiler/interpreter/kernel.h"
#include "compiler/nvptx/options.h"

#include <cmath>
#include <cstring>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/handler_table.h"
#include "ir/losses.h"
#include "ir/numbers/loss_sums.h"
#include "ir/numbers/rounding.h"
#include "ir/rows.h"
#include "tests/generators/data.h"
#include "tests/gpu_model/fake_image_maker.h"

namespace srjit {
namespace {

using testing::HasSubstr;

/// Memory of some buffers at addresses of its own.
class Memory : public ModelMemory {
 public:
  template <class T>
  std::uint64_t put(const std::vector<T>& values) {
    const std::uint64_t address = next_;
    next_ += (values.size() * sizeof(T) + 4095) / 256 * 256;
    auto& bytes = buffers_[address];
    bytes.resize(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return address;
  }
  template <class T>
  std::vector<T> get(std::uint64_t address) const {
    const auto& bytes = buffers_.at(address);
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::byte* range(std::uint64_t address, std::size_t bytes) override {
    auto found = buffers_.upper_bound(address);
    if (found == buffers_.begin()) throw ModelFault("outside");
    --found;
    if (address + bytes > found->first + found->second.size()) throw ModelFault("outside");
    return found->second.data() + (address - found->first);
  }

 private:
  std::uint64_t next_ = 4096;
  std::map<std::uint64_t, std::vector<std::byte>> buffers_;
};

constexpr std::size_t kModelRows = 1301, kModelStride = 1304, kRowGroups = 11;

/// Two columns, a target and weights, some of them special.
template <class T>
struct Data {
  explicit Data(Precision precision) {
    Random random(7);
    for (int c = 0; c < 4; ++c) {
      std::vector<T> column;
      const auto drawn = randomColumns(random, 1, kModelRows, Spread::kTame, precision);
      for (const double value : drawn[0]) column.push_back(static_cast<T>(value));
      column.resize(kModelStride, T(1e30));
      if (c < 2) columns.insert(columns.end(), column.begin(), column.end());
      (c == 2 ? target : weights) = column;
    }
    columns[5] = std::numeric_limits<T>::infinity();
  }
  T x(std::size_t column, std::size_t row) const { return columns[column * kModelStride + row]; }
  std::vector<T> columns, target, weights;
};

// What the graph below computes: output 1 and output 0.
template <class T>
std::array<T, 2> expected(T x0, T x1, T p) {
  return {x0 * x1 + p, real::sin(x1) - p};
}

template <class T>
Dag graph(Precision precision) {
  Dag dag(precision);
  const NodeId x0 = dag.variable(0), x1 = dag.variable(1), p = dag.parameter(0, 0);
  dag.addRoot(dag.apply(Op::kAdd, {dag.apply(Op::kMul, {x0, x1}), p}));
  dag.addRoot(dag.apply(Op::kSub, {dag.apply(Op::kSin, {x1}), p}));
  return dag;
}

DeviceToken token(int handler, std::uint32_t column, std::uint32_t kind, std::uint32_t argument) {
  EXPECT_GE(handler, 0);
  return {
      static_cast<std::uint32_t>(handler) | column << DeviceToken::kColumnShift | kind << DeviceToken::kArgumentShift,
      argument};
}

/// The same as two programs; staged column 0 is x1, 1 is x0, and there is a slot.
std::vector<std::vector<DeviceToken>> programs(const HandlerTable& table) {
  using Kind = Handler::Kind;
  const auto plain = [&](Kind kind, unsigned height, unsigned argument = 0) {
    return table.find(kind, height, argument);
  };
  return {{token(table.findApply(Op::kMul, "vv", 0), 0, DeviceToken::kColumn, 1),
           token(plain(Kind::kStoreSlot, 1), 2, DeviceToken::kNumber, 0),
           token(plain(Kind::kPushColumn, 0), 2, DeviceToken::kNumber, 0),
           token(table.findApply(Op::kAdd, "0c", 1), 0, DeviceToken::kParameter, 3),
           token(plain(Kind::kEnd, 1), 0, DeviceToken::kNumber, 1)},
          {token(plain(Kind::kArgumentColumn, 0), 0, DeviceToken::kNumber, 0),
           token(table.findBody(Op::kSin), 0, DeviceToken::kNumber, 0),
           token(plain(Kind::kPushResult, 0), 0, DeviceToken::kNumber, 0),
           token(table.findApply(Op::kSub, "0c", 1), 0, DeviceToken::kParameter, 3),
           token(plain(Kind::kEnd, 1), 0, DeviceToken::kNumber, 0)}};
}

template <class T>
class KernelModels : public testing::Test {
 public:
  static constexpr Precision kPrecision = kPrecisionOf<T>;
  static constexpr T kParameter = T(0.75), kCentre = T(0.375);

  KernelModels() {
    options.precision = kPrecision;
    columns = memory.put(data.columns);
    parameters = memory.put(std::vector<T>{0, 0, 0, kParameter});
    target = memory.put(data.target);
    weights = memory.put(data.weights);
    out = memory.put(std::vector<T>(3 * kModelStride));
  }

  void use(const LossSpec& loss) { options.loss = loss; }
  static std::uint64_t bitsOf(T number) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof number);
    return bits;
  }
  void addOutputs(ModelLaunch& launch) const {
    if (options.loss) {
      launch.arguments.insert(launch.arguments.end(), {target, weights, out, 2 * kRowGroups});
      if (isOfMoments(options.loss->term)) launch.arguments.push_back(bitsOf(kCentre));
    } else {
      launch.arguments.insert(launch.arguments.end(), {out, kModelStride});
    }
  }

  void runRows() {
    const Dag dag = graph<T>(kPrecision);
    const KernelImage image = FakeImageMaker().rows(std::span(&dag, 1), options).value();
    const auto model = readModel(reinterpret_cast<const char*>(image.code.data()));
    ASSERT_TRUE(model);
    const std::size_t blocks = ceilDivide(kModelRows, 128 * options.rows_per_thread);
    ModelLaunch launch{{static_cast<unsigned>(blocks), 1, 1}, {128, 1, 1}, 0, {}};
    const std::uint64_t numbers = memory.put(std::vector<std::uint32_t>{1, 0});
    launch.arguments = {columns, kModelStride, 1, kModelRows, parameters + 3 * sizeof(T), numbers};
    addOutputs(launch);
    EXPECT_EQ(model->kernels[0]->parameterBytes().size(), launch.arguments.size());
    model->kernels[0]->run(launch, memory);
  }

  ModelLaunch interpreterLaunch(const HandlerTable& table, unsigned row_warps, unsigned programs_per_warp,
                                unsigned window = 0) {
    const auto code = programs(table);
    std::vector<DeviceToken> tokens = code[0];
    tokens.insert(tokens.end(), code[1].begin(), code[1].end());
    const std::uint32_t first = static_cast<std::uint32_t>(code[0].size());
    const std::vector<std::uint32_t> offsets = {0, first, static_cast<std::uint32_t>(tokens.size())};
    const unsigned tile_rows = row_warps * 32 * options.rows_per_thread, teams = 4 / row_warps;
    const auto tiles = static_cast<unsigned>(ceilDivide(kModelRows, tile_rows));
    const unsigned chunk = programs_per_warp * teams;
    ModelLaunch launch{{tiles * static_cast<unsigned>(ceilDivide(2, chunk)), 1, 1}, {128, 1, 1}, 0, {}};
    launch.shared_bytes =
        interpreterSharedBytes(kPrecision, {options.rows_per_thread, row_warps, programs_per_warp, window}, 2, 1,
                               chunk == 1 ? first : tokens.size());
    launch.arguments = {columns,
                        kModelStride,
                        1,
                        kModelRows,
                        parameters,
                        memory.put(std::vector<std::uint32_t>{1, 0}),
                        memory.put(tokens),
                        memory.put(offsets),
                        2,
                        programs_per_warp,
                        row_warps,
                        tiles,
                        2,
                        1,
                        window};
    addOutputs(launch);
    return launch;
  }

  std::unique_ptr<KernelModel> interpreter(const HandlerTable& table) const {
    const KernelImage image = FakeImageMaker().interpreter(table, options).value();
    return std::move(readModel(reinterpret_cast<const char*>(image.code.data()))->kernels[0]);
  }
  HandlerTable table() const {
    return HandlerTable(
        {kPrecision, Math::kPrecise, {Op::kAdd, Op::kSub, Op::kMul, Op::kSin}, options.rows_per_thread, 4});
  }

  void expectValues() {
    const auto values = memory.get<T>(out);
    for (std::size_t r = 0; r < kModelRows; ++r) {
      const auto wanted = expected<T>(data.x(0, r), data.x(1, r), kParameter);
      for (std::size_t o = 0; o < 2; ++o) {
        const T got = values[(1 - o) * kModelStride + r];
        ASSERT_TRUE(got == wanted[o] || (std::isnan(got) && std::isnan(wanted[o]))) << r << " of " << o;
      }
    }
  }

  Data<T> data{kPrecision};
  Memory memory;
  DeviceOptions options;
  std::uint64_t columns = 0, parameters = 0, target = 0, weights = 0, out = 0;
};

using Precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(KernelModels, Precisions);

TYPED_TEST(KernelModels, RowsGiveValues) {
  for (const unsigned k : {4u, 8u, 16u}) {
    this->options.rows_per_thread = k;
    this->runRows();
    this->expectValues();
  }
}

TYPED_TEST(KernelModels, TheInterpreterGivesValues) {
  for (const unsigned k : {4u, 8u, 16u}) {
    this->options.rows_per_thread = k;
    const HandlerTable table = this->table();
    const auto model = this->interpreter(table);
    for (const unsigned row_warps : {1u, 2u, 4u}) {
      for (const unsigned programs_per_warp : {1u, 2u, 5u}) {
        const ModelLaunch launch = this->interpreterLaunch(table, row_warps, programs_per_warp);
        EXPECT_EQ(model->parameterBytes().size(), launch.arguments.size());
        model->run(launch, this->memory);
        this->expectValues();
        model->run(this->interpreterLaunch(table, row_warps, programs_per_warp, 3), this->memory);
        this->expectValues();
      }
    }
  }
}

TYPED_TEST(KernelModels, SumsHaveOneTree) {
  using T = TypeParam;
  for (const auto& [term, name, tuning, targets] : kernelLossTerms()) {
    SCOPED_TRACE(name);
    for (const bool weighted : {false, true}) {
      for (const bool skip : {false, true}) {
        this->use({term, weighted, skip});
        const std::vector<T> nothing(kMostChannels * 2 * kRowGroups, T(-7));
        this->out = this->memory.put(nothing);
        this->runRows();
        const auto by_rows = this->memory.template get<T>(this->out);
        this->out = this->memory.put(nothing);
        const HandlerTable table = this->table();
        this->interpreter(table)->run(this->interpreterLaunch(table, 2, 1), this->memory);
        const auto by_tokens = this->memory.template get<T>(this->out);
        EXPECT_EQ(std::memcmp(by_rows.data(), by_tokens.data(), by_rows.size() * sizeof(T)), 0);

        // Group 3 of output 0, and how many channels were written.
        const LossSpec spec{term, weighted, skip};
        std::vector<std::array<T, 128>> sums(kMostChannels);
        for (std::size_t i = 0; i < 128; ++i) {
          const std::size_t r = 3 * 128 + i;
          const T prediction = real::sin(this->data.x(1, r)) - this->kParameter;
          const T target = this->data.target[r] - (isOfMoments(term) ? this->kCentre : T(0));
          std::size_t channel = 0;
          const auto add = [&](T item) { sums[channel++][i] = weighted ? this->data.weights[r] * item : item; };
          eachLossTerm<T>(term, prediction, target, add);
          if (spec.targetSums() > 0) eachTargetTerm(target, add);
        }
        for (std::size_t channel = 0; channel < spec.channels() - spec.counts(); ++channel) {
          EXPECT_EQ(by_rows[channel * 2 * kRowGroups + 3], pairwiseSum(sums[channel])) << channel;
        }
        for (std::size_t channel = 0; channel < kMostChannels; ++channel) {
          EXPECT_EQ(by_rows[channel * 2 * kRowGroups] != T(-7), channel < spec.channels()) << channel;
        }
        if (skip) {
          const std::size_t counts = (spec.channels() - spec.counts()) * 2 * kRowGroups;
          EXPECT_EQ(by_rows[counts + kRowGroups], T(127)) << "one infinite row in the first row group of output 1";
          EXPECT_EQ(by_rows[counts + 2 * kRowGroups - 1], T(kModelRows % 128));
        } else {
          EXPECT_FALSE(std::isfinite(by_rows[kRowGroups]));
        }
      }
    }
  }
}

TYPED_TEST(KernelModels, TotalsInOneGoAndInChunks) {
  using T = TypeParam;
  constexpr std::size_t kMany = 70, kOutputs = 3, kChannels = 2;
  Random random(3);
  std::vector<T> sums;
  for (std::size_t i = 0; i < kChannels * kOutputs * kMany; ++i) {
    sums.push_back(static_cast<T>(randomValue(random, Spread::kWide, this->kPrecision)));
  }
  const KernelImage image = FakeImageMaker().totals(this->options).value();
  const auto model = readModel(reinterpret_cast<const char*>(image.code.data()));
  ASSERT_TRUE(model);
  const auto totals = this->memory.put(std::vector<double>(kChannels * kOutputs));
  const auto chains = this->memory.put(std::vector<double>(kChannels * kOutputs * kSumChains));
  const auto add = [&](std::size_t first_row_group, std::size_t row_groups, bool first, bool last) {
    std::vector<T> part(kChannels * kOutputs * row_groups);
    for (std::size_t o = 0; o < kChannels * kOutputs; ++o) {
      for (std::size_t g = 0; g < row_groups; ++g) part[o * row_groups + g] = sums[o * kMany + first_row_group + g];
    }
    ModelLaunch launch{{1, kChannels, 1}, {128, 1, 1}, 0, {}};
    launch.arguments = {this->memory.put(part),
                        kOutputs * row_groups,
                        row_groups,
                        kOutputs,
                        kSumChains,
                        first && last ? 0 : chains,
                        totals,
                        first,
                        last};
    model->kernels[0]->run(launch, this->memory);
  };
  add(0, kMany, true, true);
  const auto whole = this->memory.template get<double>(totals);
  add(0, 32, true, false);
  add(32, 32, false, false);
  add(64, 6, false, true);
  EXPECT_EQ(this->memory.template get<double>(totals), whole);
  std::array<double, kSumChains> wanted{};
  for (std::size_t g = 0; g < kMany; ++g) wanted[g % kSumChains] += double{sums[4 * kMany + g]};
  for (std::size_t step = 1; step < kSumChains; step *= 2) {
    for (std::size_t i = 0; i < kSumChains; i += 2 * step) wanted[i] += wanted[i + step];
  }
  EXPECT_EQ(whole[4], wanted[0]);
}

TYPED_TEST(KernelModels, StridedColumns) {
  using T = TypeParam;
  std::vector<T> interleaved(2 * kModelRows);
  for (std::size_t r = 0; r < kModelRows; ++r) {
    for (std::size_t c = 0; c < 2; ++c) interleaved[2 * (kModelRows - 1 - r) + c] = this->data.x(c, r);
  }
  this->options.strided_columns = true;
  const Dag dag = graph<T>(this->kPrecision);
  const KernelImage image = FakeImageMaker().rows(std::span(&dag, 1), this->options).value();
  ModelLaunch launch{{3, 1, 1}, {128, 1, 1}, 0, {}};
  // Rows from the last to the first.
  const auto base = this->memory.put(interleaved) + 2 * (kModelRows - 1) * sizeof(T);
  launch.arguments = {base,
                      1,
                      std::uint64_t{0} - 2,
                      kModelRows,
                      this->parameters + 3 * sizeof(T),
                      this->memory.put(std::vector<std::uint32_t>{1, 0})};
  this->addOutputs(launch);
  readModel(reinterpret_cast<const char*>(image.code.data()))->kernels[0]->run(launch, this->memory);
  this->expectValues();
}

TYPED_TEST(KernelModels, WrongLaunchesAreFaults) {
  const HandlerTable table = this->table();
  const auto model = this->interpreter(table);
  const ModelLaunch good = this->interpreterLaunch(table, 2, 1);
  const auto fault = [&](const std::function<void(ModelLaunch&)>& change) -> std::string {
    ModelLaunch launch = good;
    change(launch);
    try {
      model->run(launch, this->memory);
    } catch (const ModelFault& found) {
      return found.what();
    }
    return "none";
  };
  EXPECT_EQ(fault([](ModelLaunch&) {}), "none");
  EXPECT_THAT(fault([](ModelLaunch& l) { --l.grid[0]; }), HasSubstr("a grid of"));
  EXPECT_THAT(fault([](ModelLaunch& l) { l.block[0] = 64; }), HasSubstr("a block of 64"));
  EXPECT_THAT(fault([](ModelLaunch& l) { --l.shared_bytes; }), HasSubstr("bytes of shared memory instead of"));
  EXPECT_THAT(fault([](ModelLaunch& l) { l.arguments[10] = 3; }), "3 row warps");
  EXPECT_THAT(fault([](ModelLaunch& l) { l.arguments[14] = 512; }), HasSubstr("bytes of shared memory instead of"));
  EXPECT_THAT(fault([](ModelLaunch& l) { ++l.arguments[11]; }), HasSubstr("tiles instead of"));
  EXPECT_THAT(fault([](ModelLaunch& l) {
                l.arguments[12] = 1;
                l.arguments[13] = 0;
              }),
              HasSubstr("column 1 of 1"));
  EXPECT_THAT(fault([](ModelLaunch& l) { l.arguments[1] = kModelRows; }), HasSubstr("a column stride of 1301"));
  EXPECT_THAT(fault([](ModelLaunch& l) { l.arguments[0] += 4096; }), HasSubstr("outside"));
  EXPECT_THAT(fault([](ModelLaunch& l) { l.arguments[16] = 3; }), HasSubstr("an output stride of 3"));
}

TEST(FakeImageMaker, CountsHoldsAndFails) {
  FakeImageMaker maker;
  Dag dag(Precision::kF32);
  dag.addRoot(dag.variable(0));
  const auto image = maker.rows(std::span(&dag, 1), {});
  ASSERT_TRUE(image);
  EXPECT_EQ(image->kernels.at(0).name, "srjit_rows_0");
  EXPECT_EQ(maker.rows(std::span(&dag, 1), {})->code, image->code);
  EXPECT_EQ(maker.count("rows"), 2u);
  EXPECT_EQ(maker.count(), 2u);
  maker.before = [](const FakeImageMaker::Request& request) -> Status {
    return request.kind == "totals" ? Status(Error{Errc::kCompile, "no", {}}) : okStatus();
  };
  EXPECT_EQ(maker.totals({}).error().message, "no");
  EXPECT_TRUE(maker.rows(std::span(&dag, 1), {}));
  maker.makes_ptx = true;
  EXPECT_EQ(maker.rows(std::span(&dag, 1), {})->form, ImageForm::kPtx);
  EXPECT_TRUE(maker.rows(std::span(&dag, 1), {})->kernels.empty());
  EXPECT_FALSE(
      readModel("\x7f"
                "ELF"));
  EXPECT_FALSE(readModel("srjit-model-cubin sm_90 rows 0"));
}

}  // namespace
}  // namespace srjit
