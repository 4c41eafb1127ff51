#include "runtime/launch/device_loss.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "ir/numbers/rounding.h"
#include "ir/ops.h"
#include "runtime/code/device_arrays.h"
#include "runtime/code/interpreted/chunk_encoder.h"
#include "runtime/evaluation/loss_value.h"
#include "runtime/launch/kernels.h"
#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

/// Tokens of a warp's window and the two behind it, at least.
constexpr std::size_t kLeastWindow = 4;

/// Expressions of a part that is not divided further.
constexpr std::size_t kWholePart = 32;

template <class T>
T* pointer(CUdeviceptr address) {
  return std::bit_cast<T*>(address);
}

Error invalid(std::string message) { return {Errc::kInvalid, std::move(message), {}}; }
Error unsupported(std::string message) { return {Errc::kUnsupported, std::move(message), {}}; }

Status checkOptions(const DeviceLossOptions& options, const Dataset::State& data) {
  if (options.most_tokens < 1 || options.most_tokens > kMostDeviceTokens) {
    return invalid(fmt::format("{} tokens of an expression, expected 1 to {}", options.most_tokens, kMostDeviceTokens));
  }
  if (options.expressions < 1) return invalid("0 expressions, expected at least 1");
  if (options.expressions > UINT32_MAX) {
    return invalid(fmt::format("{} expressions, expected fewer than 2^32", options.expressions));
  }
  if (options.operators.empty()) return invalid("no operators that expressions may have");
  if (!DeviceLoss::Work::takes(options.loss, data)) {
    const std::string_view name = options.loss.custom ? "custom" : infoOf(options.loss.kind).name;
    return unsupported(fmt::format(
        "the loss {} of expressions on a device: expected one of plain errors, as mse, rmse, mae or nmse", name));
  }
  return okStatus();
}

}  // namespace

DeviceLoss::Work::Work(std::shared_ptr<KernelStore> store, Dataset data, const DeviceLossOptions& options,
                       std::vector<std::uint32_t> columns)
    : store_(std::move(store)),
      queue_(store_->queue()),
      data_(std::move(data)),
      options_(options),
      columns_(std::move(columns)),
      element_(static_cast<std::size_t>(bytesOf(store_->precision()))),
      spec_(lossSpec(options.loss, data_.state().has_weights)) {
  if (!columns_.empty()) return;
  columns_.resize(data_.columns());
  std::iota(columns_.begin(), columns_.end(), 0U);
}

Result<std::shared_ptr<DeviceLoss::Work>> DeviceLoss::Work::create(std::shared_ptr<KernelStore> store, Dataset data,
                                                                   const DeviceLossOptions& options,
                                                                   std::vector<std::uint32_t> columns) {
  const Dataset::State& state = data.state();
  if (Status valid = checkOptions(options, state); !valid) return std::move(valid).error();
  const DeviceLimits& limits = store->queue().cuda->limits();
  const InterpreterLimits most(limits, store->precision());
  const std::size_t staged = columns.empty() ? state.columns : columns.size();
  if (staged > most.columns) {
    return unsupported(
        fmt::format("{} columns, but expressions on a device take at most {} here; leave out those that "
                    "no expression has",
                    staged, most.columns));
  }
  if (deviceDataOf(state).isStreamed()) {
    return unsupported("data that the GPU's memory does not hold; use Engine::loss(), or fewer rows");
  }
  std::shared_ptr<Work> work(new Work(std::move(store), std::move(data), options, std::move(columns)));
  work->takeMemory();
  if (Status taken = work->takeKernels(); !taken) return std::move(taken).error();
  return work;
}

bool DeviceLoss::Work::takes(const LossOptions& loss, const Dataset::State& data) {
  return !isOfGraphs(loss, data) && !infoOf(loss.kind).isScaled();
}

DeviceLoss::Work::~Work() {
  if (is_done_ || queue_.cuda->isForked()) return;
  const CurrentContext current(*queue_.cuda, std::nothrow);
  queue_.cuda->driver().cuCtxSynchronize();
}

// Of a part: programs and numbers as long as they may be, sums and totals of all channels.
void DeviceLoss::Work::takeMemory() {
  const DeviceRows& rows = deviceDataOf(data_.state()).layout();
  const std::size_t groups = ceilDivide(rows.rows, kGroupRows), channels = spec_.channels();
  const auto layOut = [&](std::size_t part) {
    ArrayLayout layout;
    const std::size_t tokens = part * options_.most_tokens;
    struct {
      std::size_t counts, programs, offsets, numbers, faults, sums, totals, bytes;
    } at{};
    at.counts = layout.add<TreeCounts>(1);
    at.programs = layout.add<DeviceToken>(roomForPrograms(tokens, part));
    at.offsets = layout.add<std::uint32_t>(part + 1);
    at.numbers = layout.add<std::byte>(tokens * element_);
    at.faults = layout.add<DeviceFault>(part);
    at.sums = layout.add<std::byte>(channels * part * groups * element_);
    at.totals = layout.add<double>(channels * part);
    at.bytes = layout.bytes();
    return at;
  };
  part_ = options_.expressions;
  // Tokens are numbered with 32 bits; a block has one program and kGroupRows rows at least.
  const auto isTooMany = [&](std::size_t part) {
    return layOut(part).bytes > options_.bytes || roomForPrograms(part * options_.most_tokens, part) > UINT32_MAX ||
           part * groups > kMaxGridX;
  };
  while (part_ > kWholePart && isTooMany(part_)) part_ = (part_ + 1) / 2;
  const auto at = layOut(part_);
  memory_ = DeviceBuffer(queue_.uploads, at.bytes);
  const CUdeviceptr memory = memory_.address();
  arguments_.counts = pointer<TreeCounts>(memory + at.counts);
  arguments_.programs = pointer<DeviceToken>(memory + at.programs);
  arguments_.program_offsets = pointer<std::uint32_t>(memory + at.offsets);
  arguments_.numbers = pointer<std::byte>(memory + at.numbers);
  arguments_.faults = pointer<DeviceFault>(memory + at.faults);
  sums_ = memory + at.sums;
  total_sums_ = memory + at.totals;
}

Status DeviceLoss::Work::takeKernels() {
  const Dataset::State& data = data_.state();
  const Precision precision = store_->precision();
  code_.family = familyOf(options_.operators);
  // The host does not know the lengths of programs. Mostly they are shorter than this; other blocks have windows.
  code_.most_tokens = options_.most_tokens;
  code_.sections = {{.programs = static_cast<std::uint32_t>(part_),
                     .staged_columns = static_cast<std::uint32_t>(columns_.size()),
                     .slots = kLaneSlots}};
  geometry_ = chooseGeometry(code_, code_.sections[0], data.rows, precision, queue_.cuda->limits());
  if (geometry_.window == 0) {
    const std::size_t teams = kBlockWarps / geometry_.row_warps;
    const std::size_t tokens = code_.mostTokens(code_.sections[0], geometry_.programs_per_warp * teams) + 2 * teams;
    geometry_.window =
        toUnsigned(std::max<std::size_t>(ceilDivide(tokens, std::size_t{kBlockWarps}), kLeastWindow) - 2);
  }
  shared_bytes_ = interpreterSharedBytes(precision, geometry_, columns_.size(), kLaneSlots, 0);
  if (const std::size_t most = queue_.cuda->limits().shared_bytes_per_block; shared_bytes_ > most) {
    return unsupported(
        fmt::format("{} columns and expressions of {} tokens take {} bytes of shared memory, but blocks "
                    "have at most {}; use fewer of either",
                    columns_.size(), options_.most_tokens, shared_bytes_, most));
  }
  const auto interpreter =
      store_->interpreter({code_.family, geometry_.rows_per_thread}, {spec_, deviceDataOf(data).isStrided()});
  if (!interpreter) return interpreter.error();
  interpreter_ = *interpreter;
  const auto totals = store_->totals();
  if (!totals) return totals.error();
  totals_ = *totals;
  const auto lanes = store_->lanes();
  if (!lanes) return lanes.error();
  lanes_ = *lanes;
  trees_ = lanes_->kernel(kTreesKernel);
  losses_ = lanes_->kernel(kLossesKernel);

  putTables();
  arguments_.most_tokens = options_.most_tokens;
  arguments_.columns = static_cast<std::uint32_t>(columns_.size());
  arguments_.precision = precision;
  arguments_.math = store_->math();
  arguments_.sums = pointer<std::byte>(sums_);
  arguments_.channels = static_cast<std::uint32_t>(spec_.channels());
  arguments_.row_groups = static_cast<std::uint32_t>(ceilDivide(deviceDataOf(data).layout().rows, kGroupRows));
  return okStatus();
}

// The handlers of the interpreter, which operators expressions may have, and the columns.
void DeviceLoss::Work::putTables() {
  std::vector<std::uint8_t> is_allowed(kOpCount);
  for (const Op op : options_.operators) is_allowed[static_cast<std::size_t>(op)] = 1;
  std::span<const std::uint8_t> allowed = is_allowed;
  std::span<const std::uint32_t> map = columns_;
  HandlerNumbers& handlers = arguments_.handlers;
  handlers = store_->table({code_.family, geometry_.rows_per_thread}).numbers();
  const auto forEach = [&](const auto& visit) {
    visit(handlers.ops);
    visit(handlers.plans);
    visit(handlers.plain);
    visit(handlers.applies);
    visit(allowed);
    visit(map);
  };
  tables_ = copyArrays(queue_.uploads, forEach);
  arguments_.is_allowed = allowed.data();
  column_map_ = std::bit_cast<CUdeviceptr>(map.data());
}

Status DeviceLoss::Work::check(const DevicePopulation& population, const DeviceLossOutputs& out) {
  if (population.expressions > options_.expressions) {
    return invalid(fmt::format("{} expressions, expected at most {}", population.expressions, options_.expressions));
  }
  if (population.offsets == 0) {
    if (population.stride == 0 || population.tokens / population.stride < population.expressions) {
      return invalid(fmt::format("{} tokens for {} expressions that begin {} tokens after one another",
                                 population.tokens, population.expressions, population.stride));
    }
  }
  const auto bytes = [](Precision precision) { return static_cast<std::size_t>(bytesOf(precision)); };
  const struct {
    const char* what;
    std::uint64_t address;
    std::size_t alignment;
    bool is_needed = false;
  } arrays[] = {{"codes", population.codes, sizeof(std::int32_t), true},
                {"losses", out.losses, bytes(out.type), true},
                {"values", population.values, bytes(population.values_type)},
                {"offsets", population.offsets, sizeof(std::int64_t)},
                {"lengths", population.lengths, sizeof(std::int32_t)},
                {"valid rows", out.valid_rows, sizeof(std::int64_t)},
                {"faults", out.faults, 1}};
  for (const auto& array : arrays) {
    if (array.address == 0 && array.is_needed) return invalid(fmt::format("no address of {}", array.what));
    if (array.address == 0) continue;
    if (array.address % array.alignment != 0) {
      return invalid(
          fmt::format("{} at {:#x}, expected a multiple of {} bytes", array.what, array.address, array.alignment));
    }
    // Asking the driver takes microseconds; arrays are mostly those of the call before.
    if (std::ranges::find(known_, array.address) != known_.end()) continue;
    if (Status own = checkOwner(array.what, queue_, {.pointer = array.address}); !own) return own;
    known_[next_known_++ % known_.size()] = array.address;
  }
  return okStatus();
}

Status DeviceLoss::Work::submit(const DevicePopulation& population, const DeviceLossOutputs& out,
                                std::uint64_t stream) {
  if (queue_.cuda->isForked()) return Error{Errc::kMachine, "work of before this process was forked", {}};
  return guarded([&] {
    const CurrentContext current(*queue_.cuda);
    return put(population, out, stream);
  });
}

Status DeviceLoss::Work::put(const DevicePopulation& population, const DeviceLossOutputs& out, std::uint64_t stream) {
  if (population.expressions == 0) return okStatus();
  if (Status valid = check(population, out); !valid) return valid;
  const Dataset::State& data = data_.state();
  TreeArguments trees = arguments_;
  trees.codes = pointer<const std::int32_t>(population.codes);
  trees.values = pointer<const std::byte>(population.values);
  trees.offsets = pointer<const std::int64_t>(population.offsets);
  trees.lengths = pointer<const std::int32_t>(population.lengths);
  trees.tokens = population.tokens;
  trees.stride = population.stride;
  trees.values_type = population.values_type;
  trees.notation = population.notation;
  LossArguments losses{};
  losses.totals = pointer<const double>(total_sums_);
  losses.rows = data.rows;
  losses.all_weights = data.has_weights ? data.weight_sum : static_cast<double>(data.rows);
  losses.target_variance = data.target_variance;
  losses.kind = options_.loss.kind;
  losses.worst = infoOf(options_.loss.kind).worst;
  losses.losses_type = out.type;
  losses.skips_invalid = spec_.skip_invalid;
  losses.rejects_invalid = options_.loss.nan == NanPolicy::kReject;
  losses.is_weighted = spec_.weighted;
  const BorrowedStream to(*queue_.cuda, std::bit_cast<CUstream>(stream));
  for (std::size_t first = 0; first < population.expressions; first += part_) {
    trees.first = first;
    trees.expressions = static_cast<std::uint32_t>(std::min(part_, population.expressions - first));
    trees.lanes = lanesOfTree(trees.expressions, queue_.cuda->limits().multiprocessors);
    if (out.faults != 0) trees.faults = pointer<DeviceFault>(out.faults + first);
    losses.faults = trees.faults;
    losses.expressions = trees.expressions;
    losses.losses = pointer<std::byte>(out.losses + first * static_cast<std::size_t>(bytesOf(out.type)));
    if (out.valid_rows != 0) losses.valid_rows = pointer<std::int64_t>(out.valid_rows + first * sizeof(std::int64_t));
    submitPart(to, trees, losses);
  }
  return okStatus();
}

void DeviceLoss::Work::submitPart(const BorrowedStream& stream, const TreeArguments& trees,
                                  const LossArguments& losses) {
  const std::uint32_t count = trees.expressions;
  stream.fill(std::bit_cast<CUdeviceptr>(trees.counts), 0, sizeof(TreeCounts));
  const unsigned threads = threadsOfBlock(trees.most_tokens, trees.lanes);
  stream.launch({.kernel = trees_.get(),
                 .grid_x = toUnsigned(ceilDivide(count, threads / trees.lanes)),
                 .block_threads = threads,
                 .shared_bytes = treesSharedBytes(trees.most_tokens, trees.lanes),
                 .arguments = addressesOf(trees)});

  const DeviceRows& rows = deviceDataOf(data_.state()).layout();
  const InterpreterSection& section = code_.sections[0];
  const SumsOfLoss sums{.sums = sums_,
                        .totals = total_sums_,
                        .outputs = count,
                        .channels = spec_.channels(),
                        .row_groups = ceilDivide(rows.rows, kGroupRows)};
  launchInterpreter(stream, interpreter_, geometry_, shared_bytes_, rows,
                    {.parameters = std::bit_cast<CUdeviceptr>(trees.numbers),
                     .column_map = column_map_,
                     .tokens = std::bit_cast<CUdeviceptr>(trees.programs),
                     .offsets = std::bit_cast<CUdeviceptr>(trees.program_offsets),
                     .programs = count,
                     .staged_columns = section.staged_columns,
                     .slots = section.slots},
                    rows.target, rows.weights, sums.sums, sums.channelStride());
  launchTotals(stream, totals_, sums, true, true);
  stream.launch({.kernel = losses_.get(),
                 .grid_x = toUnsigned(ceilDivide(count, kLossesThreads)),
                 .block_threads = kLossesThreads,
                 .arguments = addressesOf(losses)});
}

Status DeviceLoss::submit(const DevicePopulation& population, const DeviceLossOutputs& out,
                          std::uint64_t stream) const {
  return work_->submit(population, out, stream);
}

}  // namespace srjit
