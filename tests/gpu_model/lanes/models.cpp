#include "tests/gpu_model/lanes/models.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "compiler/interpreter/lanes/steps.h"
#include "ir/ops.h"
#include "tests/gpu_model/memory.h"

namespace srjit {
namespace {

// As a block of the kernel, but that lanes of one group of lengths keep their order.
void encodeBlock(const TreeArguments& arguments, std::uint32_t block) {
  const std::uint32_t lanes = lanesOfBlock(arguments.most_tokens), first = block * lanes;
  std::vector<CheckedTree> trees(lanes);
  for (std::uint32_t lane = 0; lane < lanes && first + lane < arguments.expressions; ++lane) {
    trees[lane] = checkTree(arguments, first + lane);
    arguments.faults[first + lane] = trees[lane].fault;
    if (trees[lane].fault != DeviceFault::kNone) clearSums(arguments, first + lane);
  }
  std::vector<std::uint32_t> order(lanes);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t lane) { return trees[lane].tokens; });
  std::vector<std::uint32_t> words(std::size_t{lanes} * laneWords(arguments.most_tokens));
  std::vector<std::uint32_t> numbers, lengths;
  std::uint64_t programs = 0, tokens = 0;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    const CheckedTree& tree = trees[order[lane]];
    numbers.push_back(arguments.counts->numbers);
    arguments.counts->numbers += tree.numbers;
    const bool is_good = tree.tokens > 0;
    lengths.push_back(is_good ? readTree(arguments, tree, numbers.back(), {&words[lane], lanes}) : 0);
    programs += is_good ? 1 : 0;
    tokens += lengths.back();
  }
  auto program = static_cast<std::uint32_t>(arguments.counts->programs_and_tokens >> 32);
  auto token = static_cast<std::uint32_t>(arguments.counts->programs_and_tokens);
  arguments.counts->programs_and_tokens += programs << 32 | tokens;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    if (lengths[lane] == 0) continue;
    const std::uint32_t e = first + order[lane];
    arguments.program_offsets[program++] = token;
    if (!writeTree(arguments, trees[order[lane]], numbers[lane], e, {&words[lane], lanes}, arguments.programs + token,
                   lengths[lane])) {
      arguments.faults[e] = DeviceFault::kSlots;
    }
    token += lengths[lane];
  }
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
    const unsigned lanes = lanesOfBlock(of.most_tokens);
    requireOfModel(launch.block == std::array<unsigned, 3>{lanes, 1, 1}, "a block of {} threads", launch.block[0]);
    requireOfModel(launch.shared_bytes >= treesSharedBytes(of.most_tokens), "{} bytes of shared memory",
                   launch.shared_bytes);
    requireOfModel(launch.grid[0] == ceilDivide(of.expressions, lanes), "{} blocks", launch.grid[0]);
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
