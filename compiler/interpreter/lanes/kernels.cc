// The kernels of compiler/interpreter/lanes/arguments.h, only for LLVM's NVPTX target (CMakeLists.txt of this layer).
#include <cstdint>

#include "compiler/interpreter/lanes/steps.h"

// Dynamic, of a launch.
extern __attribute__((address_space(3), aligned(16))) std::uint32_t srjit_lane_words[];

namespace srjit {
namespace {

unsigned laneNumber() { return __nvvm_read_ptx_sreg_tid_x(); }
unsigned lanesOfLaunch() { return __nvvm_read_ptx_sreg_ntid_x(); }
unsigned blockNumber() { return __nvvm_read_ptx_sreg_ctaid_x(); }

template <class T>
T takeRoom(T& from, T count) {
  return __atomic_fetch_add(&from, count, __ATOMIC_RELAXED);
}

/// The sum over the lanes before this one; `total` becomes that over all. All lanes of the block call it. W. D. Hillis,
/// G. L. Steele, "Data parallel algorithms", 1986.
std::uint32_t sumBefore(std::uint32_t* sums, std::uint32_t value, std::uint32_t& total) {
  const unsigned lane = laneNumber(), lanes = lanesOfLaunch();
  std::uint32_t sum = value;
  __syncthreads();
  sums[lane] = sum;
  std::uint32_t *from = sums, *to = sums + lanes;
  for (unsigned step = 1; step < lanes; step *= 2) {
    __syncthreads();
    if (lane >= step) sum += from[lane - step];
    to[lane] = sum;
    std::uint32_t* const swapped = from;
    from = to;
    to = swapped;
  }
  __syncthreads();
  total = from[lanes - 1];
  return sum - value;
}

}  // namespace

extern "C" __attribute__((nvptx_kernel)) void srjit_encode_trees(TreeArguments given) {
  // In shared memory, so that they take no registers. NOLINTNEXTLINE: of another address space
  TreeArguments& arguments = *(TreeArguments*)srjit_lane_words;
  auto* const shared = (std::uint32_t*)srjit_lane_words + sizeof(TreeArguments) / sizeof(std::uint32_t);  // NOLINT
  const unsigned lane = laneNumber(), lanes = lanesOfLaunch();
  if (lane == 0) {
    auto* const to = reinterpret_cast<std::uint64_t*>(&arguments);
    const auto* const from = reinterpret_cast<const std::uint64_t*>(&given);
#pragma unroll
    for (unsigned i = 0; i < sizeof(TreeArguments) / sizeof(std::uint64_t); ++i) to[i] = from[i];
  }
  __syncthreads();
  std::uint32_t* const checked = shared + lanes * laneWords(arguments.most_tokens);
  std::uint32_t *const order = checked + lanes, *const sums = order + lanes, *const groups = sums + 2 * lanes;
  std::uint32_t* const room = groups + kLengthGroups;
  const std::uint32_t first = blockNumber() * lanes;

  std::uint32_t tokens = 0, numbers = 0;
  if (first + lane < arguments.expressions) {
    const CheckedTree tree = checkTree(arguments, first + lane);
    arguments.faults[first + lane] = tree.fault;
    if (tree.fault != DeviceFault::kNone) clearSums(arguments, first + lane);
    tokens = tree.tokens;
    numbers = tree.numbers;
  }
  if (lane < kLengthGroups) groups[lane] = 0;
  checked[lane] = tokens | numbers << 16;
  __syncthreads();

  const std::uint32_t group = tokens * (kLengthGroups - 1) / arguments.most_tokens;
  const std::uint32_t place = takeRoom(groups[group], std::uint32_t{1});
  __syncthreads();
  std::uint32_t total = 0;
  const std::uint32_t before = sumBefore(sums, lane < kLengthGroups ? groups[lane] : 0, total);
  if (lane < kLengthGroups) groups[lane] = before;
  __syncthreads();
  order[groups[group] + place] = lane;
  __syncthreads();

  const std::uint32_t own = order[lane], e = first + own;
  CheckedTree tree;
  tree.tokens = checked[own] & 0xffff;
  tree.numbers = checked[own] >> 16;
  std::uint32_t first_number = sumBefore(sums, tree.numbers, total);
  if (lane == 0) room[0] = takeRoom(arguments.counts->numbers, total);
  __syncthreads();
  first_number += room[0];

  const LaneWords words{shared + lane, lanes};
  std::uint32_t length = 0;
  if (tree.tokens > 0) {
    tree.begin = firstTokenOf(arguments, e);
    length = readTree(arguments, tree, first_number, words);
  }
  // Both in one word: a block has at most 256 programs, and these 2^19 tokens.
  constexpr unsigned kProgramShift = 20;
  const std::uint32_t sum = sumBefore(sums, length | std::uint32_t{length > 0} << kProgramShift, total);
  constexpr std::uint32_t kTokens = (1U << kProgramShift) - 1;
  if (lane == 0) {
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
  if (lane == 0) room[3] = takeRoom(arguments.counts->blocks, std::uint32_t{1});
  __syncthreads();
  if (room[3] + 1 < __nvvm_read_ptx_sreg_nctaid_x()) return;
  __nvvm_membar_gl();
  const std::uint64_t taken = takeRoom(arguments.counts->programs_and_tokens, std::uint64_t{0});
  for (std::uint64_t p = (taken >> 32) + lane; p <= arguments.expressions; p += lanes) {
    arguments.program_offsets[p] = static_cast<std::uint32_t>(taken);
  }
}

extern "C" __attribute__((nvptx_kernel)) void srjit_losses(LossArguments arguments) {
  const std::uint32_t e = blockNumber() * lanesOfLaunch() + laneNumber();
  if (e < arguments.expressions) writeLoss(arguments, e);
}

}  // namespace srjit
