#include "runtime/tiers/direct_comparison.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compiler/direct/emitter.h"
#include "ir/numbers/random.h"
#include "ir/numeric.h"
#include "ir/ops.h"
#include "runtime/code/direct.h"
#include "runtime/code/interpreted/encode.h"
#include "runtime/engine_options.h"
#include "runtime/evaluation/dataset_state.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/evaluation/program_state.h"
#include "runtime/host/executor.h"
#include "runtime/launch/run.h"
#include "runtime/program.h"
#include "runtime/results.h"

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

/// Special numbers in all pairs, then random ones of all magnitudes.
template <class T>
std::vector<std::vector<T>> probeColumns() {
  using Limits = std::numeric_limits<T>;
  constexpr T kFirstWhole = 1 / Limits::epsilon();
  constexpr std::array<T, 21> kSpecial = {0,
                                          T(-0.0),
                                          1,
                                          -1,
                                          T(0.5),
                                          -2,
                                          3,
                                          Limits::infinity(),
                                          -Limits::infinity(),
                                          Limits::quiet_NaN(),
                                          Limits::max(),
                                          -Limits::max(),
                                          Limits::min(),
                                          -Limits::min(),
                                          Limits::denorm_min(),
                                          -Limits::denorm_min(),
                                          Limits::min() / 117,
                                          kFirstWhole,
                                          -2 * kFirstWhole,
                                          T(127.5),
                                          T(-149.5)};
  Random random(kSeed);
  std::vector<std::vector<T>> columns(kColumns, std::vector<T>(kRows));
  for (std::size_t c = 0; c < kColumns; ++c) {
    for (std::size_t r = 0; r < kRows; ++r) {
      const bool special = c < 2 && r < kSpecial.size() * kSpecial.size();
      const std::size_t choice = c == 0 ? r / kSpecial.size() : r % kSpecial.size();
      const double magnitude = r % 2 == 0 ? 3 : std::ldexp(1.0, static_cast<int>(random.below(60)) - 30);
      const double unit = 2 * random.unit() - 1;
      columns[c][r] = special ? kSpecial[choice] : static_cast<T>(magnitude * unit);
    }
  }
  return columns;
}

/// Options whose sums have every shape there is, on data without weights and with them: each term, with rows left out
/// and without.
const std::vector<LossOptions>& comparedLosses() {
  static const std::vector<LossOptions> losses = [] {
    std::vector<LossOptions> options;
    for (const LossTermInfo& term : kernelLossTerms()) {
      const auto loss = std::ranges::find(allLosses(), term.term, &LossInfo::term);
      for (const NanPolicy nan : {NanPolicy::kPropagate, NanPolicy::kSkip}) options.push_back({loss->kind, nan});
    }
    return options;
  }();
  return losses;
}

/// Warps with one row group and with two, in several blocks and in one.
constexpr std::array kGrids = {DirectGrid{.row_blocks = 2, .warps = 4}, DirectGrid{.row_blocks = 1, .warps = 16}};

/// For little work and for much; other shapes are groups of the same code.
std::array<DirectShape, 2> shapesOn(unsigned multiprocessors) {
  constexpr std::size_t kMany = 1 << 20;
  return {directShape(1, 1, multiprocessors), directShape(kMany, kMany, multiprocessors)};
}

/// Expressions, and what making code of them takes.
struct Probes {
  Probes(std::vector<Expression> expressions, const KernelStore& store, unsigned threads) {
    source.precision = store.precision();
    source.math = store.math();
    source.set(expressions);
    all.resize(source.expressions.size());
    std::iota(all.begin(), all.end(), 0U);
    for (std::size_t i = 0; i < source.parameterOffset(source.expressions.size()); ++i) {
      parameters.push_back(0.25 + 0.37 * static_cast<double>(i % 11));
    }
    graphs = graphsOf({source}, threads);
  }
  std::size_t size() const { return all.size(); }

  ProgramSource source;
  std::vector<std::uint32_t> all;
  std::vector<double> parameters;
  ProgramGraphs graphs;
};

/// Of engines whose numbers are T.
template <class T>
class Comparison {
 public:
  Comparison(const std::shared_ptr<DeviceQueue>& queue, const std::shared_ptr<KernelStore>& store, unsigned threads,
             const std::atomic<bool>& cancelled)
      : queue_(queue),
        shapes_(shapesOn(queue->cuda->limits().multiprocessors)),
        store_(store),
        threads_(threads),
        cancelled_(cancelled),
        trees_(probes(), *store, threads),
        sums_(sumsOfColumns(), *store, threads) {
    for (std::size_t r = 0; r < kRows; ++r) {
      target_.push_back(std::sin(static_cast<T>(r)));
      weights_.push_back(T(0.5) + static_cast<T>(r % 7));
    }
  }

  Result<std::string> run(const std::function<void()>& begin) {
    if (Status status = interpretTrees(); !status) return status.error();
    if (Status status = lossesOfTheCpu(); !status) return status.error();
    if (const auto totals = store_->totals(); !totals) return totals.error();
    auto plain = resident(false), weighted = resident(true);
    if (!plain) return plain.error();
    if (!weighted) return weighted.error();
    const Error stopped{Errc::kCancelled, "comparing the direct tier was cancelled", {}};
    if (cancelled_) return stopped;
    begin();
    auto difference = comparePredictions(**plain);
    for (std::size_t i = 0; i < losses_.size() && difference && difference->empty(); ++i) {
      if (cancelled_) return stopped;
      difference = compareLosses(i < comparedLosses().size() ? **plain : **weighted, i);
    }
    return difference;
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

  Result<Data> resident(bool weighted) const {
    auto data = Dataset::State::create(view(weighted), store_->precision());
    if (data) (*data)->residence = std::make_shared<DeviceData>(queue_, **data, queue_->cuda->freeMemory());
    return data;
  }

  /// The same columns, row by row in `memory`.
  Result<Data> strided(const DeviceBuffer& memory) const {
    std::vector<T> rows;
    for (std::size_t r = 0; r < kRows; ++r) {
      for (const auto& column : columns_) rows.push_back(column[r]);
    }
    queue_->uploads->complete([&] { queue_->uploads->copyToDevice(memory.address(), rows.data(), memory.bytes()); });
    const DeviceMatrix matrix{memory.address(), kRows, kColumns, kColumns * sizeof(T), sizeof(T), store_->precision()};
    return DeviceData::adopt(queue_, {.columns = matrix}, store_->precision());
  }

  CodeRequest request(const Probes& probes) const { return {probes.source, probes.all, *queue_, *store_, threads_}; }

  Result<std::unique_ptr<DeviceRun>> runOf(const Probes& probes, const Code& code, const Dataset::State& data,
                                           const KernelKind& kind, std::optional<DirectGrid> grid) const {
    return DeviceRun::create({queue_, store_, code, data.serial, kind, probes.size(), grid}, data, SIZE_MAX);
  }

  Status interpretTrees() {
    auto data = resident(false);
    if (!data) return data.error();
    const auto code = std::make_shared<const DeviceCode>(encodeForDevice(request(trees_)));
    if (!code->failures.empty()) return code->failures.front().error;
    auto run = runOf(trees_, code, **data, {}, {});
    if (!run) return run.error();
    predictions_.resize(trees_.size() * kRows);
    (*run)->evaluate(**data, trees_.parameters, {.host = reinterpret_cast<std::byte*>(predictions_.data())});
    return okStatus();
  }

  Status lossesOfTheCpu() {
    const EngineOptions options{
        .device = "cpu", .precision = sums_.source.precision, .math = sums_.source.math, .tier = Tier::kInterpret};
    const auto cpu = makeHostExecutor(options, threads_);
    if (!cpu) return cpu.error();
    auto state = std::make_shared<Program::State>();
    state->source = std::make_shared<const ProgramSource>(sums_.source);
    state->info.tier = options.tier;
    (*cpu)->compile(*state, {}, {});
    const Program program(std::move(state));
    for (const bool weighted : {false, true}) {
      auto uploaded = (*cpu)->upload(view(weighted));
      if (!uploaded) return uploaded.error();
      const Dataset data(std::move(*uploaded));
      for (const LossOptions& loss : comparedLosses()) {
        auto losses = (*cpu)->run({program, data, sums_.parameters, nullptr, loss});
        if (!losses) return losses.error();
        losses_.push_back(std::move(*losses));
      }
    }
    return okStatus();
  }

  Code direct(const Probes& probes, const KernelKind& kind, const DirectShape& shape) const {
    const std::atomic<bool> never = false;
    return std::make_shared<const DeviceCode>(directForDevice(request(probes), probes.graphs, kind, shape, never));
  }

  Result<std::string> comparePredictions(const Dataset::State& data) const {
    const DeviceBuffer memory(queue_->uploads, kRows * kColumns * sizeof(T));
    const auto by_row = strided(memory);
    if (!by_row) return by_row.error();
    for (const DirectShape& shape : shapes_) {
      const Code code = direct(trees_, {}, shape);
      const std::size_t written = code->direct ? code->direct->expressions : 0, probes = trees_.size();
      if (written != probes) return fmt::format("{} of {} probes were refused", probes - written, probes);
      auto difference = differenceOf(runOf(trees_, code, data, {}, kGrids[0]), data);
      if (!difference || !difference->empty()) return difference;
      difference =
          differenceOf(runOf(trees_, code, **by_row, {.loss = {}, .strided_columns = true}, kGrids[1]), **by_row);
      if (difference && !difference->empty()) difference->insert(0, "strided columns, ");
      if (!difference || !difference->empty()) return difference;
    }
    return std::string();
  }

  Result<std::string> differenceOf(const Result<std::unique_ptr<DeviceRun>>& run, const Dataset::State& data) const {
    if (!run) return run.error();
    std::vector<T> actual(predictions_.size());
    (*run)->evaluate(data, trees_.parameters, {.host = reinterpret_cast<std::byte*>(actual.data())});
    for (std::size_t i = 0; i < actual.size(); ++i) {
      if (sameBits(predictions_[i], actual[i])) continue;
      return fmt::format("probe {}, row {}: {:a} instead of {:a}", i / kRows, i % kRows, actual[i], predictions_[i]);
    }
    return std::string();
  }

  /// Losses number `index` of those of the CPU.
  Result<std::string> compareLosses(const Dataset::State& data, std::size_t index) const {
    const LossOptions& options = comparedLosses()[index % comparedLosses().size()];
    const KernelKind kind{.loss = lossSpec(options, data.has_weights)};
    for (std::size_t way = 0; way < kGrids.size(); ++way) {
      const Code code = direct(sums_, kind, shapes_.at(way));
      const std::size_t written = code->direct ? code->direct->expressions : 0, sums = sums_.size();
      if (written != sums) return fmt::format("{} of {} sums were refused", sums - written, sums);
      const auto run = runOf(sums_, code, data, kind, kGrids.at(way));
      if (!run) return run.error();
      (*run)->submitLoss(data, sums_.parameters);
      (*run)->wait();
      Losses actual = (*run)->emptyLosses();
      (*run)->readLosses(data, options, actual);
      const Losses& expected = losses_[index];
      for (std::size_t i = 0; i < sums_.size(); ++i) {
        if (sameBits(expected.values[i], actual.values[i]) && expected.valid_rows[i] == actual.valid_rows[i]) continue;
        return fmt::format("loss {} of sum {}: {:a} instead of {:a}", index, i, actual.values[i], expected.values[i]);
      }
    }
    return std::string();
  }

  std::shared_ptr<DeviceQueue> queue_;
  std::array<DirectShape, 2> shapes_;
  std::shared_ptr<KernelStore> store_;
  unsigned threads_;
  const std::atomic<bool>& cancelled_;
  Probes trees_, sums_;
  std::vector<std::vector<T>> columns_ = probeColumns<T>();
  std::vector<T> target_, weights_;
  std::vector<T> predictions_;  ///< of the trees, as they should be
  std::vector<Losses> losses_;  ///< of the sums, likewise
};

}  // namespace

Result<std::string> compareDirectCode(const std::shared_ptr<DeviceQueue>& queue,
                                      const std::shared_ptr<KernelStore>& store, unsigned threads,
                                      const std::function<void()>& begin, const std::atomic<bool>& cancelled) {
  return withZeroOf(store->precision(),
                    [&]<class T>(T) { return Comparison<T>(queue, store, threads, cancelled).run(begin); });
}

}  // namespace srjit
