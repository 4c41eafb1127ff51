#include "tests/gpu_model/lanes/models.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>
#include <vector>

#include "compiler/interpreter/lanes/losses.h"
#include "compiler/interpreter/lanes/steps.h"
#include "ir/ops.h"
#include "tests/gpu_model/memory.h"

namespace srjit {
namespace {

/// The lanes of a block in the place of those of a warp. Their order changes from step to step.
class BlockLanes {
 public:
  explicit BlockLanes(std::vector<TreeLane>& lanes) : lanes_(lanes) {}
  template <class F>
  void each(const F& step) {
    backwards_ = !backwards_;
    for (std::size_t i = 0; i < lanes_.size(); ++i) step(lanes_[backwards_ ? lanes_.size() - 1 - i : i]);
  }
  template <class F>
  bool any(const F& finds) {
    return std::ranges::count_if(lanes_, finds) > 0;
  }

 private:
  std::vector<TreeLane>& lanes_;
  bool backwards_ = false;
};

// As a block of the kernel, but that groups of lanes whose expressions have like lengths keep their order.
void encodeBlock(const TreeArguments& arguments, std::uint32_t block) {
  const std::uint32_t threads = threadsOfBlock(arguments.most_tokens, arguments.lanes);
  const std::uint32_t groups = threads / arguments.lanes, first = block * groups;
  requireOfModel(std::has_single_bit(arguments.lanes) && arguments.lanes <= 32 && threads >= kLengthGroups,
                 "{} lanes in blocks of {} threads", arguments.lanes, threads);
  // Of each group, so that sanitizers see what goes beyond.
  std::vector<std::vector<std::uint32_t>> words(groups), sums(groups), faults(groups);
  for (std::uint32_t group = 0; group < groups; ++group) {
    words[group].assign(treeWords(arguments.most_tokens), 0xdeadbeef);
    sums[group].resize(arguments.lanes);
    faults[group].resize(arguments.lanes);
  }
  std::vector<TreeLane> all;
  for (std::uint32_t t = 0; t < threads; ++t) {
    const std::uint32_t group = t / arguments.lanes, lane = t % arguments.lanes;
    all.emplace_back(arguments, group, lane,
                     TreeLane::Shared{words[group].data(), sums[group].data(), faults[group].data()});
  }
  BlockLanes lanes(all);
  checkTrees(lanes, first);
  std::vector<std::uint32_t> tokens(groups), order(groups), numbers(groups);
  lanes.each([&](TreeLane& lane) {
    if (first + lane.group() >= arguments.expressions) return;
    DeviceFault fault{};
    tokens[lane.group()] = lane.judge(fault);
    if (fault != DeviceFault::kNone) lane.clearSums(first + lane.group());
    arguments.faults[first + lane.group()] = fault;
  });
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t group) { return tokens[group]; });
  for (std::uint32_t group = 0; group < groups; ++group) {
    numbers[group] = arguments.counts->numbers;
    arguments.counts->numbers += tokens[order[group]];
  }
  lanes.each([&](TreeLane& lane) {
    const std::uint32_t own = order[lane.group()];
    lane.readTokens(first + own, tokens[own], numbers[lane.group()]);
  });
  readTrees(lanes);
  std::vector<std::uint32_t> lengths(groups), begins(groups);
  lanes.each([&](TreeLane& lane) {
    const std::uint32_t own = order[lane.group()];
    lengths[lane.group()] = lane.length();
    if (tokens[own] == 0 || lane.length() > 0) return;
    lane.clearSums(first + own);
    arguments.faults[first + own] = DeviceFault::kSlots;
  });
  auto program = static_cast<std::uint32_t>(arguments.counts->programs_and_tokens >> 32);
  auto token = static_cast<std::uint32_t>(arguments.counts->programs_and_tokens);
  for (std::uint32_t group = 0; group < groups; ++group) {
    begins[group] = token;
    if (lengths[group] > 0) arguments.program_offsets[program++] = token;
    token += lengths[group];
  }
  arguments.counts->programs_and_tokens = std::uint64_t{program} << 32 | token;
  lanes.each([&](TreeLane& lane) { lane.beginProgram(arguments.programs + begins[lane.group()]); });
  writeTrees(lanes);
}

}  // namespace

void encodeTrees(const TreeArguments& arguments, std::span<const std::uint32_t> blocks) {
  for (const std::uint32_t block : blocks) encodeBlock(arguments, block);
  const std::uint64_t taken = arguments.counts->programs_and_tokens;
  for (std::uint64_t p = taken >> 32; p <= arguments.expressions; ++p) {
    arguments.program_offsets[p] = static_cast<std::uint32_t>(taken);
  }
  arguments.counts->blocks += static_cast<std::uint32_t>(blocks.size());
}

namespace {

class TreesModel final : public KernelModel {
 public:
  using KernelModel::KernelModel;

  std::vector<std::size_t> parameterBytes() const override { return {sizeof(TreeArguments)}; }

  void run(const ModelLaunch& launch, ModelMemory& memory) const override {
    auto of = structOf<TreeArguments>(launch);
    const unsigned threads = threadsOfBlock(of.most_tokens, of.lanes);
    requireOfModel(launch.block == std::array<unsigned, 3>{threads, 1, 1}, "a block of {} threads", launch.block[0]);
    requireOfModel(launch.shared_bytes >= treesSharedBytes(of.most_tokens, of.lanes), "{} bytes of shared memory",
                   launch.shared_bytes);
    requireOfModel(launch.grid[0] == ceilDivide(of.expressions, threads / of.lanes), "{} blocks", launch.grid[0]);
    const auto bytes = [](Precision precision) { return static_cast<std::size_t>(bytesOf(precision)); };
    const std::size_t all = of.first + of.expressions;
    translate(memory, of.codes, of.tokens);
    translate(memory, of.values, of.tokens * bytes(of.values_type));
    translate(memory, of.offsets, all + 1);
    translate(memory, of.lengths, all);
    translate(memory, of.handlers.ops);
    translate(memory, of.handlers.plans);
    translate(memory, of.handlers.plain);
    translate(memory, of.handlers.applies);
    translate(memory, of.is_allowed, kOpCount);
    translate(memory, of.counts, 1);
    const std::size_t most = std::size_t{of.expressions} * of.most_tokens;
    translate(memory, of.programs, roomForPrograms(most, of.expressions));
    translate(memory, of.program_offsets, of.expressions + std::size_t{1});
    translate(memory, of.numbers, most * bytes(of.precision));
    translate(memory, of.faults, of.expressions);
    translate(memory, of.sums, std::size_t{of.channels} * of.expressions * of.row_groups * bytes(of.precision));
    requireOfModel(of.counts->programs_and_tokens == 0 && of.counts->numbers == 0, "counts that are not cleared");
    std::vector<std::uint32_t> blocks(launch.grid[0]);
    std::iota(blocks.begin(), blocks.end(), 0U);
    std::ranges::reverse(blocks);
    encodeTrees(of, blocks);
  }
};

class LossesModel final : public KernelModel {
 public:
  using KernelModel::KernelModel;

  std::vector<std::size_t> parameterBytes() const override { return {sizeof(LossArguments)}; }

  void run(const ModelLaunch& launch, ModelMemory& memory) const override {
    auto of = structOf<LossArguments>(launch);
    const std::size_t count = of.expressions;
    requireOfModel(std::size_t{launch.grid[0]} * launch.block[0] >= count, "{} blocks", launch.grid[0]);
    translate(memory, of.totals, count * (!of.skips_invalid ? 1 : of.is_weighted ? 3 : 2));
    translate(memory, of.faults, count);
    translate(memory, of.losses, count * static_cast<std::size_t>(bytesOf(of.losses_type)));
    translate(memory, of.valid_rows, count);
    for (std::uint32_t e = 0; e < count; ++e) writeLoss(of, e);
  }
};

}  // namespace

std::unique_ptr<KernelModel> makeTreesModel(KernelFacts facts) {
  return std::make_unique<TreesModel>(std::move(facts));
}
std::unique_ptr<KernelModel> makeLossesModel(KernelFacts facts) {
  return std::make_unique<LossesModel>(std::move(facts));
}

}  // namespace srjit
