#include "runtime/code/makers.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <tbb/enumerable_thread_specific.h>
#include <tbb/parallel_for.h>

#include "compiler/direct/emitter.h"
#include "compiler/sass/cubin.h"
#include "compiler/target/architecture.h"
#include "runtime/platform/clock.h"

namespace srjit {

struct DirectScratch {
  DirectOptions options;
  std::optional<tbb::enumerable_thread_specific<DirectEmitter>> emitters;  ///< for the options
  std::vector<DirectPart> parts;
  KernelImage image;

  /// Without the emitters, which hold no more than the largest graph takes, one per thread.
  std::size_t bytes() const noexcept {
    const auto heldBytes = [](const auto& array) { return array.capacity() * sizeof(array[0]); };
    std::size_t bytes = heldBytes(image.code);
    for (const DirectPart& part : parts) {
      bytes += heldBytes(part.words) + heldBytes(part.groups) + heldBytes(part.parameters) + heldBytes(part.outputs) +
               heldBytes(part.exits) + heldBytes(part.refused);
    }
    return bytes;
  }
};

namespace {

constexpr std::size_t kFewWarps = 8;  ///< of a block that is one of few

class DirectMaker {
 public:
  DirectMaker(KernelStore& store, const CompileOrder& order, const Graphs& graphs, const KernelKind& kind,
              const DirectOptions& shape, const std::atomic<bool>& cancelled)
      : store_(store), order_(order), source_(order.source), graphs_(graphs), cancelled_(cancelled), options_(shape) {
    options_.architecture = store.queue().cuda->limits().capability;
    options_.precision = source_.precision;
    options_.math = source_.math;
    options_.loss = kind.loss;
    options_.subroutines = options_.subroutines && !isDouble(options_.precision);
    scratch_ = store.directScratch().take();
    if (scratch_ == nullptr) scratch_ = std::make_shared<DirectScratch>();
    if (scratch_->emitters && scratch_->options == options_) return;
    scratch_->options = options_;
    scratch_->emitters.emplace([options = options_] { return DirectEmitter::create(options).value(); });
  }

  DeviceCode run() {
    const Stopwatch watch;
    emit();
    if (cancelled_.load()) return {};
    Result<DirectImage> image = linkDirect(parts_, options_);
    interpretTheRest(image.ok());
    if (!image) {
      code_.status.error = std::move(image).error();
    } else if (!image->groups.empty()) {
      load(*image);
    }
    code_.info.nodes_after += graphs_.nodes;
    code_.info.nodes_before = source_.tokens;
    code_.info.seconds_passes += graphs_.seconds;
    code_.info.seconds_codegen = watch.seconds();
    // Not after an exception, which may leave work half done in it.
    store_.directScratch().giveBack(std::move(scratch_));
    return std::move(code_);
  }

 private:
  /// Of one part: the table of numbers, and that of outputs.
  struct Tables {
    ParameterTable numbers;
    std::vector<std::uint32_t> outputs;
    std::size_t expressions = 0;
  };

  void emit() {
    const std::size_t count = graphs_.dags.size();
    if (scratch_->parts.size() < count) scratch_->parts.resize(count);
    parts_ = std::span(scratch_->parts).first(count);
    tables_.resize(count);
    tbb::parallel_for(std::size_t{0}, count, [&](std::size_t c) {
      if (cancelled_.load(std::memory_order_relaxed)) return;
      scratch_->emitters->local().emit(graphs_.dags[c], parts_[c]);
      fillTables(c);
    });
  }

  const std::vector<std::uint32_t>& expressionsOf(std::size_t c) const { return graphs_.ranges[c].expressions; }

  /// What the entries of a part's tables are in this program.
  void fillTables(std::size_t c) {
    const DirectPart& part = parts_[c];
    const std::span<const ParameterSource> parameters = graphs_.dags[c].parameters();
    Tables& tables = tables_[c];
    for (const std::uint32_t number : part.parameters) {
      if (number >= parameters.size()) {
        tables.numbers.addLiteral(0);  // padding
      } else {
        tables.numbers.add(parameters[number], offsetOf(parameters[number], source_, expressionsOf(c)));
      }
    }
    tables.outputs.reserve(part.outputs.size());
    const std::size_t first = source_.outputOffset(expressionsOf(c).front()), outputs = source_.outputs();
    const std::uint32_t items = directItems(options_.loss);
    for (const std::uint32_t item : part.outputs) {
      const bool is_item = item != DirectPart::kNoRoot;
      tables.expressions += is_item && item % items == 0 ? 1 : 0;
      const std::size_t output = first + item / items + outputs * (item % items);
      tables.outputs.push_back(is_item ? static_cast<std::uint32_t>(output) : 0);
    }
  }

  /// Encodes the refused expressions; all if the parts were not `linked`. If one output of an expression was refused,
  /// all its outputs are encoded; the kernels then write some outputs twice, with the same bits.
  void interpretTheRest(bool linked) {
    const auto hasOutputs = [&](std::uint32_t e) { return source_.outputOffset(e) < source_.outputOffset(e + 1); };
    std::vector<std::uint32_t> rest;
    for (std::size_t c = 0; c < parts_.size(); ++c) {
      if (!linked) std::ranges::copy_if(expressionsOf(c), std::back_inserter(rest), hasOutputs);
      for (std::size_t i = 0; linked && i < parts_[c].refused.size(); ++i) {
        const std::uint32_t expression = expressionOf(c, parts_[c].refused[i]);
        if (rest.empty() || rest.back() != expression) rest.push_back(expression);
      }
    }
    if (!rest.empty()) {
      code_ = encodeForDevice(store_, order_.of(rest));
      if (linked) code_.direct_gaps = refusal(rest);
    }
    code_.failures.insert(code_.failures.end(), graphs_.failures.begin(), graphs_.failures.end());
    std::ranges::sort(code_.failures, {}, &Failure::expression);
  }

  std::uint32_t expressionOf(std::size_t c, std::size_t root) const {
    std::uint32_t e = expressionsOf(c).front();
    if (!source_.derivation) return e + static_cast<std::uint32_t>(root);
    const std::size_t output = source_.outputOffset(e) + root;
    while (source_.outputOffset(e + 1) <= output) ++e;
    return e;
  }

  Error refusal(std::span<const std::uint32_t> refused) const {
    return {Errc::kUnsupported,
            fmt::format("no direct code for {} of {} expressions; the first is expression {}, which {}", refused.size(),
                        source_.expressions.size(), refused.front() + 1, tooLongText(options_)),
            {}};
  }

  // One module of all parts, and the tables that its kernel reads.
  void load(const DirectImage& image) {
    const KernelDescription kernel = directKernel(image, parts_);
    KernelImage& loadable = scratch_->image;
    writeCubin({&kernel, 1}, options_.architecture, loadable.code);
    const CurrentContext current(*store_.queue().cuda);
    DirectCode direct;
    direct.module = Module(store_.queue().cuda, loadable);
    direct.kernel = direct.module.kernel(kDirectKernel);
    direct.groups = image.groups.size();
    direct.has_subroutines = image.has_subroutines;
    while (code_.parameters.size() % 4 != 0) code_.parameters.addLiteral(0);
    direct.first_number = code_.parameters.size();

    std::vector<std::uint32_t> outputs;
    for (const Tables& tables : tables_) {
      code_.parameters.append(tables.numbers);
      outputs.insert(outputs.end(), tables.outputs.begin(), tables.outputs.end());
      direct.expressions += tables.expressions;
    }
    upload(direct, image.groups, outputs);
    code_.direct.emplace(std::move(direct));
  }

  void upload(DirectCode& direct, std::span<const DirectGroup> groups, std::span<const std::uint32_t> outputs) const {
    const DeviceQueue& queue = store_.queue();
    const std::shared_ptr<PinnedBuffer> staging = queue.pinned.take(groups.size_bytes() + outputs.size_bytes());
    auto* const bytes = static_cast<std::byte*>(staging->data());
    std::memcpy(bytes, groups.data(), groups.size_bytes());
    std::memcpy(bytes + groups.size_bytes(), outputs.data(), outputs.size_bytes());
    direct.memory = DeviceBuffer(queue.uploads, groups.size_bytes() + outputs.size_bytes());
    direct.group_table = direct.memory.address();
    direct.outputs = direct.group_table + groups.size_bytes();
    queue.uploads->complete([&] { queue.uploads->copyToDevice(direct.group_table, bytes, direct.memory.bytes()); });
  }

  KernelStore& store_;
  const CompileOrder& order_;
  const ProgramSource& source_;
  const Graphs& graphs_;
  const std::atomic<bool>& cancelled_;
  DirectOptions options_;
  std::shared_ptr<DirectScratch> scratch_;
  std::span<DirectPart> parts_;  ///< in the scratch
  std::vector<Tables> tables_;   ///< of each part
  DeviceCode code_;
};

}  // namespace

bool hasDirectTier(const DeviceLimits& limits) noexcept {
  return std::ranges::find(directArchitectures(), limits.capability) != directArchitectures().end();
}

DirectOptions directShape(std::size_t expressions, std::size_t rows, unsigned multiprocessors) noexcept {
  constexpr std::size_t kBlocks = 4;  // of a multiprocessor, at least: 32 warps
  constexpr unsigned kLeastRoots = 8;
  const std::size_t parts = ceilDivide(rows, kFewWarps * kGroupRows);
  const auto blocks = [&](unsigned roots) { return ceilDivide(expressions, roots) * parts; };
  unsigned roots = kDirectRoots;
  while (roots > kLeastRoots && blocks(roots) < kBlocks * multiprocessors) roots /= 2;
  const bool is_little = blocks(roots) < kBlocks * multiprocessors;
  DirectOptions shape;
  shape.roots = roots;
  if (!is_little) shape.window = 1;
  shape.subroutines = !is_little;
  return shape;
}

DeviceCode directForDevice(KernelStore& store, const CompileOrder& order, const Graphs& graphs, const KernelKind& kind,
                           const DirectOptions& shape, const std::atomic<bool>& cancelled) {
  return DirectMaker(store, order, graphs, kind, shape, cancelled).run();
}

std::optional<Error> directRefusal(const DeviceRows& rows, Precision precision) {
  const std::uint64_t max_stride = UINT32_MAX / static_cast<std::uint64_t>(bytesOf(precision));
  if (rows.column_stride <= max_stride && rows.row_stride <= max_stride) return std::nullopt;
  return Error{Errc::kUnsupported,
               fmt::format("rows {} and columns {} numbers apart, but direct code takes 0 to {}",
                           static_cast<std::int64_t>(rows.row_stride), static_cast<std::int64_t>(rows.column_stride),
                           max_stride),
               {}};
}

DirectGrid directGrid(std::size_t rows, std::size_t groups, unsigned registers, bool has_subroutines,
                      unsigned multiprocessors) noexcept {
  // More blocks shorten the tail of the launch, but each takes time to start. With more groups than multiprocessors,
  // warps wait for fetches of code: in larger blocks more warps run the fetched code. Code with subroutines is longest,
  // so a multiprocessor has one group of it at a time.
  constexpr std::size_t kWaves = 6, kRegisters = 65536, kManyWarps = 16;
  const std::size_t row_groups = std::max<std::size_t>(ceilDivide(rows, kGroupRows), 1);
  const std::size_t many = has_subroutines ? kDirectMostWarps : kManyWarps;
  const std::size_t warps = groups > multiprocessors ? many : kFewWarps;
  const std::size_t resident = kRegisters / (kWarpLanes * warps * std::max(registers, 32U));
  const std::size_t blocks = kWaves * multiprocessors * std::max<std::size_t>(resident, 1);
  const std::size_t most = ceilDivide(row_groups, warps);
  const std::size_t wanted = std::clamp<std::size_t>(ceilDivide(blocks, groups), 1, most);
  std::size_t best = wanted;
  double best_use = 0;
  for (std::size_t parts = wanted; parts <= std::min(2 * wanted, most); ++parts) {
    const std::size_t turns = ceilDivide(row_groups, parts * warps);
    const double use = static_cast<double>(row_groups) / static_cast<double>(parts * warps * turns);
    if (use <= best_use) continue;
    best = parts;
    best_use = use;
  }
  return {static_cast<std::uint32_t>(best), static_cast<std::uint32_t>(warps)};
}

}  // namespace srjit
