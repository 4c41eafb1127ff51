// The kernels of compiler/interpreter/lanes/arguments.h, only for LLVM's NVPTX target (CMakeLists.txt of this layer).
#include <cstdint>

#include "compiler/interpreter/lanes/steps.h"

// Dynamic, of a launch.
extern __attribute__((address_space(3), aligned(16))) std::uint32_t srjit_lane_words[];

namespace srjit {
namespace {

unsigned threadNumber() { return __nvvm_read_ptx_sreg_tid_x(); }
unsigned threadsOfBlock() { return __nvvm_read_ptx_sreg_ntid_x(); }
unsigned blockNumber() { return __nvvm_read_ptx_sreg_ctaid_x(); }

/// A thread among the lanes of its block. One that is no lane only waits where they do.
struct Lane {
  explicit Lane(unsigned lanes_of_warp)
      : number(threadNumber() / kWarpLanes * lanes_of_warp + threadNumber() % kWarpLanes),
        count(threadsOfBlock() / kWarpLanes * lanes_of_warp),
        is_one(threadNumber() % kWarpLanes < lanes_of_warp) {}

  unsigned number, count;
  bool is_one;
};

template <class T>
T takeRoom(T& from, T count) {
  return __atomic_fetch_add(&from, count, __ATOMIC_RELAXED);
}

/// The sum over the lanes before this one; `total` becomes that over all. All threads of the block call it. W. D.
/// Hillis, G. L. Steele, "Data parallel algorithms", 1986.
std::uint32_t sumBefore(const Lane& lane, std::uint32_t* sums, std::uint32_t value, std::uint32_t& total) {
  std::uint32_t sum = value;
  __syncthreads();
  if (lane.is_one) sums[lane.number] = sum;
  std::uint32_t *from = sums, *to = sums + lane.count;
  for (unsigned step = 1; step < lane.count; step *= 2) {
    __syncthreads();
    if (lane.is_one) {
      if (lane.number >= step) sum += from[lane.number - step];
      to[lane.number] = sum;
    }
    std::uint32_t* const swapped = from;
    from = to;
    to = swapped;
  }
  __syncthreads();
  total = from[lane.count - 1];
  return sum - value;
}

}  // namespace

extern "C" __attribute__((nvptx_kernel)) void srjit_encode_trees(TreeArguments given) {
  // In shared memory, so that they take no registers. NOLINTNEXTLINE: of another address space
  TreeArguments& arguments = *(TreeArguments*)srjit_lane_words;
  auto* const shared = (std::uint32_t*)srjit_lane_words + sizeof(TreeArguments) / sizeof(std::uint32_t);  // NOLINT
  const Lane lane(given.lanes_of_warp);
  const bool is_first = threadNumber() == 0;
  if (is_first) {
    auto* const to = reinterpret_cast<std::uint64_t*>(&arguments);
    const auto* const from = reinterpret_cast<const std::uint64_t*>(&given);
#pragma unroll
    for (unsigned i = 0; i < sizeof(TreeArguments) / sizeof(std::uint64_t); ++i) to[i] = from[i];
  }
  __syncthreads();
  std::uint32_t* const checked = shared + lane.count * laneWords(arguments.most_tokens);
  std::uint32_t *const order = checked + lane.count, *const sums = order + lane.count,
                       *const groups = sums + 2 * lane.count;
  std::uint32_t* const room = groups + kLengthGroups;
  const std::uint32_t first = blockNumber() * lane.count;
  const bool has_group = lane.is_one && lane.number < kLengthGroups;

  std::uint32_t tokens = 0, numbers = 0;
  if (lane.is_one && first + lane.number < arguments.expressions) {
    const CheckedTree tree = checkTree(arguments, first + lane.number);
    arguments.faults[first + lane.number] = tree.fault;
    if (tree.fault != DeviceFault::kNone) clearSums(arguments, first + lane.number);
    tokens = tree.tokens;
    numbers = tree.numbers;
  }
  if (has_group) groups[lane.number] = 0;
  if (lane.is_one) checked[lane.number] = tokens | numbers << 16;
  __syncthreads();

  const std::uint32_t group = tokens * (kLengthGroups - 1) / arguments.most_tokens;
  const std::uint32_t place = lane.is_one ? takeRoom(groups[group], std::uint32_t{1}) : 0;
  __syncthreads();
  std::uint32_t total = 0;
  const std::uint32_t before = sumBefore(lane, sums, has_group ? groups[lane.number] : 0, total);
  if (has_group) groups[lane.number] = before;
  __syncthreads();
  if (lane.is_one) order[groups[group] + place] = lane.number;
  __syncthreads();

  const std::uint32_t own = lane.is_one ? order[lane.number] : 0, e = first + own;
  CheckedTree tree;
  if (lane.is_one) {
    tree.tokens = checked[own] & 0xffff;
    tree.numbers = checked[own] >> 16;
  }
  std::uint32_t first_number = sumBefore(lane, sums, tree.numbers, total);
  if (is_first) room[0] = takeRoom(arguments.counts->numbers, total);
  __syncthreads();
  first_number += room[0];

  const LaneWords words{shared + lane.number, lane.count};
  std::uint32_t length = 0;
  if (tree.tokens > 0) {
    tree.begin = firstTokenOf(arguments, e);
    length = readTree(arguments, tree, first_number, words);
  }
  // Both in one word: a block has at most 256 programs, and these 2^19 tokens.
  constexpr unsigned kProgramShift = 20;
  const std::uint32_t sum = sumBefore(lane, sums, length | std::uint32_t{length > 0} << kProgramShift, total);
  constexpr std::uint32_t kTokens = (1U << kProgramShift) - 1;
  if (is_first) {
    const std::uint64_t taken = takeRoom(arguments.counts->programs_and_tokens,
                                         std::uint64_t{total >> kProgramShift} << 32 | (total & kTokens));
    room[1] = static_cast<std::uint32_t>(taken >> 32);
    room[2] = static_cast<std::uint32_t>(taken);
  }
  __syncthreads();
  if (length > 0) {
    const std::uint32_t program = room[1] + (sum >> kProgramShift), token = room[2] + (sum & kTokens);
    arguments.program_offsets[program] = token;
    if (!writeTree(arguments, tree, first_number, e, words, arguments.programs + token, length)) {
      arguments.faults[e] = DeviceFault::kSlots;
    }
  }

  // The last block knows how many there are.
  __nvvm_membar_gl();
  if (is_first) room[3] = takeRoom(arguments.counts->blocks, std::uint32_t{1});
  __syncthreads();
  if (room[3] + 1 < __nvvm_read_ptx_sreg_nctaid_x()) return;
  __nvvm_membar_gl();
  const std::uint64_t taken = takeRoom(arguments.counts->programs_and_tokens, std::uint64_t{0});
  for (std::uint64_t p = (taken >> 32) + threadNumber(); p <= arguments.expressions; p += threadsOfBlock()) {
    arguments.program_offsets[p] = static_cast<std::uint32_t>(taken);
  }
}

extern "C" __attribute__((nvptx_kernel)) void srjit_losses(LossArguments arguments) {
  const std::uint32_t e = blockNumber() * threadsOfBlock() + threadNumber();
  if (e < arguments.expressions) writeLoss(arguments, e);
}

}  // namespace srjit
