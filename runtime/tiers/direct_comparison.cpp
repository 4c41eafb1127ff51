// The probes of the direct tier's self-test, and their comparison.

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compiler/direct/emitter.h"
#include "ir/numbers/random.h"
#include "ir/numeric.h"
#include "ir/ops.h"
#include "passes/gradient/derivation.h"
#include "runtime/code/makers.h"
#include "runtime/engine_options.h"
#include "runtime/evaluation/dataset_state.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/evaluation/program_state.h"
#include "runtime/host/executor.h"
#include "runtime/launch/run.h"
#include "runtime/program.h"
#include "runtime/results.h"
#include "runtime/tiers/direct_self_test.h"

namespace srjit {
namespace {

constexpr std::size_t kColumns = 9;
constexpr std::size_t kRows = 1301;  ///< 11 row groups, and a last step that is not full
constexpr std::size_t kTrees = 96, kTreeOperators = 14;

constexpr std::uint64_t kSeed = 20261122;

Token randomLeaf(Random& random) {
  switch (random.below(4)) {
    case 0:
      return Token::parameter(static_cast<std::uint32_t>(random.below(2)));
    case 1:
      return Token::constant((static_cast<double>(random.below(2000)) - 1000) / 64);
    default:
      return Token::variable(static_cast<std::uint32_t>(random.below(kColumns)));
  }
}

/// Every operator on columns, then trees of all of them. Leaves and operators are drawn until all operands are used.
std::vector<Expression> probes() {
  std::vector<Op> ops;
  for (std::size_t i = 0; i < allOps().size(); ++i) ops.push_back(static_cast<Op>(i));
  std::vector<Expression> expressions;
  for (const Op op : ops) {
    std::vector<Token> tokens;
    for (int operand = 0; operand < arityOf(op); ++operand) {
      tokens.push_back(Token::variable(static_cast<std::uint32_t>(operand)));
    }
    tokens.push_back(Token::operation(op));
    expressions.push_back(Expression::create(std::move(tokens)).value());
  }
  Random random(kSeed);
  for (std::size_t tree = 0; tree < kTrees; ++tree) {
    std::vector<Token> tokens;
    int height = 0;
    for (std::size_t operators = 0; operators < kTreeOperators || height > 1;) {
      const Op op = ops[random.below(static_cast<std::uint32_t>(ops.size()))];
      const bool closing = operators >= kTreeOperators;
      if (arityOf(op) <= height && (!closing || arityOf(op) > 1) && (closing || random.below(3) != 0)) {
        tokens.push_back(Token::operation(op));
        height -= arityOf(op) - 1;
        ++operators;
      } else if (!closing) {
        tokens.push_back(randomLeaf(random));
        ++height;
      }
    }
    expressions.push_back(Expression::create(std::move(tokens)).value());
  }
  return expressions;
}

/// The sum of every pair of columns: two groups of roots.
std::vector<Expression> sumsOfColumns() {
  std::vector<Expression> sums;
  for (std::uint32_t a = 0; a < kColumns; ++a) {
    for (std::uint32_t b = 0; b < a; ++b) {
      sums.push_back(Expression::create({Token::variable(a), Token::variable(b), Token::operation(Op::kAdd)}).value());
    }
  }
  return sums;
}

/// Special numbers of both signs in all pairs, then random ones of all magnitudes.
template <class T>
std::vector<std::vector<T>> probeColumns() {
  using Limits = std::numeric_limits<T>;
  constexpr T kFirstWhole = 1 / Limits::epsilon(), kSubnormal = Limits::min() / 117;
  std::vector<T> specials = {Limits::quiet_NaN()};
  for (const T x : {T(0), T(0.5), T(1), T(2), T(3), T(127.5), T(149.5), kFirstWhole, 2 * kFirstWhole, Limits::max(),
                    Limits::infinity(), Limits::min(), Limits::denorm_min(), kSubnormal}) {
    specials.push_back(x);
    specials.push_back(-x);
  }
  Random random(kSeed);
  std::vector<std::vector<T>> columns(kColumns, std::vector<T>(kRows));
  for (std::size_t c = 0; c < kColumns; ++c) {
    for (std::size_t r = 0; r < kRows; ++r) {
      const bool special = c < 2 && r < specials.size() * specials.size();
      const std::size_t choice = c == 0 ? r / specials.size() : r % specials.size();
      const double magnitude = r % 2 == 0 ? 3 : std::ldexp(1.0, static_cast<int>(random.below(60)) - 30);
      const double unit = 2 * random.unit() - 1;
      columns[c][r] = special ? specials[choice] : static_cast<T>(magnitude * unit);
    }
  }
  return columns;
}

/// Options whose sums have every shape on data with weights or without: each term, with rows left out and without.
std::vector<LossOptions> lossesToCompare() {
  std::vector<LossOptions> options;
  for (const LossTermInfo& term : kernelLossTerms()) {
    const auto loss = std::ranges::find(allLosses(), term.term, &LossInfo::term);
    for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) options.push_back({loss->kind, nan});
  }
  return options;
}

/// How a comparison ends early: with an error, or the difference that it found.
struct Ended {
  Result<std::string> how;
};

template <class Value>
Value need(Result<Value> result) {
  if (!result) throw Ended{std::move(result).error()};
  return std::move(*result);
}

/// Warps with one row group and with two, in several blocks and in one.
constexpr std::array kGrids = {DirectGrid{.row_blocks = 2, .warps = 4}, DirectGrid{.row_blocks = 1, .warps = 16}};

/// For little work and for much; other shapes are groups of the same code.
std::array<DirectOptions, 2> shapesOn(unsigned multiprocessors) {
  constexpr std::size_t kMany = 1 << 20;
  return {directShape(1, 1, multiprocessors), directShape(kMany, kMany, multiprocessors)};
}

/// Expressions, and what making code of them takes.
struct Probes {
  Probes(const char* called, std::vector<Expression> expressions, const KernelStore& store, unsigned threads)
      : name(called) {
    source.precision = store.precision();
    source.math = store.math();
    source.set(expressions);
    all = source.all();
    for (std::size_t i = 0; i < source.parameterOffset(source.expressions.size()); ++i) {
      parameters.push_back(0.25 + 0.37 * static_cast<double>(i % 11));
    }
    graphs = directGraphs(order(threads));
  }
  std::size_t size() const { return all.size(); }
  CompileOrder order(unsigned threads) const { return {.source = source, .range = all, .threads = threads}; }

  const char* name;
  ProgramSource source;
  std::vector<std::uint32_t> all;
  std::vector<double> parameters;
  Graphs graphs;
};

/// Of engines whose numbers are T.
template <class T>
class Comparison {
 public:
  Comparison(const std::shared_ptr<KernelStore>& store, unsigned threads, const std::atomic<bool>& cancelled)
      : store_(store),
        queue_(store->sharedQueue()),
        shapes_(shapesOn(queue_->cuda->limits().multiprocessors)),
        threads_(threads),
        cancelled_(cancelled),
        trees_("probes", probes(), *store, threads),
        sums_("sums", sumsOfColumns(), *store, threads) {
    for (std::size_t r = 0; r < kRows; ++r) {
      target_.push_back(std::sin(static_cast<T>(r)));
      weights_.push_back(T(0.5) + static_cast<T>(r % 7));
    }
  }

  Result<std::string> run(const std::function<void()>& begin) {
    try {
      interpretTrees();
      computeLosses();
      need(store_->totals());
      const Data plain = resident(false), weighted = resident(true);
      stopIfCancelled();
      begin();
      comparePredictions(*plain);
      for (const Data& data : {plain, weighted}) {
        for (const LossOptions& options : options_) compareLosses(*data, options);
      }
      return std::string();
    } catch (Ended& ended) {
      return std::move(ended.how);
    }
  }

 private:
  using Data = std::shared_ptr<Dataset::State>;
  using Code = std::shared_ptr<const DeviceCode>;

  DataView view(bool weighted) const {
    DataView view;
    for (const auto& column : columns_) view.columns.emplace_back(column);
    view.target.emplace(target_);
    if (weighted) view.weights.emplace(weights_);
    return view;
  }

  void stopIfCancelled() const {
    if (cancelled_) throw Ended{Error{Errc::kCancelled, "comparing the direct tier was cancelled", {}}};
  }

  Data resident(bool weighted) const {
    Data data = need(Dataset::State::create(view(weighted), store_->precision()));
    data->residence = std::make_shared<DeviceData>(queue_, *data, queue_->cuda->freeMemory());
    return data;
  }

  /// The same columns, row by row in `memory`.
  Data strided(const DeviceBuffer& memory) const {
    std::vector<T> rows;
    for (std::size_t r = 0; r < kRows; ++r) {
      for (const auto& column : columns_) rows.push_back(column[r]);
    }
    queue_->uploads->complete([&] { queue_->uploads->copyToDevice(memory.address(), rows.data(), memory.bytes()); });
    const DeviceMatrix matrix{memory.address(), kRows, kColumns, kColumns * sizeof(T), sizeof(T), store_->precision()};
    return need(DeviceData::adopt(queue_, {.columns = matrix}, store_->precision()));
  }

  std::unique_ptr<DeviceRun> runOf(const Probes& probes, const Code& code, const Dataset::State& data,
                                   const KernelKind& kind, std::optional<DirectGrid> grid) const {
    RunPlan plan{store_, code, data.serial, kind, probes.size(), grid};
    return need(DeviceRun::create(std::move(plan), data, SIZE_MAX));
  }

  std::vector<T> predictionsOf(const Code& code, const Dataset::State& data, const KernelKind& kind,
                               std::optional<DirectGrid> grid) const {
    std::vector<T> predictions(trees_.size() * kRows);
    runOf(trees_, code, data, kind, grid)->evaluate(data, trees_.parameters, {predictions.data(), 0});
    return predictions;
  }

  void interpretTrees() {
    const auto code = std::make_shared<const DeviceCode>(encodeForDevice(*store_, trees_.order(threads_)));
    if (!code->failures.empty()) throw Ended{code->failures.front().error};
    predictions_ = predictionsOf(code, *resident(false), {}, {});
  }

  void computeLosses() {
    const EngineOptions options{
        .device = "cpu", .precision = sums_.source.precision, .math = sums_.source.math, .tier = Tier::kInterpret};
    const auto cpu = makeHostExecutor(options, threads_, store_->cache());
    auto state = std::make_shared<Program::State>();
    state->source = std::make_shared<const ProgramSource>(sums_.source);
    state->info.tier = options.tier;
    cpu->compile(*state, {}, {});
    const Program program(std::move(state));
    for (const bool weighted : {false, true}) {
      const Dataset data(need(cpu->upload(view(weighted))));
      for (const LossOptions& loss : options_) {
        const bool is_scaled = infoOf(loss.kind).isScaled();
        losses_.push_back(need(is_scaled ? cpu->run({momentsOf(*cpu, data, loss), data, {}, nullptr, kPlainSums})
                                         : cpu->run({program, data, sums_.parameters, nullptr, loss})));
      }
    }
  }

  /// The sums as outputs of graphs, of an expression in the order of channels.
  Program momentsOf(Executor& cpu, const Dataset& data, const LossOptions& loss) const {
    auto state = std::make_shared<Program::State>();
    state->source = std::make_shared<const ProgramSource>(
        sums_.source.derive({.quantity = Quantity::kLoss,
                             .columns = kColumns,
                             .loss = derivedLoss(loss, data.state()),
                             .weighted = data.state().has_weights,
                             .skips_invalid = loss.nan != NanPolicy::kPropagate}));
    state->info.tier = Tier::kInterpret;
    cpu.compile(*state, {}, {});
    return Program(std::move(state));
  }

  Code direct(const Probes& probes, const KernelKind& kind, const DirectOptions& shape) const {
    const std::atomic<bool> never = false;
    auto code = std::make_shared<const DeviceCode>(
        directForDevice(*store_, probes.order(threads_), probes.graphs, kind, shape, never));
    const std::size_t written = code->direct ? code->direct->expressions : 0, all = probes.size();
    if (written != all) throw Ended{fmt::format("{} of {} {} were refused", all - written, all, probes.name)};
    return code;
  }

  void comparePredictions(const Dataset::State& data) const {
    const DeviceBuffer memory(queue_->uploads, kRows * kColumns * sizeof(T));
    const Data by_row = strided(memory);
    for (const DirectOptions& shape : shapes_) {
      const Code code = direct(trees_, {}, shape);
      requireSame(predictionsOf(code, data, {}, kGrids[0]), "");
      requireSame(predictionsOf(code, *by_row, {.loss = {}, .strided_columns = true}, kGrids[1]), "strided columns, ");
    }
  }

  void requireSame(const std::vector<T>& actual, const char* where) const {
    for (std::size_t i = 0; i < actual.size(); ++i) {
      if (sameBits(predictions_[i], actual[i])) continue;
      throw Ended{fmt::format("{}probe {}, row {}: {:a} instead of {:a}", where, i / kRows, i % kRows, actual[i],
                              predictions_[i])};
    }
  }

  /// Compares with the losses of the CPU, in their order.
  void compareLosses(const Dataset::State& data, const LossOptions& options) {
    stopIfCancelled();
    const Losses& expected = losses_[compared_];
    const KernelKind kind{.loss = lossSpec(options, data.has_weights)};
    for (std::size_t way = 0; way < kGrids.size(); ++way) {
      const auto run = runOf(sums_, direct(sums_, kind, shapes_.at(way)), data, kind, kGrids.at(way));
      run->submitLoss(data, sums_.parameters);
      run->wait();
      if (infoOf(options.kind).isScaled()) {
        const std::span<const double> totals = run->totals();
        for (std::size_t i = 0; i < totals.size(); ++i) {
          const std::size_t channels = totals.size() / sums_.size();
          requireSame(i % sums_.size(), expected.values[i % sums_.size() * channels + i / sums_.size()], totals[i]);
        }
        continue;
      }
      Losses actual = run->emptyLosses();
      run->readLosses(data, options, actual);
      for (std::size_t i = 0; i < sums_.size(); ++i) {
        requireSame(i, expected.values[i], actual.values[i]);
        requireSame(i, static_cast<double>(expected.valid_rows[i]), static_cast<double>(actual.valid_rows[i]));
      }
    }
    ++compared_;
  }

  void requireSame(std::size_t sum, double expected, double actual) const {
    if (sameBits(expected, actual)) return;
    throw Ended{fmt::format("loss {} of sum {}: {:a} instead of {:a}", compared_, sum, actual, expected)};
  }

  std::shared_ptr<KernelStore> store_;
  std::shared_ptr<DeviceQueue> queue_;
  std::array<DirectOptions, 2> shapes_;
  unsigned threads_;
  const std::atomic<bool>& cancelled_;
  Probes trees_, sums_;
  std::vector<std::vector<T>> columns_ = probeColumns<T>();
  std::vector<T> target_, weights_;
  std::vector<T> predictions_;  ///< of the trees, as they should be
  std::vector<LossOptions> options_ = lossesToCompare();
  std::vector<Losses> losses_;  ///< of the sums, as they should be: without weights, then with them
  std::size_t compared_ = 0;    ///< of them
};

}  // namespace

Result<std::string> compareDirectCode(const std::shared_ptr<KernelStore>& store, unsigned threads,
                                      const std::function<void()>& begin, const std::atomic<bool>& cancelled) {
  return withZeroOf(store->precision(),
                    [&]<class T>(T) { return Comparison<T>(store, threads, cancelled).run(begin); });
}

}  // namespace srjit
