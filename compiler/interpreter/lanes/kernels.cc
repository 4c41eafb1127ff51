// The kernels of compiler/interpreter/lanes/arguments.h, only for LLVM's NVPTX target (CMakeLists.txt of this layer).
#include <cstdint>

#include "compiler/interpreter/lanes/losses.h"
#include "compiler/interpreter/lanes/steps.h"

// Dynamic, of a launch.
extern __attribute__((address_space(3), aligned(16))) std::uint32_t srjit_lane_words[];

namespace srjit {
namespace {

unsigned threadNumber() { return __nvvm_read_ptx_sreg_tid_x(); }
unsigned threadsOfLaunch() { return __nvvm_read_ptx_sreg_ntid_x(); }
unsigned blockNumber() { return __nvvm_read_ptx_sreg_ctaid_x(); }

template <class T>
T takeRoom(T& from, T count) {
  return __atomic_fetch_add(&from, count, __ATOMIC_RELAXED);
}

/// The sum over the threads before this one; `total` becomes that over all. All threads of the block call it.
/// W. D. Hillis, G. L. Steele, "Data parallel algorithms", 1986.
std::uint32_t sumBefore(std::uint32_t* sums, std::uint32_t value, std::uint32_t& total) {
  const unsigned thread = threadNumber(), threads = threadsOfLaunch();
  std::uint32_t sum = value;
  __syncthreads();
  sums[thread] = sum;
  std::uint32_t *from = sums, *to = sums + threads;
  for (unsigned step = 1; step < threads; step *= 2) {
    __syncthreads();
    if (thread >= step) sum += from[thread - step];
    to[thread] = sum;
    std::uint32_t* const swapped = from;
    from = to;
    to = swapped;
  }
  __syncthreads();
  total = from[threads - 1];
  return sum - value;
}

/// The lanes of a warp: this thread is one of them.
class WarpLanes {
 public:
  explicit WarpLanes(TreeLane& lane) : lane_(lane) {}
  template <class F>
  [[gnu::always_inline]] void each(const F& step) {
    step(lane_);
    meet();
  }
  template <class F>
  [[gnu::always_inline]] bool any(const F& finds) {
    const bool found = __nvvm_vote_any_sync(kAllLanes, finds(lane_));
    meet();
    return found;
  }

 private:
  static constexpr unsigned kAllLanes = ~0U;
  static void meet() { __nvvm_bar_warp_sync(kAllLanes); }
  TreeLane& lane_;
};

}  // namespace

extern "C" __attribute__((nvptx_kernel)) void srjit_encode_trees(TreeArguments given) {
  // In shared memory, so that they take no registers. NOLINTNEXTLINE: of another address space
  TreeArguments& arguments = *(TreeArguments*)srjit_lane_words;
  auto* const shared = (std::uint32_t*)srjit_lane_words + sizeof(TreeArguments) / sizeof(std::uint32_t);  // NOLINT
  const unsigned thread = threadNumber(), threads = threadsOfLaunch();
  if (thread == 0) {
    auto* const to = reinterpret_cast<std::uint64_t*>(&arguments);
    const auto* const from = reinterpret_cast<const std::uint64_t*>(&given);
#pragma unroll
    for (unsigned i = 0; i < sizeof(TreeArguments) / sizeof(std::uint64_t); ++i) to[i] = from[i];
  }
  __syncthreads();
  const std::uint32_t groups = threads / arguments.lanes, group = thread / arguments.lanes;
  std::uint32_t *const sums = shared, *const faults = sums + 2 * threads, *const checked = faults + threads;
  std::uint32_t *const order = checked + groups, *const lengths = order + groups;
  std::uint32_t* const room = lengths + kLengthGroups;
  const std::uint32_t first_lane = group * arguments.lanes, first = blockNumber() * groups;
  TreeLane lane(arguments, group, thread - first_lane,
                {room + 4 + group * treeWords(arguments.most_tokens), sums + first_lane, faults + first_lane});
  WarpLanes lanes(lane);

  std::uint32_t tokens = 0;
  if (thread < kLengthGroups) lengths[thread] = 0;
  checkTrees(lanes, first);
  if (first + group < arguments.expressions) {
    DeviceFault fault{};
    tokens = lane.judge(fault);
    if (fault != DeviceFault::kNone) lane.clearSums(first + group);
    if (lane.isLeader()) arguments.faults[first + group] = fault;
  }
  if (lane.isLeader()) checked[group] = tokens;
  __syncthreads();

  std::uint32_t length_group = 0, place = 0;
  if (thread < groups) {
    length_group = checked[thread] * (kLengthGroups - 1) / arguments.most_tokens;
    place = takeRoom(lengths[length_group], std::uint32_t{1});
  }
  __syncthreads();
  std::uint32_t total = 0;
  const std::uint32_t before = sumBefore(sums, thread < kLengthGroups ? lengths[thread] : 0, total);
  if (thread < kLengthGroups) lengths[thread] = before;
  __syncthreads();
  if (thread < groups) order[lengths[length_group] + place] = thread;
  __syncthreads();

  const std::uint32_t own = order[group], e = first + own;
  tokens = checked[own];
  // The first lane of a group counts for it.
  const std::uint32_t tokens_before = sumBefore(sums, lane.isLeader() ? tokens : 0, total);
  if (thread == 0) room[0] = takeRoom(arguments.counts->numbers, total);
  __syncthreads();
  lanes.each([&](TreeLane& of) { of.readTokens(e, tokens, room[0] + tokens_before - (of.isLeader() ? 0 : tokens)); });
  readTrees(lanes);
  if (tokens > 0 && lane.length() == 0) {
    lane.clearSums(e);
    if (lane.isLeader()) arguments.faults[e] = DeviceFault::kSlots;
  }
  // Both in one word: programs above this bit, tokens below.
  constexpr unsigned kProgramShift = 20;
  static_assert(roomForPrograms(kMostTreesSharedBytes / (2 * sizeof(std::uint32_t)), 256) < 1U << kProgramShift);
  constexpr std::uint32_t kTokens = (1U << kProgramShift) - 1;
  const bool begins_program = lane.isLeader() && lane.length() > 0;
  const std::uint32_t sum = sumBefore(sums, begins_program ? lane.length() | 1U << kProgramShift : 0, total);
  if (thread == 0) {
    const std::uint64_t taken = takeRoom(arguments.counts->programs_and_tokens,
                                         std::uint64_t{total >> kProgramShift} << 32 | (total & kTokens));
    room[1] = static_cast<std::uint32_t>(taken >> 32);
    room[2] = static_cast<std::uint32_t>(taken);
  }
  if (lane.isLeader()) order[group] = sum;
  __syncthreads();
  const std::uint32_t token = room[2] + (order[group] & kTokens);
  if (begins_program) arguments.program_offsets[room[1] + (sum >> kProgramShift)] = token;
  lanes.each([&](TreeLane& of) { of.beginProgram(arguments.programs + token); });
  writeTrees(lanes);

  // The last block knows how many there are: each has added its programs before it is counted.
  __nvvm_membar_gl();
  if (thread == 0) room[3] = takeRoom(arguments.counts->blocks, std::uint32_t{1});
  __syncthreads();
  if (room[3] + 1 < __nvvm_read_ptx_sreg_nctaid_x()) return;
  __nvvm_membar_gl();
  const std::uint64_t taken = takeRoom(arguments.counts->programs_and_tokens, std::uint64_t{0});
  for (std::uint64_t p = (taken >> 32) + thread; p <= arguments.expressions; p += threads) {
    arguments.program_offsets[p] = static_cast<std::uint32_t>(taken);
  }
}

extern "C" __attribute__((nvptx_kernel)) void srjit_losses(LossArguments arguments) {
  const std::uint32_t e = blockNumber() * threadsOfLaunch() + threadNumber();
  if (e < arguments.expressions) writeLoss(arguments, e);
}

}  // namespace srjit
