#include "runtime/code/interpreted/device_encoding.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include <tbb/parallel_for.h>

#include "runtime/code/device_arrays.h"
#include "runtime/code/interpreted/chunk_encoder.h"
#include "runtime/platform/aligned_buffer.h"

namespace srjit {

namespace {

template <class Visit>
void forEachArray(EncodeArguments& arguments, const Visit& visit) {
  auto& [ops, variants, checks, steps] = arguments.rules;
  visit(ops);
  visit(variants);
  visit(checks);
  visit(steps);
  visit(arguments.handlers.ops);
  visit(arguments.handlers.plans);
  visit(arguments.handlers.plain);
  visit(arguments.handlers.applies);
}

}  // namespace

FrontEnd::FrontEnd(std::shared_ptr<const Module> module, const std::shared_ptr<const Stream>& stream,
                   Precision precision, Math math, const HandlerTable& table)
    : module_(std::move(module)), encode_(module_->kernel(kEncodeKernel)), link_(module_->kernel(kLinkKernel)) {
  arguments_.precision = precision;
  arguments_.math = math;
  arguments_.rules = rulesFor(ruleModeOf(math, precision));
  arguments_.handlers = table.numbers();
  tables_ = copyArrays(stream, [&](const auto& visit) { forEachArray(arguments_, visit); });
}

namespace {

// Measured on an H200: more workers do not encode faster, as instructions are fetched for warps that go different ways
// (docs/history/experiments.md).
constexpr unsigned kBlocksPerMultiprocessor = 4;

unsigned blocksFor(std::size_t expressions, const DeviceQueue& queue) {
  const std::size_t most = std::size_t{kBlocksPerMultiprocessor} * queue.cuda->limits().multiprocessors;
  return static_cast<unsigned>(std::min(most, ceilDivide(expressions, std::size_t{kEncodeThreads})));
}

template <class Parts, class Work>
void forEachInParallel(Parts& parts, const Work& work) {
  tbb::parallel_for(std::size_t{0}, parts.size(), [&](std::size_t r) { work(parts[r]); });
}

}  // namespace

/// A block of the population, which one task handles: its expressions `first` to `last` - 1.
struct DeviceEncoding::Part {
  const Population::Block& block;
  std::size_t first, last;
  std::size_t codes = 0, constants = 0;                               ///< before it, of all that are copied
  std::size_t programs = 0, tokens = 0, parameters = 0, patches = 0;  ///< before it, of all programs
  std::size_t expression_tokens = 0, nodes = 0;                       ///< of its programs
  std::uint32_t slots = 0;                                            ///< the most of a program
  std::vector<std::uint32_t> left = {};
};

DeviceEncoding::DeviceEncoding(KernelStore& store, const ProgramSource& source, std::size_t count,
                               std::shared_ptr<const FrontEnd> front_end, std::uint32_t max_slots)
    : source_(source),
      count_(count),
      queue_(store.queue()),
      front_end_(std::move(front_end)),
      began_(queue_.cuda, true),
      done_(queue_.cuda, true) {
  std::size_t first = 0;
  for (const Population::Block& block : source_.expressions.blocks().first(ceilDivide(count_, Population::kBlock))) {
    parts_.push_back({block, first, first + block.size()});
    first += block.size();
  }
  try {
    encode(copyPopulation(), max_slots);
  } catch (...) {
    queue_.uploads->settle();
    throw;
  }
  in_flight_ = true;
}

DeviceEncoding::~DeviceEncoding() {
  if (in_flight_ && !queue_.cuda->isForked()) queue_.uploads->settle();
}

void DeviceEncoding::finish() {
  done_.synchronize();
  in_flight_ = false;
  findPlaces();
  facts_.operators.assign(used_.begin(), used_.begin() + kOpCount);
  facts_.variables.assign(used_.begin() + kOpCount, used_.end());
}

std::size_t DeviceEncoding::copyPopulation() {
  std::size_t codes = 0, constants = 0;
  for (Part& part : parts_) {
    part.codes = std::exchange(codes, codes + part.block.codes().size());
    part.constants = std::exchange(constants, constants + part.block.constants().size());
  }
  ArrayLayout layout;
  const std::size_t codes_at = layout.add<std::int32_t>(codes), constants_at = layout.add<double>(constants);
  const std::size_t first_codes_at = layout.add<std::uint32_t>(count_ + 1);
  const std::size_t first_constants_at = layout.add<std::uint32_t>(count_ + 1);
  population_staging_ = queue_.pinned.take(layout.bytes());
  auto* const bytes = static_cast<std::byte*>(population_staging_->data());
  auto* const first_codes = at<std::uint32_t>(bytes, first_codes_at);
  auto* const first_constants = at<std::uint32_t>(bytes, first_constants_at);
  forEachInParallel(parts_, [&](const Part& part) {
    std::ranges::copy(part.block.codes(), at<std::int32_t>(bytes, codes_at) + part.codes);
    std::ranges::copy(part.block.constants(), at<double>(bytes, constants_at) + part.constants);
    for (std::size_t e = part.first; e < part.last; ++e) {
      first_codes[e] = static_cast<std::uint32_t>(part.codes + part.block.firstCode(e - part.first));
      first_constants[e] = static_cast<std::uint32_t>(part.constants + part.block.firstConstant(e - part.first));
    }
  });
  first_codes[count_] = static_cast<std::uint32_t>(codes);
  first_constants[count_] = static_cast<std::uint32_t>(constants);
  population_memory_ = DeviceBuffer(queue_.uploads, layout.bytes());
  queue_.uploads->record(began_);
  queue_.uploads->copyToDevice(population_memory_.address(), bytes, layout.bytes());
  population_ = {at<std::int32_t>(population_memory_, codes_at), at<double>(population_memory_, constants_at),
                 at<std::uint32_t>(population_memory_, first_codes_at),
                 at<std::uint32_t>(population_memory_, first_constants_at), static_cast<std::uint32_t>(count_)};
  return codes;
}

void DeviceEncoding::encode(std::size_t codes, std::uint32_t max_slots) {
  const std::size_t flags = kOpCount + source_.variables;
  const unsigned blocks = blocksFor(count_, queue_);
  ArrayLayout layout;
  const std::size_t sizes_at = layout.add<EncodedSize>(count_), flags_at = layout.add<std::uint32_t>(flags);
  const std::size_t cleared = layout.bytes();
  const std::size_t tokens_at = layout.add<DeviceToken>(roomForTokens(codes, count_));
  const std::size_t parameters_at = layout.add<ParameterSource>(roomForParameters(codes, count_));
  program_memory_ = DeviceBuffer(queue_.uploads, layout.bytes());
  const DeviceBuffer memory(queue_.uploads, std::size_t{blocks} * kEncodeThreads * kWorkerBytes);
  encoded_ = {at<EncodedSize>(program_memory_, sizes_at), at<DeviceToken>(program_memory_, tokens_at),
              at<ParameterSource>(program_memory_, parameters_at)};
  EncodeArguments arguments = front_end_->arguments();
  arguments.population = population_;
  arguments.programs = encoded_;
  arguments.operators = at<std::uint32_t>(program_memory_, flags_at);
  arguments.variables = arguments.operators + kOpCount;
  arguments.memory = at<std::byte>(memory, 0);
  arguments.first_slot = kFirstSlot;
  arguments.max_slots = max_slots;
  arguments.few_slots = fewSlots(source_.precision);
  sizes_staging_ = queue_.pinned.take(tokens_at);
  const Stream& stream = *queue_.uploads;
  stream.fill(program_memory_.address(), 0, cleared);
  stream.launch({.kernel = front_end_->encodeKernel().get(),
                 .grid_x = blocks,
                 .block_threads = kEncodeThreads,
                 .arguments = addressesOf(arguments)});
  stream.copyToHost(sizes_staging_->data(), program_memory_.address(), tokens_at);
  stream.record(done_);
  auto* const bytes = static_cast<std::byte*>(sizes_staging_->data());
  sizes_ = {at<EncodedSize>(bytes, sizes_at), count_};
  used_ = {at<std::uint32_t>(bytes, flags_at), flags};
}

void DeviceEncoding::findPlaces() {
  forEachInParallel(parts_, [&](Part& part) {
    part.expression_tokens = part.block.tokens();
    for (std::size_t e = part.first; e < part.last; ++e) {
      const EncodedSize size = sizes_[e];
      if (size.tokens == 0) {
        part.left.push_back(static_cast<std::uint32_t>(e));
        part.expression_tokens -= source_.expressions[e].size();
        continue;
      }
      part.nodes += size.nodes;
      part.tokens += size.tokens;
      part.parameters += size.parameters;
      part.patches += size.patches;
      part.slots = std::max<std::uint32_t>(part.slots, size.slots);
    }
  });
  for (Part& part : parts_) {
    part.programs = part.first - left_.size();
    left_.insert(left_.end(), part.left.begin(), part.left.end());
    facts_.tokens += part.expression_tokens;
    facts_.nodes += part.nodes;
    slots_ = std::max(slots_, part.slots);
    tokens_ += std::exchange(part.tokens, tokens_);
    parameters_ += std::exchange(part.parameters, parameters_);
    patches_ += std::exchange(part.patches, patches_);
  }
  places_staging_ = queue_.pinned.take(sizes_.size() * sizeof(ProgramPlace));
  places_ = places_staging_->as<ProgramPlace>().first(sizes_.size());
  forEachInParallel(parts_, [&](const Part& part) {
    std::size_t token = part.tokens, parameter = part.parameters;
    for (std::size_t e = part.first; e < part.last; ++e) {
      places_[e] = {static_cast<std::uint32_t>(token), static_cast<std::uint32_t>(parameter)};
      token += sizes_[e].tokens;
      parameter += sizes_[e].parameters;
    }
  });
}

void DeviceEncoding::putOffsets(std::span<std::uint32_t> offsets) const {
  forEachInParallel(parts_, [&](const Part& part) {
    std::size_t program = part.programs;
    for (std::size_t e = part.first; e < part.last; ++e) {
      if (sizes_[e].tokens != 0) offsets[program++] = places_[e].token;
    }
  });
}

void DeviceEncoding::link(std::span<const std::uint16_t> handlers, std::span<const std::uint32_t> staged_as,
                          std::uint32_t staged_columns, CUdeviceptr tokens, ParameterTable& table,
                          std::size_t more_entries, std::size_t more_patches) {
  ArrayLayout layout;
  const std::size_t handlers_at = layout.add<std::uint16_t>(handlers.size());
  const std::size_t staged_at = layout.add<std::uint32_t>(staged_as.size());
  const std::size_t copied = layout.bytes();
  const std::size_t parameters_at = layout.add<ParameterSource>(parameters_);
  const std::shared_ptr<PinnedBuffer> staging = queue_.pinned.take(layout.bytes());
  const std::size_t places_at = layout.add<ProgramPlace>(places_.size());
  auto* const bytes = static_cast<std::byte*>(staging->data());
  std::ranges::copy(handlers, at<std::uint16_t>(bytes, handlers_at));
  std::ranges::copy(staged_as, at<std::uint32_t>(bytes, staged_at));
  const DeviceBuffer memory(queue_.uploads, layout.bytes());
  LinkArguments arguments{.population = population_,
                          .programs = encoded_,
                          .links = {{at<std::uint16_t>(memory, handlers_at), handlers.size()},
                                    {at<std::uint32_t>(memory, staged_at), staged_as.size()},
                                    staged_columns,
                                    kFirstSlot},
                          .places = at<ProgramPlace>(memory, places_at),
                          .tokens = std::bit_cast<DeviceToken*>(tokens),
                          .parameters = at<ParameterSource>(memory, parameters_at)};
  auto* const sources = at<ParameterSource>(bytes, parameters_at);
  queue_.uploads->complete([&] {
    queue_.uploads->copyToDevice(memory.address(), bytes, copied);
    queue_.uploads->copyToDevice(memory.address() + places_at, places_.data(), places_.size_bytes());
    queue_.uploads->launch({.kernel = front_end_->linkKernel().get(),
                            .grid_x = static_cast<unsigned>(ceilDivide(places_.size(), std::size_t{kEncodeThreads})),
                            .block_threads = kEncodeThreads,
                            .arguments = addressesOf(arguments)});
    queue_.uploads->copyToHost(sources, memory.address() + parameters_at, parameters_ * sizeof(ParameterSource));
  });
  table.resize(parameters_ + more_entries, patches_ + more_patches);
  writeParameters({sources, parameters_}, table);
}

void DeviceEncoding::writeParameters(std::span<const ParameterSource> sources, ParameterTable& table) {
  forEachInParallel(parts_, [&](const Part& part) {
    std::size_t patch = part.patches;
    for (std::size_t e = part.first; e < part.last; ++e) {
      const EncodedSize size = sizes_[e];
      const std::size_t entry = places_[e].parameter;
      table.put(entry, patch, size.patches, sources.subspan(entry, size.parameters), source_.parameterOffset(e));
      patch += size.patches;
    }
  });
}

}  // namespace srjit
