#include "runtime/code/direct.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include "compiler/direct/emitter.h"
#include "compiler/sass/cubin_writer.h"
#include "compiler/target/architecture.h"
#include "ir/op.h"
#include "runtime/code/interpreted/encode.h"
#include "runtime/evaluation/optimized_dag.h"
#include "runtime/platform/clock.h"

namespace srjit {
namespace {

// Graphs of so many expressions, whole groups, are large enough to share columns and subtrees, and few enough that all
// threads have some.
constexpr std::size_t kMaxDirectChunk = std::size_t{16} * kDirectRoots;

constexpr std::size_t kFewWarps = 8;  ///< of a block that is one of few

class DirectMaker {
 public:
  DirectMaker(const CodeRequest& request, const ProgramGraphs& graphs, const KernelKind& kind, const DirectShape& shape,
              const std::atomic<bool>& cancelled)
      : request_(request), graphs_(graphs), cancelled_(cancelled) {
    options_.architecture = request.queue.cuda->limits().capability;
    options_.precision = request.source.precision;
    options_.math = request.source.math;
    options_.loss = kind.loss;
    options_.roots = shape.roots;
    options_.window = shape.window;
    options_.subroutines = shape.subroutines && !isDouble(options_.precision);
    scratch_ = takeDirectScratch(request.store.directScratch(), options_);
  }

  DeviceCode run() {
    const Stopwatch watch;
    emit();
    if (cancelled_.load()) return {};
    Result<DirectImage> image = linkDirect(parts_, options_);
    interpretTheRest(image.ok());
    if (!image) {
      code_.report.compile_error = std::move(image).error();
    } else if (!image->groups.empty()) {
      load(*image);
    }
    code_.report.nodes += graphs_.nodes;
    code_.report.tokens = request_.source.tokens;
    code_.report.seconds_passes += graphs_.seconds;
    code_.report.seconds_codegen = watch.seconds();
    // Not after an exception, which may leave work half done in it.
    request_.store.directScratch().giveBack(std::move(scratch_));
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
    const std::size_t count = graphs_.chunks.size();
    if (scratch_->parts.size() < count) scratch_->parts.resize(count);
    parts_ = std::span(scratch_->parts).first(count);
    tables_.resize(count);
    tbb::parallel_for(std::size_t{0}, count, [&](std::size_t c) {
      if (cancelled_.load(std::memory_order_relaxed)) return;
      const GraphChunk& chunk = graphs_.chunks[c];
      scratch_->emitters->local().emit(chunk.dag, parts_[c]);
      fillTables(chunk, parts_[c], tables_[c]);
    });
  }

  /// What the entries of a part's tables are in this program.
  void fillTables(const GraphChunk& chunk, const DirectPart& part, Tables& tables) const {
    for (const std::uint32_t number : part.parameters) addNumber(chunk, number, tables.numbers);
    tables.outputs.reserve(part.outputs.size());
    const std::size_t first = request_.source.outputOffset(chunk.first);
    for (const std::uint32_t root : part.outputs) {
      const bool is_root = root != DirectPart::kNoRoot;
      tables.expressions += is_root ? 1 : 0;
      tables.outputs.push_back(is_root ? static_cast<std::uint32_t>(first + root) : 0);
    }
  }

  /// Encodes what was refused; everything where the parts make no kernel. An expression of several outputs, one of
  /// which was refused, is encoded as a whole; so outputs that direct code has as well are written twice, with the same
  /// bits.
  void interpretTheRest(bool linked) {
    std::vector<std::uint32_t> rest;
    const auto add = [&](const GraphChunk& chunk, std::size_t root) {
      const auto expression = static_cast<std::uint32_t>(expressionOf(chunk, root));
      if (rest.empty() || rest.back() != expression) rest.push_back(expression);
    };
    for (std::size_t c = 0; c < parts_.size(); ++c) {
      const GraphChunk& chunk = graphs_.chunks[c];
      if (linked) {
        for (const std::uint32_t root : parts_[c].refused) add(chunk, root);
      } else {
        for (std::size_t root = 0; root < chunk.dag.roots().size(); ++root) add(chunk, root);
      }
    }
    if (!rest.empty()) {
      code_ = encodeForDevice(request_.withChosen(rest));
      if (linked) code_.report.direct_gaps = refusal(rest.size());
    }
    code_.failures.insert(code_.failures.end(), graphs_.failures.begin(), graphs_.failures.end());
    std::ranges::sort(code_.failures, {}, &Failure::expression);
  }

  std::size_t expressionOf(const GraphChunk& chunk, std::size_t root) const {
    const ProgramSource& source = request_.source;
    if (!source.derivation) return chunk.first + root;
    const std::size_t output = source.outputOffset(chunk.first) + root;
    std::size_t e = chunk.first;
    while (source.outputOffset(e + 1) <= output) ++e;
    return e;
  }

  /// Says that `count` expressions were refused, and why the first was.
  Error refusal(std::size_t count) const {
    std::size_t c = 0;
    while (parts_[c].refused.empty()) ++c;
    const GraphChunk& chunk = graphs_.chunks[c];
    const std::uint32_t root = parts_[c].refused.front();
    return {Errc::kUnsupported,
            fmt::format("no direct code for {} of {} expressions; the first is expression {}, which {}", count,
                        request_.source.expressions.size(), expressionOf(chunk, root) + 1, tooLongText(options_)),
            {}};
  }

  // One module of all parts, and the tables that its kernel reads.
  void load(const DirectImage& image) {
    const KernelDescription kernel = directKernel(image, parts_);
    KernelImage& loadable = scratch_->image;
    writeCubin({&kernel, 1}, options_.architecture, loadable.code);
    const CurrentContext current(*request_.queue.cuda);
    DirectCode direct;
    direct.module = Module(request_.queue.cuda, loadable);
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

  void addNumber(const GraphChunk& chunk, std::uint32_t number, ParameterTable& table) const {
    if (number >= chunk.dag.parameters().size()) return table.addLiteral(0);  // padding
    const ParameterSource& parameter = chunk.dag.parameters()[number];
    const std::size_t offset =
        parameter.isLiteral() ? 0 : request_.source.parameterOffset(chunk.first + parameter.expression);
    table.add(parameter, offset);
  }

  void upload(DirectCode& direct, std::span<const DirectGroup> groups, std::span<const std::uint32_t> outputs) const {
    const DeviceQueue& queue = request_.queue;
    const std::shared_ptr<PinnedBuffer> staging = queue.pinned.take(groups.size_bytes() + outputs.size_bytes());
    auto* const bytes = static_cast<std::byte*>(staging->data());
    std::memcpy(bytes, groups.data(), groups.size_bytes());
    std::memcpy(bytes + groups.size_bytes(), outputs.data(), outputs.size_bytes());
    direct.memory = DeviceBuffer(queue.uploads, groups.size_bytes() + outputs.size_bytes());
    direct.group_table = direct.memory.address();
    direct.outputs = direct.group_table + groups.size_bytes();
    queue.uploads->complete([&] { queue.uploads->copyToDevice(direct.group_table, bytes, direct.memory.bytes()); });
  }

  const CodeRequest& request_;
  const ProgramGraphs& graphs_;
  const std::atomic<bool>& cancelled_;
  DirectOptions options_;
  std::unique_ptr<DirectScratch> scratch_;
  std::span<DirectPart> parts_;  ///< in the scratch
  std::vector<Tables> tables_;   ///< of each part
  DeviceCode code_;
};

}  // namespace

ProgramGraphs graphsOf(const GraphSource& source, unsigned threads) {
  const Stopwatch watch;
  const std::size_t count = source.program.expressions.size();
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0U);
  const std::size_t wanted = count / (std::size_t{4} * threads) / kDirectRoots * kDirectRoots;
  const std::size_t size = std::clamp<std::size_t>(wanted, kDirectRoots, kMaxDirectChunk);
  std::vector<ProgramGraphs> parts(ceilDivide(count, size));
  tbb::parallel_for(std::size_t{0}, parts.size(), [&](std::size_t i) {
    const auto members = std::span(all).subspan(i * size, std::min(size, count - i * size));
    optimizedDags(members, source, Tier::kDirect, [&](std::size_t first, std::size_t, Result<Dag> dag) {
      first += i * size;
      if (!dag) return parts[i].failures.push_back({first, std::move(dag).error()});
      parts[i].nodes += dag->size();
      parts[i].chunks.push_back({first, std::move(*dag)});
    });
  });
  ProgramGraphs graphs;
  for (ProgramGraphs& part : parts) {
    std::move(part.chunks.begin(), part.chunks.end(), std::back_inserter(graphs.chunks));
    std::move(part.failures.begin(), part.failures.end(), std::back_inserter(graphs.failures));
    graphs.nodes += part.nodes;
  }
  graphs.seconds = watch.seconds();
  return graphs;
}

bool hasDirectTier(const DeviceLimits& limits) noexcept {
  return std::ranges::find(directArchitectures(), limits.capability) != directArchitectures().end();
}

DirectShape directShape(std::size_t expressions, std::size_t rows, unsigned multiprocessors) noexcept {
  constexpr std::size_t kBlocks = 4;  // of a multiprocessor, at least: 32 warps
  constexpr unsigned kLeastRoots = 8;
  const std::size_t parts = ceilDivide(rows, kFewWarps * kGroupRows);
  const auto blocks = [&](unsigned roots) { return ceilDivide(expressions, roots) * parts; };
  unsigned roots = kDirectRoots;
  while (roots > kLeastRoots && blocks(roots) < kBlocks * multiprocessors) roots /= 2;
  const bool is_little = blocks(roots) < kBlocks * multiprocessors;
  return {.roots = roots, .window = is_little ? DirectOptions().window : 1, .subroutines = !is_little};
}

DeviceCode directForDevice(const CodeRequest& request, const ProgramGraphs& graphs, const KernelKind& kind,
                           const DirectShape& shape, const std::atomic<bool>& cancelled) {
  return DirectMaker(request, graphs, kind, shape, cancelled).run();
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

DirectGrid directGrid(std::size_t rows, const DirectWork& work, unsigned multiprocessors) noexcept {
  // More blocks shorten the tail of the launch, but each takes time to start. With more groups than multiprocessors,
  // warps wait for code to be fetched: in larger blocks more of them run what was fetched. Code with subroutines is
  // longest, so a multiprocessor has one group of it at a time.
  constexpr std::size_t kWaves = 6, kRegisters = 65536, kManyWarps = 16;
  const std::size_t groups = work.groups;
  const std::size_t row_groups = std::max<std::size_t>(ceilDivide(rows, kGroupRows), 1);
  const std::size_t many = work.has_subroutines ? kDirectMostWarps : kManyWarps;
  const std::size_t warps = groups > multiprocessors ? many : kFewWarps;
  const std::size_t resident = kRegisters / (kWarpLanes * warps * std::max(work.registers, 32U));
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

void launchDirect(const Stream& stream, const DirectCode& code, const DeviceRows& rows, const DirectBuffers& buffers,
                  DirectGrid grid) {
  const auto bytes = [&](std::uint64_t elements) { return static_cast<std::uint32_t>(elements * buffers.element); };
  grid.row_blocks =
      std::min(grid.row_blocks, static_cast<std::uint32_t>(ceilDivide(rows.rows, grid.warps * kGroupRows)));
  DirectArguments arguments{.columns = rows.columns,
                            .target = rows.target,
                            .weights = rows.weights,
                            .counts = buffers.results + buffers.channel_stride * buffers.element,
                            .kept_weights = buffers.results + 2 * buffers.channel_stride * buffers.element,
                            .results = buffers.results,
                            .numbers = buffers.numbers,
                            .outputs = code.outputs,
                            .groups = code.group_table,
                            .rows = static_cast<std::uint32_t>(rows.rows),
                            .column_stride = bytes(rows.column_stride),
                            .row_stride = bytes(rows.row_stride),
                            .output_stride = bytes(buffers.output_stride),
                            .row_jump = directRowJump(grid),
                            .warps = grid.warps};
  for (std::size_t first = 0; first < code.groups; first += kMaxGridY) {
    arguments.groups = code.group_table + first * sizeof(DirectGroup);
    stream.launch({.kernel = code.kernel.get(),
                   .grid_x = grid.row_blocks,
                   .grid_y = static_cast<unsigned>(std::min<std::size_t>(kMaxGridY, code.groups - first)),
                   .block_threads = kWarpLanes * grid.warps,
                   .arguments = addressesOf(arguments)});
  }
}

}  // namespace srjit
