#include "compiler/direct/emitter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <iterator>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "compiler/direct/allocate.h"
#include "compiler/direct/loss.h"
#include "compiler/direct/registers.h"
#include "compiler/direct/schedule.h"
#include "compiler/direct/select.h"
#include "compiler/target/architecture.h"
#include "ir/ops.h"

namespace srjit {
namespace {

using direct::Opcode;
using sass::Compare;

constexpr unsigned kLeastRegisters = 40, kLongestWindow = 32;
constexpr std::size_t kAlignment = 8;  // alignment of a group's code in instructions: one line of the instruction cache

Status checkOptions(const DirectOptions& options) {
  const auto invalid = [](std::string message) { return Error{Errc::kInvalid, std::move(message), {}}; };
  if (std::ranges::find(directArchitectures(), options.architecture) == directArchitectures().end()) {
    return Error{Errc::kUnsupported, fmt::format("no direct code for sm_{}", options.architecture), {}};
  }
  if (options.roots < 1 || options.roots > kDirectRoots) {
    return invalid(fmt::format("{} roots per group, expected 1 to {}", options.roots, kDirectRoots));
  }
  if (options.registers < kLeastRegisters || options.registers > direct::kMostRegisters) {
    return invalid(
        fmt::format("{} registers, expected {} to {}", options.registers, kLeastRegisters, direct::kMostRegisters));
  }
  if (options.window < 1 || options.window > kLongestWindow) {
    return invalid(fmt::format("a window of {} instructions, expected 1 to {}", options.window, kLongestWindow));
  }
  if (options.subroutines &&
      (isDouble(options.precision) || options.registers != direct::kMostRegisters || options.window != 1)) {
    return invalid(fmt::format("subroutines require f32, {} registers and a window of 1", direct::kMostRegisters));
  }
  return okStatus();
}

constexpr unsigned kCountRegisters = kDirectRoots / 4;

direct::RegisterSet reservedRegisters(const DirectOptions& options) {
  namespace fixed = direct::fixed;
  using direct::registerSet;
  direct::RegisterSet reserved = registerSet(fixed::kRow) | registerSet(fixed::kNumbers, 2);
  if (!options.loss) return reserved | registerSet(fixed::kOutputs, 2);
  const unsigned width = direct::widthOf(options.precision);
  const direct::SumRegisters kept(width);
  reserved |= registerSet(fixed::kOutput) | registerSet(kept.previous, width) | registerSet(kept.first_half, width);
  if (direct::countsRows(*options.loss)) reserved |= registerSet(kept.counts, kCountRegisters);
  if (direct::weighsRows(*options.loss)) {
    reserved |= registerSet(kept.previous_weight, width) | registerSet(kept.first_half_weight, width);
  }
  return reserved;
}

direct::RegisterFile registerFile(const DirectOptions& options) {
  constexpr int kMargin = 10;  // for registers lost to the alignment of wide results
  const direct::RegisterSet reserved = reservedRegisters(options);
  const unsigned nameable = options.registers - sass::kHiddenRegisters;
  return {reserved, nameable, static_cast<int>(nameable) - std::popcount(reserved) - kMargin};
}

/// That of a group with subroutines.
direct::RegisterFile registerFileOfCalls(direct::RegisterFile file) {
  file.reserved |=
      direct::registerSet(direct::fixed::kFirstArgument, 2) | direct::registerSet(direct::fixed::kReturn, 2);
  file.of_subroutines = direct::registerSet(direct::kFirstOfSubroutines, direct::kRegistersOfSubroutines);
  return file;
}

static_assert(kMostChannels <= kDirectRoots, "each channel of a root has a lane");

// A root takes a lane for each of its items. A group of more roots never fits the registers: the sums of terms and of
// weights stay live until their partners in the reduction tree are known.
unsigned mostRoots(const DirectOptions& options) {
  const bool has_two_sums = options.loss && direct::weighsRows(*options.loss);
  return (has_two_sums && isDouble(options.precision) ? kDirectRoots / 2 : kDirectRoots) / directItems(options.loss);
}

std::uint32_t bytesOf(std::size_t instructions) {
  return static_cast<std::uint32_t>(instructions * sizeof(sass::Word));
}

void pad(std::vector<sass::Word>& words, unsigned architecture) {
  while (words.size() % kAlignment != 0) words.push_back(sass::encode({.form = sass::Form::kNop}, architecture));
}

// An image lists at most kDirectExits exits. Exits of groups are unconditional, so an exit beyond the list becomes a
// branch to the last listed one. `at` is the offset of `word`.
void addExit(DirectImage& image, std::uint32_t at, sass::Word& word, unsigned architecture) {
  if (image.exits.size() < kDirectExits) {
    image.exits.push_back(at);
    return;
  }
  const sass::Control control = sass::decode(word, architecture).value().control;
  word = sass::encode({.form = sass::Form::kBra,
                       .immediate = image.exits.back() - at - static_cast<std::uint32_t>(sizeof(sass::Word)),
                       .control = control},
                      architecture);
}

/// The code before all groups: computes the thread's row, loads the addresses of its group's tables, and branches to
/// the group's code.
class Prologue {
 public:
  explicit Prologue(const DirectOptions& options) : options_(options), arguments_(options.architecture) {}

  direct::Code make() {
    code_.append({.opcode = direct::opcodeOf(sass::descriptorLoadOf(options_.architecture)),
                  .immediate = architectureOf(options_.architecture).descriptor});
    const direct::ValueId lane = emitRow();
    const direct::ValueId y = code_.value({.opcode = Opcode::kS2rCtaY});
    const direct::ValueId groups = arguments_.loadPair(code_, offsetof(DirectArguments, groups));
    const direct::ValueId entry = direct::addressTimes(code_, groups, y, sizeof(DirectGroup));
    // The memory descriptor is in no register that the allocator tracks, so this operation synchronizes with its load.
    const direct::ValueId group =
        code_.value({.opcode = Opcode::kLdg128, .synchronized = true, .sources = {entry, direct::kRz, direct::kRz}}, 4);
    const auto field = [&](std::size_t offset) { return group + static_cast<direct::ValueId>(offset / 4); };
    const direct::ValueId numbers = arguments_.loadPair(code_, offsetof(DirectArguments, numbers));
    code_.append({.opcode = Opcode::kImadWideURIR,
                  .destination = direct::fixed::kNumbers,
                  .sources = {field(offsetof(DirectGroup, parameter)), direct::kRz, numbers},
                  .immediate = static_cast<std::uint32_t>(bytesOf(options_.precision))});
    const direct::ValueId outputs = arguments_.loadPair(code_, offsetof(DirectArguments, outputs));
    emitOutputs(lane, outputs, field(offsetof(DirectGroup, output)), field(offsetof(DirectGroup, outputs)));
    const direct::ValueId target = direct::addressTimes(code_, direct::kRz, field(offsetof(DirectGroup, code)), 1);
    code_.append({.opcode = Opcode::kBrx, .synchronized = true, .sources = {target, direct::kRz, direct::kRz}});
    return std::move(code_);
  }

 private:
  /// Returns the lane; warps without rows exit.
  direct::ValueId emitRow() {
    const direct::ValueId thread = code_.value({.opcode = Opcode::kS2rTid});
    const direct::ValueId row_block = code_.value({.opcode = Opcode::kS2rCtaX});
    const direct::ValueId rows = arguments_.load(code_, offsetof(DirectArguments, rows));
    const direct::ValueId warps = arguments_.load(code_, offsetof(DirectArguments, warps));
    const direct::ValueId lane = direct::andWith(code_, thread, 31);
    const direct::ValueId warp =
        code_.value({.opcode = Opcode::kShrRI, .sources = {thread, direct::kRz, direct::kRz}, .immediate = 5});
    const direct::ValueId row_group = code_.value({.opcode = Opcode::kImadRRR, .sources = {row_block, warps, warp}});
    const direct::ValueId first = code_.value({.opcode = Opcode::kImadRIR,
                                               .sources = {row_group, direct::kRz, direct::kRz},
                                               .immediate = static_cast<std::uint32_t>(kGroupRows)});
    const direct::PredicateId is_empty = code_.truth({.opcode = Opcode::kISetPURR,
                                                      .modifier = sass::modifierOf(Compare::kGreaterEqual),
                                                      .sources = {first, rows, direct::kRz}});
    code_.append({.opcode = Opcode::kExit, .guard = is_empty});
    code_.append(
        {.opcode = Opcode::kIAdd3RRR, .destination = direct::fixed::kRow, .sources = {first, lane, direct::kRz}});
    return lane;
  }

  void emitOutputs(direct::ValueId lane, direct::ValueId outputs, direct::ValueId first, direct::ValueId count) {
    namespace fixed = direct::fixed;
    if (!options_.loss) {
      code_.append({.opcode = Opcode::kImadWideURIR,
                    .destination = fixed::kOutputs,
                    .sources = {first, direct::kRz, outputs},
                    .immediate = sizeof(std::uint32_t)});
      return;
    }
    const direct::ValueId of_group = direct::addressTimes(code_, outputs, first, sizeof(std::uint32_t));
    const direct::ValueId address = direct::addressTimes(code_, of_group, lane, sizeof(std::uint32_t));
    const direct::PredicateId has_output = code_.truth({.opcode = Opcode::kISetPURR,
                                                        .modifier = sass::modifierOf(Compare::kLess),
                                                        .sources = {lane, count, direct::kRz}});
    direct::moveTo(code_, fixed::kOutput, direct::kRz);
    code_.append({.opcode = Opcode::kLdg,
                  .guard = has_output,
                  .destination = fixed::kOutput,
                  .sources = {address, direct::kRz, direct::kRz}});
    for (const unsigned bit : {0U, 1U}) {
      code_.append({.opcode = Opcode::kISetPURI,
                    .modifier = sass::modifierOf(Compare::kNotEqual),
                    .predicate = direct::machinePredicate(bit),
                    .sources = {direct::andWith(code_, lane, 1U << bit), direct::kRz, direct::kRz}});
    }
    const direct::RegisterSet reserved = reservedRegisters(options_);
    const direct::SumRegisters kept(direct::widthOf(options_.precision));
    for (direct::ValueId r = kept.previous; r < kept.counts + kCountRegisters; ++r) {
      if ((reserved & direct::registerSet(r)) != 0) direct::moveTo(code_, r, direct::kRz);
    }
  }

  const DirectOptions& options_;
  direct::KernelArguments arguments_;
  direct::Code code_;
};

}  // namespace

std::string tooLongText(const DirectOptions& options) {
  return fmt::format("is too long, or needs more than {} registers", options.registers);
}

struct DirectEmitter::State {
  explicit State(const DirectOptions& o)
      : options(o),
        file(registerFile(o)),
        file_of_calls(registerFileOfCalls(file)),
        selector(o),
        allocator(o.architecture) {}

  void emit(const Dag& dag, DirectPart& part, DirectTrace* trace);
  void emitGroup(std::span<const std::uint32_t> roots, DirectPart& part);
  void addTrace(std::size_t begin);
  bool generate(std::span<const std::uint32_t> roots, DirectPart& part);
  bool generate(std::span<const std::uint32_t> roots, direct::Selector::Keep kept, bool subroutines, DirectPart& part);

  DirectOptions options;
  direct::RegisterFile file, file_of_calls;
  direct::Selector selector;
  direct::Scheduler scheduler;
  direct::Allocator allocator;
  direct::Code code;
  // Of emit(), if asked for:
  DirectTrace* trace = nullptr;
  direct::OperationNodes operation_nodes;
  std::vector<std::uint32_t> origins;
};

// Appends the instructions of one group. Appends its entries to the tables.
bool DirectEmitter::State::generate(std::span<const std::uint32_t> roots, DirectPart& part) {
  for (const bool subroutines : {true, false}) {
    if (subroutines && !options.subroutines) continue;
    using enum direct::Selector::Keep;
    if (generate(roots, kMany, subroutines, part) || generate(roots, kFew, subroutines, part)) return true;
  }
  return false;
}

bool DirectEmitter::State::generate(std::span<const std::uint32_t> roots, direct::Selector::Keep kept, bool subroutines,
                                    DirectPart& part) {
  constexpr std::size_t kMostNumbers = std::size_t{1} << 20;  // loads reach 8 MB from the start of a table
  const std::size_t numbers = part.parameters.size(), outputs = part.outputs.size();
  const direct::Sections sections = selector.select(roots, kept, subroutines, code, part.parameters, part.outputs);
  const bool is_short = !code.isTooLong() && part.parameters.size() - numbers <= kMostNumbers;
  const bool has_subroutines = sections.subroutines != direct::Sections::kNone;
  const direct::RegisterFile& registers = has_subroutines ? file_of_calls : file;
  for (const unsigned window : {sections.has_branches ? 1U : options.window, 1U}) {
    if (!is_short) break;
    scheduler.begin(code, sections, window);
    if (allocator.run(code, scheduler, registers, sections.subroutines, part.words)) {
      part.has_subroutines |= has_subroutines;
      return true;
    }
    ++part.retries;
    if (window == 1) break;
  }
  part.parameters.resize(numbers);
  part.outputs.resize(outputs);
  return false;
}

void DirectEmitter::State::emitGroup(std::span<const std::uint32_t> roots, DirectPart& part) {
  const std::size_t numbers = part.parameters.size(), outputs = part.outputs.size();
  pad(part.words, options.architecture);
  const std::size_t begin = part.words.size();
  if (generate(roots, part)) {
    if (trace != nullptr) addTrace(begin);
    part.groups.push_back({.code = bytesOf(begin),
                           .parameter = static_cast<std::uint32_t>(numbers),
                           .output = static_cast<std::uint32_t>(outputs),
                           .outputs = static_cast<std::uint32_t>(roots.size()) * directItems(options.loss)});
    part.registers = std::max(part.registers, allocator.registers() + sass::kHiddenRegisters);
    for (const std::uint32_t exit : allocator.exits()) part.exits.push_back(bytesOf(begin + exit));
    return;
  }
  if (roots.size() == 1) {
    part.refused.push_back(roots[0]);
    return;
  }
  ++part.splits;
  emitGroup(roots.first(roots.size() / 2), part);
  emitGroup(roots.subspan(roots.size() / 2), part);
}

// The nodes of the words of the last group, which begin at `begin`.
void DirectEmitter::State::addTrace(std::size_t begin) {
  std::ranges::sort(operation_nodes);
  operation_nodes.erase(std::ranges::unique(operation_nodes).begin(), operation_nodes.end());
  trace->resize(begin);
  for (const std::uint32_t operation : origins) {
    const auto nodes =
        std::ranges::equal_range(operation_nodes, operation, {}, &std::pair<std::uint32_t, NodeId>::first);
    for (std::vector<NodeId>& of_word = trace->emplace_back(); const auto& [at, node] : nodes) of_word.push_back(node);
  }
}

DirectEmitter::DirectEmitter(std::unique_ptr<State> state) : state_(std::move(state)) {}
DirectEmitter::DirectEmitter(DirectEmitter&&) noexcept = default;
DirectEmitter& DirectEmitter::operator=(DirectEmitter&&) noexcept = default;
DirectEmitter::~DirectEmitter() = default;

Result<DirectEmitter> DirectEmitter::create(const DirectOptions& options) {
  if (Status status = checkOptions(options); !status) return status.error();
  return DirectEmitter(std::make_unique<State>(options));
}

void DirectPart::clear() {
  words.clear();
  groups.clear();
  parameters.clear();
  outputs.clear();
  exits.clear();
  refused.clear();
  registers = splits = retries = 0;
  has_subroutines = false;
}

DirectPart DirectEmitter::emit(const Dag& dag) {
  DirectPart part;
  emit(dag, part);
  return part;
}

void DirectEmitter::emit(const Dag& dag, DirectPart& part) { state_->emit(dag, part, nullptr); }

DirectPart DirectEmitter::emit(const Dag& dag, DirectTrace& trace) {
  DirectPart part;
  trace.clear();
  state_->emit(dag, part, &trace);
  trace.resize(part.words.size());
  return part;
}

void DirectEmitter::State::emit(const Dag& dag, DirectPart& part, DirectTrace* wanted) {
  part.clear();
  trace = wanted;
  allocator.setOrigins(wanted != nullptr ? &origins : nullptr);
  selector.begin(dag, wanted != nullptr ? &operation_nodes : nullptr);
  std::vector<std::uint32_t> roots(dag.roots().size());
  std::iota(roots.begin(), roots.end(), 0U);
  if (dag.precision() != options.precision) roots.swap(part.refused);
  const std::size_t most = std::min<std::size_t>(options.roots, mostRoots(options));
  for (std::size_t first = 0; first < roots.size(); first += most) {
    const std::size_t count = std::min(most, roots.size() - first);
    emitGroup(std::span(roots).subspan(first, count), part);
  }
  std::ranges::sort(part.refused);
  pad(part.words, options.architecture);
}

Result<DirectImage> linkDirect(std::span<DirectPart> parts, const DirectOptions& options) {
  if (Status status = checkOptions(options); !status) return status.error();
  const direct::Code code = Prologue(options).make();
  direct::Scheduler scheduler;
  direct::Allocator allocator(options.architecture);
  DirectImage image;
  scheduler.begin(code, {.middle = code.size(), .tail = code.size()}, 1);
  if (!allocator.run(code, scheduler, registerFile(options), direct::Sections::kNone, image.words)) {
    return Error{
        Errc::kInvalid, fmt::format("{} registers are too few for the kernel's prologue", options.registers), {}};
  }
  image.registers = allocator.registers() + sass::kHiddenRegisters;
  std::size_t size = image.words.size() + kAlignment;
  for (const DirectPart& part : parts) size += part.words.size();
  if (size > std::numeric_limits<std::int32_t>::max() / sizeof(sass::Word)) {
    return Error{Errc::kInvalid, fmt::format("{} instructions in one kernel, whose branches reach 2 GB", size), {}};
  }
  for (const std::uint32_t exit : allocator.exits()) image.exits.push_back(bytesOf(exit));
  pad(image.words, options.architecture);
  std::size_t words = image.words.size();
  std::uint32_t numbers = 0, outputs = 0;
  for (DirectPart& part : parts) {
    const std::uint32_t base = bytesOf(words);
    words += part.words.size();
    for (const DirectGroup& group : part.groups) {
      image.groups.push_back({group.code + base, group.parameter + numbers, group.output + outputs, group.outputs});
    }
    for (const std::uint32_t exit : part.exits) {
      addExit(image, exit + base, part.words[exit / sizeof(sass::Word)], options.architecture);
    }
    numbers += static_cast<std::uint32_t>(part.parameters.size());
    outputs += static_cast<std::uint32_t>(part.outputs.size());
    image.registers = std::max(image.registers, part.registers);
    image.has_subroutines |= part.has_subroutines;
  }
  return image;
}

Result<DirectImage> joinDirect(std::span<const DirectPart> parts, const DirectOptions& options) {
  std::vector<DirectPart> linked(parts.begin(), parts.end());
  Result<DirectImage> image = linkDirect(linked, options);
  if (!image) return image;
  for (const DirectPart& part : linked) image->words.insert(image->words.end(), part.words.begin(), part.words.end());
  return image;
}

KernelDescription directKernel(const DirectImage& image, std::span<const DirectPart> parts) {
  std::vector<std::span<const sass::Word>> code = {image.words};
  for (const DirectPart& part : parts) code.emplace_back(part.words);
  return {.name = kDirectKernel,
          .code = std::move(code),
          .registers = image.registers,
          .parameter_bytes = {sizeof(DirectArguments)},
          .max_threads = {kWarpLanes * kDirectMostWarps, 1, 1},
          .exits = image.exits};
}

}  // namespace srjit
