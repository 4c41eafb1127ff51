#include "runtime/direct_proof.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <concepts>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <tbb/task_arena.h>

#include "compiler/direct.h"
#include "ir/mix.h"
#include "runtime/dataset.h"
#include "runtime/device_direct.h"
#include "runtime/device_run.h"
#include "runtime/loss_value.h"
#include "runtime/program.h"

namespace srjit {
namespace {

constexpr const char* kProved = "proved";
constexpr const char* kOpen = "open";
constexpr std::string_view kBegun = "begun ";
constexpr std::size_t kColumns = 5;
constexpr std::size_t kRows = 1301;  ///< two blocks of rows, and a last step that is not full
constexpr std::size_t kTrees = 96, kTreeOperators = 14;

class Sequence {
 public:
  std::uint64_t next() noexcept { return nextRandom(state_); }
  std::uint32_t below(std::uint32_t n) noexcept { return static_cast<std::uint32_t>((next() >> 32) * n >> 32); }

 private:
  std::uint64_t state_ = 20261122;
};

Token randomLeaf(Sequence& random) {
  switch (random.below(4)) {
    case 0:
      return Token::parameter(random.below(2));
    case 1:
      return Token::constant((static_cast<double>(random.below(2000)) - 1000) / 64);
    default:
      return Token::variable(random.below(kColumns));
  }
}

/// Every operator of the tier on columns, then trees of all of them. Leaves and operators are drawn until all operands
/// are used.
std::vector<Expression> probes(Math math) {
  std::vector<Op> ops;
  for (std::size_t i = 0; i < allOps().size(); ++i) {
    if (isDirect(static_cast<Op>(i), math)) ops.push_back(static_cast<Op>(i));
  }
  std::vector<Expression> expressions;
  for (const Op op : ops) {
    std::vector<Token> tokens;
    for (int operand = 0; operand < arityOf(op); ++operand) {
      tokens.push_back(Token::variable(static_cast<std::uint32_t>(operand)));
    }
    tokens.push_back(Token::operation(op));
    expressions.push_back(Expression::create(std::move(tokens)).value());
  }
  Sequence random;
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

/// Special numbers in all pairs, then random ones of all magnitudes.
std::vector<std::vector<float>> probeColumns() {
  using Limits = std::numeric_limits<float>;
  constexpr std::array kSpecial = {0.0f,
                                   -0.0f,
                                   1.0f,
                                   -1.0f,
                                   0.5f,
                                   -2.0f,
                                   3.0f,
                                   Limits::infinity(),
                                   -Limits::infinity(),
                                   Limits::quiet_NaN(),
                                   Limits::max(),
                                   -Limits::max(),
                                   Limits::min(),
                                   -Limits::min(),
                                   Limits::denorm_min(),
                                   -Limits::denorm_min(),
                                   1e-40f,
                                   8388608.0f,
                                   -16777217.0f,
                                   127.5f,
                                   -149.5f};
  Sequence random;
  std::vector<std::vector<float>> columns(kColumns, std::vector<float>(kRows));
  for (std::size_t c = 0; c < kColumns; ++c) {
    for (std::size_t r = 0; r < kRows; ++r) {
      const bool special = c < 2 && r < kSpecial.size() * kSpecial.size();
      const std::size_t choice = c == 0 ? r / kSpecial.size() : r % kSpecial.size();
      const double magnitude = r % 2 == 0 ? 3 : std::ldexp(1.0, static_cast<int>(random.below(60)) - 30);
      const double unit = static_cast<double>(random.next() >> 11) * 0x1p-52 - 1;
      columns[c][r] = special ? kSpecial[choice] : static_cast<float>(magnitude * unit);
    }
  }
  return columns;
}

/// Any NaN equals any NaN; 0 and -0 differ.
template <std::floating_point T>
bool sameBits(T a, T b) {
  return (a == b && std::signbit(a) == std::signbit(b)) || (std::isnan(a) && std::isnan(b));
}

long secondsSinceEpoch() {
  using std::chrono::system_clock;
  return static_cast<long>(
      std::chrono::duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch()).count());
}

/// Whether a driver that fails so does not take an image of ours.
bool refusesImage(CUresult code) {
  return code == CUDA_ERROR_INVALID_IMAGE || code == CUDA_ERROR_NO_BINARY_FOR_GPU || code == CUDA_ERROR_NOT_FOUND ||
         code == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
}

/// Whether a device is lost so by what its code does.
bool isCrash(CUresult code) {
  constexpr std::array kCrashes = {CUDA_ERROR_ILLEGAL_ADDRESS,       CUDA_ERROR_LAUNCH_TIMEOUT,
                                   CUDA_ERROR_ILLEGAL_INSTRUCTION,   CUDA_ERROR_MISALIGNED_ADDRESS,
                                   CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC,
                                   CUDA_ERROR_LAUNCH_FAILED};
  return std::find(kCrashes.begin(), kCrashes.end(), code) != kCrashes.end();
}

/// The probes evaluated by either tier.
class Comparison {
 public:
  Comparison(std::shared_ptr<DeviceQueue> queue, std::shared_ptr<KernelStore> store, unsigned threads)
      : queue_(std::move(queue)), store_(std::move(store)), threads_(threads) {
    source_.precision = store_->precision();
    source_.math = store_->math();
    source_.pipeline = Pipeline::standard(source_.math);
    source_.add(probes(source_.math));
    all_.resize(source_.expressions.size());
    std::iota(all_.begin(), all_.end(), 0U);
    for (std::size_t i = 0; i < source_.parameter_offsets.back(); ++i) {
      parameters_.push_back(0.25 + 0.37 * static_cast<double>(i % 11));
    }
  }

  /// The first difference in words; empty if there is none.
  Result<std::string> run() {
    const std::vector<std::vector<float>> columns = probeColumns();
    std::vector<float> target(kRows), weights(kRows);
    for (std::size_t r = 0; r < kRows; ++r) {
      target[r] = std::sin(static_cast<float>(r));
      weights[r] = 0.5f + static_cast<float>(r % 7);
    }
    DataView view;
    for (const auto& column : columns) view.columns.emplace_back(column);
    view.target.emplace(target);
    interpreter_ = std::make_shared<const DeviceCode>(encodeForDevice(request()));
    if (!interpreter_->failures.empty()) return interpreter_->failures.front().error;
    graphs_ = graphsOf(source_, threads_);
    auto difference = compare(view, {});
    if (difference && difference->empty()) difference = compare(view, LossOptions{});
    view.weights.emplace(weights);
    if (difference && difference->empty()) {
      difference = compare(view, LossOptions{.kind = LossKind::kMae, .nan = NanPolicy::kSkip});
    }
    return difference;
  }

 private:
  CodeRequest request() const { return {source_, all_, *queue_, *store_, threads_}; }

  Result<std::string> compare(const DataView& view, const std::optional<LossOptions>& loss) {
    auto data = Dataset::State::create(view, source_.precision);
    if (!data) return std::move(data).error();
    (*data)->on_device = std::make_shared<DeviceData>(queue_, **data, queue_->cuda->freeMemory());
    KernelKind kind;
    if (loss) kind.loss = lossSpec(*loss, (*data)->has_weights);
    const std::atomic<bool> never = false;
    const auto direct = std::make_shared<const DeviceCode>(directForDevice(request(), graphs_, kind, never));
    if (!direct->direct) return std::string("no code was made");
    const auto runOf = [&](const std::shared_ptr<const DeviceCode>& code) {
      return DeviceRun::create({queue_, store_, code, data->get(), (*data)->serial, kind, all_.size()}, 0);
    };
    auto expected = runOf(interpreter_);
    if (!expected) return std::move(expected).error();
    auto actual = runOf(direct);
    if (!actual) return std::move(actual).error();
    return loss ? compareLosses(**expected, **actual, *loss) : comparePredictions(**expected, **actual);
  }

  std::string comparePredictions(DeviceRun& expected, DeviceRun& actual) const {
    std::vector<float> one(all_.size() * kRows), other(one.size());
    expected.evaluate(parameters_, reinterpret_cast<std::byte*>(one.data()));
    actual.evaluate(parameters_, reinterpret_cast<std::byte*>(other.data()));
    for (std::size_t i = 0; i < one.size(); ++i) {
      if (sameBits(one[i], other[i])) continue;
      return fmt::format("probe {}, row {}: {:a} instead of {:a}", i / kRows, i % kRows, other[i], one[i]);
    }
    return {};
  }

  std::string compareLosses(DeviceRun& expected, DeviceRun& actual, const LossOptions& options) const {
    expected.submitLoss(parameters_);
    actual.submitLoss(parameters_);
    const Losses one = expected.losses(options), other = actual.losses(options);
    for (std::size_t i = 0; i < one.values.size(); ++i) {
      if (sameBits(one.values[i], other.values[i]) && one.valid_rows[i] == other.valid_rows[i]) continue;
      return fmt::format("loss of probe {}: {:a} instead of {:a}", i, other.values[i], one.values[i]);
    }
    return {};
  }

  std::shared_ptr<DeviceQueue> queue_;
  std::shared_ptr<KernelStore> store_;
  unsigned threads_;
  ProgramSource source_;
  std::vector<std::uint32_t> all_;
  std::vector<double> parameters_;
  std::shared_ptr<const DeviceCode> interpreter_;
  ProgramGraphs graphs_;
};

}  // namespace

DirectProof::DirectProof(std::shared_ptr<DeviceQueue> queue, std::shared_ptr<KernelStore> store,
                         std::shared_ptr<KernelCache> cache, unsigned threads)
    : queue_(std::move(queue)), store_(std::move(store)), cache_(std::move(cache)), threads_(threads) {
  const DeviceLimits& limits = queue_->cuda->limits();
  if (!hasDirectTier(limits, store_->precision())) {
    state_ = State::kRefuted;
    fault_ = store_->precision() == Precision::kF32
                 ? Error{Errc::kUnsupported, fmt::format("no direct tier for sm_{}", limits.capability), {}}
                 : Error{Errc::kUnsupported, "the direct tier computes in f32 alone", {}};
    return;
  }
  fact_ = fmt::format("direct tier of {} ({}) {} {}", limits.name, limits.driver_version, nameOf(store_->math()),
                      store_->identity());
  if (const auto known = cache_->readFact(fact_)) recall(*known);
}

void DirectProof::recall(const std::string& known) {
  if (known == kOpen) return;
  if (!known.starts_with(kBegun)) return settle(known == kProved ? State::kProved : State::kRefuted, known);
  long begun = 0;
  const char* const end = known.data() + known.size();
  const bool is_number = std::from_chars(known.data() + kBegun.size(), end, begun).ptr == end;
  if (!is_number || secondsSinceEpoch() - begun > kLongestProof) {
    settle(State::kRefuted, "a process began to compare them, and did not end");
  }
}

void DirectProof::settle(State state, std::string difference) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  if (state == State::kProved) return;
  fault_ = Error{Errc::kUnsupported,
                 "the direct tier is off: its code failed the comparison with the interpreter's on this device and "
                 "driver (" +
                     std::move(difference) + ")",
                 {}};
}

std::optional<Error> DirectProof::known() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

bool DirectProof::isOpen() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kOpen;
}

std::optional<Error> DirectProof::fault() {
  const std::lock_guard proving(proving_);
  if (!isOpen()) return known();
  cache_->writeFact(fact_, fmt::format("{}{}", kBegun, secondsSinceEpoch()));
  try {
    // Other tasks of the arena may need the proof, too, and would wait for it inside of it.
    auto difference = tbb::this_task_arena::isolate([&] { return Comparison(queue_, store_, threads_).run(); });
    if (!difference) {
      keep(State::kOpen, {});
      return std::move(difference).error();
    }
    keep(difference->empty() ? State::kProved : State::kRefuted, *difference);
  } catch (const CudaFailure& failure) {
    const bool refused = refusesImage(failure.code());
    keep(refused || isCrash(failure.code()) ? State::kRefuted : State::kOpen, failure.error().message);
    if (!refused) throw;
  } catch (...) {
    keep(State::kOpen, {});
    throw;
  }
  return known();
}

void DirectProof::keep(State state, const std::string& difference) {
  cache_->writeFact(fact_, state == State::kProved ? kProved : state == State::kOpen ? kOpen : difference);
  if (state != State::kOpen) settle(state, difference);
}

}  // namespace srjit
