#include "tests/gpu_model/fake_driver.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/numbers/rounding.h"
#include "tests/gpu_model/fake_state.h"

namespace srjit {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kGap = 4096;  // between allocations, so that a small overrun hits unallocated memory
constexpr unsigned kRegistersOfMultiprocessor = 65536;
constexpr double kKernelMilliseconds = 1;

std::mutex active_mutex;
FakeState* active = nullptr;
std::atomic<std::uint64_t> instances = 0;

// The FakeDriver whose context is current on this thread.
thread_local std::uint64_t current_instance = 0;
thread_local FakeContext* current_context = nullptr;

std::size_t rounded(std::size_t bytes) { return roundUp(bytes, kAlignment); }

}  // namespace

FakeState::FakeState(FakeOptions chosen) : options(std::move(chosen)), instance(++instances) {
  for (int i = 0; i < static_cast<int>(options.devices.size()); ++i) {
    contexts.push_back(std::make_unique<FakeContext>(FakeContext{i, 0, CUDA_SUCCESS}));
  }
  used = peak = reserved = std::vector<std::size_t>(options.devices.size());
  const std::scoped_lock lock(active_mutex);
  EXPECT_EQ(active, nullptr) << "one FakeDriver at a time";
  active = this;
}

FakeState::~FakeState() {
  const std::scoped_lock lock(active_mutex);
  active = nullptr;
}

CUresult FakeState::planned(std::string_view entry) {
  CUresult failure = CUDA_SUCCESS;
  FakeContext* const called_in = current();
  for (Failure& plan : failures) {
    if ((!plan.entry.empty() && plan.entry != entry) || plan.calls_left == 0) continue;
    if (plan.device && (called_in == nullptr || called_in->device != *plan.device)) continue;
    if (--plan.calls_left > 0) continue;
    has_failed = true;
    failed_entry = entry;
    if (plan.loses_device) {
      called_in->lost = plan.code;
    } else {
      failure = plan.code;
    }
  }
  return failure;
}

CUresult FakeState::enterModel(const char* entry, Kind kind, const std::function<CUresult(FakeState&)>& body) {
  std::unique_lock<std::mutex> activity(active_mutex);
  FakeState* const state = active;
  if (state == nullptr) return CUDA_ERROR_DEINITIALIZED;
  std::unique_lock lock(state->mutex);
  activity.unlock();
  if (const FakeContext* const context = state->current(); context != nullptr && state->announced_entry == entry) {
    const std::function<void(int)> before = state->before_call;
    lock.unlock();
    before(context->device);
    lock.lock();
  }
  state->calls.push_back({.entry = entry, .detail = {}});
  CUresult failure = state->planned(entry);
  if ((kind == Kind::kInContext || kind == Kind::kRelease) && failure == CUDA_SUCCESS) {
    const FakeContext* const context = state->current();
    failure = context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : context->lost;
  }
  if (failure != CUDA_SUCCESS && (kind == Kind::kFree || kind == Kind::kInContext)) return failure;
  CUresult code = CUDA_SUCCESS;
  try {
    code = body(*state);
  } catch (const FakeRefusal& refusal) {
    code = refusal.code;
  }
  return failure != CUDA_SUCCESS ? failure : code;
}

FakeContext* FakeState::current() { return current_instance == instance ? current_context : nullptr; }

void FakeState::note(std::size_t bytes, std::string detail, std::uint64_t stream) {
  calls.back().bytes = bytes;
  calls.back().detail = std::move(detail);
  calls.back().stream = stream;
}

CUresult FakeState::put(const std::shared_ptr<FakeStream>& stream, FakeWork work) {
  if (stream->context != current()) {
    problem("a stream of another context is used");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  calls.back().stream = stream->number;
  stream->queue.push_back(std::move(work));
  if (!options.lag) advance(*stream);
  return CUDA_SUCCESS;
}

CUresult FakeState::putKernels(const std::shared_ptr<FakeStream>& stream, FakeWork work) {
  const CUresult code = put(stream, std::move(work));
  if (code == CUDA_SUCCESS && options.eager_kernels) advance(*stream);
  return code;
}

void FakeState::advance(FakeStream& stream, const FakeMark* until) {
  while (!stream.queue.empty() && (until == nullptr || !until->done)) {
    const FakeWork work = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (work.after && !work.after->done) {
      if (const auto other = work.after->stream.lock()) advance(*other, work.after.get());
    }
    try {
      work.run();
    } catch (const std::exception& fault) {
      problem(fault.what());
      stream.context->lost = CUDA_ERROR_ILLEGAL_ADDRESS;
    }
  }
}

std::shared_ptr<FakeMark> FakeState::mark(const std::shared_ptr<FakeStream>& stream) {
  const auto mark = std::make_shared<FakeMark>();
  mark->stream = stream;
  put(stream, {[this, mark] {
                 mark->done = true;
                 mark->milliseconds = milliseconds;
               },
               nullptr, nullptr, 0});
  return mark;
}

void FakeState::runKernel(const FakeKernelCall& call, FakeContext& context) {
  if (context.lost != CUDA_SUCCESS) return;
  milliseconds += kKernelMilliseconds;
  ++kernels_run;
  if (before_kernel) before_kernel(kernels_run);
  if (kernels_left > 0 && --kernels_left == 0) {
    has_failed = true;
    context.lost = kernel_code;
    return;
  }
  try {
    call.function->model->run(call.launch, *this);
  } catch (const std::exception& fault) {
    throw ModelFault(call.function->model->facts().name + ": " + fault.what());
  }
}

FakeKernelCall FakeState::prepare(CUfunction function, std::array<unsigned, 3> grid, std::array<unsigned, 3> block,
                                  std::size_t shared_bytes, void** arguments) {
  FakeKernelCall call{find(functions, function, "kernel"), {grid, block, shared_bytes, {}}};
  if (call.function->module->context != current()) throw FakeRefusal{CUDA_ERROR_INVALID_CONTEXT};
  std::uint64_t threads = 1;
  bool is_valid = true;
  for (int i = 0; i < 3; ++i) {
    is_valid = is_valid && grid[i] != 0 && block[i] != 0 && grid[i] <= (i == 0 ? 0x7fffffffu : 0xffffu);
    threads *= block[i];
  }
  if (!is_valid || threads > 1024 || shared_bytes > call.function->dynamic_shared_bytes) {
    throw FakeRefusal{CUDA_ERROR_INVALID_VALUE};
  }
  if (threads * call.function->model->facts().registers > kRegistersOfMultiprocessor) {
    throw FakeRefusal{CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES};
  }
  for (const std::size_t bytes : call.function->model->parameterBytes()) {
    const std::size_t first = call.launch.arguments.size();
    call.launch.arguments.resize(first + ceilDivide(bytes, 8));
    std::memcpy(&call.launch.arguments[first], *arguments++, bytes);
  }
  return call;
}

std::byte* FakeState::range(std::uint64_t address, std::size_t bytes) {
  auto found = memory.upper_bound(address);
  if (found != memory.begin()) {
    --found;
    const std::size_t offset = address - found->first;
    if (offset <= found->second.bytes && bytes <= found->second.bytes - offset) {
      return found->second.storage.get() + offset;
    }
  }
  throw ModelFault(fmt::format("{} bytes at {:#x} are not inside of an allocation", bytes, address));
}

CUdeviceptr FakeState::allocate(std::size_t bytes, int device, bool foreign) {
  const auto at = static_cast<std::size_t>(device);
  const CUdeviceptr address = next_address;
  next_address += rounded(bytes) + kGap;
  FakeAllocation allocation{bytes, device, foreign, false, std::make_unique<std::byte[]>(bytes)};
  std::memset(allocation.storage.get(), 0xff, bytes);
  memory.emplace(address, std::move(allocation));
  if (!foreign) {
    used[at] += rounded(bytes);
    peak[at] = std::max(peak[at], used[at]);
    reserved[at] = std::max(reserved[at], used[at]);
  }
  return address;
}

void FakeState::release(FakeAllocation& allocation) {
  allocation.freed = true;
  used[static_cast<std::size_t>(allocation.device)] -= rounded(allocation.bytes);
}

std::size_t FakeState::available(int device) const {
  const auto at = static_cast<std::size_t>(device);
  const std::size_t taken = used[at] + occupied, all = options.devices[at].memory_bytes;
  return all > taken ? all - taken : 0;
}

bool FakeState::isPinned(const void* address, std::size_t bytes) const {
  const auto* const first = static_cast<const std::byte*>(address);
  auto found = pinned.upper_bound(first);
  if (found == pinned.begin()) return false;
  --found;
  return first + bytes <= found->first + found->second;
}

void FakeState::reportLeaks(const FakeContext* context) {
  const auto report = [&](std::size_t count, const char* what) {
    if (count > 0) problem(fmt::format("{} {} not destroyed", count, what));
  };
  const auto of = [&](const auto& table) {
    std::size_t count = 0;
    for (const auto& [handle, object] : table) count += context == nullptr || object->context == context ? 1 : 0;
    return count;
  };
  report(of(streams), "streams");
  report(of(events), "events");
  report(of(pools), "pools");
  report(of(modules), "modules");
  report(of(graphs) + of(executables), "graphs");
  std::size_t allocations = 0;
  for (const auto& [address, allocation] : memory) {
    allocations += !allocation.foreign && (context == nullptr || allocation.device == context->device) ? 1 : 0;
  }
  report(allocations, "device allocations");
  if (context == nullptr) report(pinned.size(), "pinned allocations");
  for (const auto& other : contexts) {
    if (context == nullptr && other->retained != 0) problem("a context is left retained");
  }
}

// Entries about contexts are here, next to the thread-local variables.
CUresult FakeEntries::cuCtxSetCurrent(CUcontext context) {
  return FakeState::enter(__func__, FakeState::Kind::kFree, [&](FakeState& state) {
    auto* const wanted = reinterpret_cast<FakeContext*>(context);
    if (wanted != nullptr && wanted->retained == 0) throw FakeRefusal{CUDA_ERROR_INVALID_CONTEXT};
    current_instance = state.instance;
    current_context = wanted;
  });
}

CUresult FakeEntries::cuCtxGetCurrent(CUcontext* context) {
  return FakeState::enter(__func__, FakeState::Kind::kFree,
                          [&](FakeState& state) { *context = reinterpret_cast<CUcontext>(state.current()); });
}

FakeDriver::FakeDriver(FakeOptions options) : state_(std::make_unique<FakeState>(std::move(options))) {}

FakeDriver::~FakeDriver() {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->reportLeaks(nullptr);
  }
  for (const std::string& problem : takeProblems()) ADD_FAILURE() << "FakeDriver: " << problem;
}

Result<std::shared_ptr<const Driver>> FakeDriver::load() const {
  return bindDriver([this](const char* name, int version) -> void* {
    if (version > state_->options.version || state_->options.missing.contains(name)) return nullptr;
#define SRJIT_DRIVER(entry, entry_version, parameters) \
  if (std::string_view(name) == #entry) return reinterpret_cast<void*>(&FakeEntries::entry);
#include "runtime/cuda/driver.def"
#undef SRJIT_DRIVER
    return nullptr;
  });
}

void FakeDriver::failAt(std::string_view entry, std::size_t n, CUresult code, std::optional<int> device) {
  const std::scoped_lock lock(state_->mutex);
  state_->failures.push_back({std::string(entry), n, code, device});
}

void FakeDriver::failKernel(std::size_t n, CUresult code) {
  const std::scoped_lock lock(state_->mutex);
  state_->kernels_left = n;
  state_->kernel_code = code;
}

void FakeDriver::beforeKernels(std::function<void(std::size_t)> before) {
  const std::lock_guard lock(state_->mutex);
  state_->before_kernel = std::move(before);
}

void FakeDriver::beforeCalls(std::string_view entry, std::function<void(int)> before) {
  const std::lock_guard lock(state_->mutex);
  state_->announced_entry = entry;
  state_->before_call = std::move(before);
}

void FakeDriver::alterCode(AlterCode alter) {
  const std::scoped_lock lock(state_->mutex);
  state_->alter_code = std::move(alter);
}

void FakeDriver::loseDevice(CUresult code, std::optional<int> device) {
  const std::scoped_lock lock(state_->mutex);
  for (const auto& context : state_->contexts) {
    if (!device || context->device == *device) context->lost = code;
  }
}

void FakeDriver::loseAt(int device, std::string_view entry, std::size_t n, CUresult code) {
  const std::scoped_lock lock(state_->mutex);
  state_->failures.push_back({std::string(entry), n, code, device, true});
}

bool FakeDriver::hasFailed() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->has_failed;
}

void FakeDriver::forgetFailures() {
  const std::scoped_lock lock(state_->mutex);
  state_->failures.clear();
  state_->kernels_left = 0;
}

std::size_t FakeDriver::kernelsRun() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->kernels_run;
}

std::string FakeDriver::failedEntry() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->failed_entry;
}

void FakeDriver::occupy(std::size_t bytes) {
  const std::scoped_lock lock(state_->mutex);
  state_->occupied = bytes;
}

std::vector<FakeCall> FakeDriver::calls() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->calls;
}

std::size_t FakeDriver::count(std::string_view entry) const {
  const std::scoped_lock lock(state_->mutex);
  return static_cast<std::size_t>(
      std::ranges::count_if(state_->calls, [&](const FakeCall& call) { return call.entry == entry; }));
}

void FakeDriver::forgetCalls() {
  const std::scoped_lock lock(state_->mutex);
  state_->calls.clear();
  state_->kernels_run = 0;
}

std::size_t FakeDriver::usedBytes(int device) const {
  const std::scoped_lock lock(state_->mutex);
  return state_->used.at(static_cast<std::size_t>(device));
}

std::size_t FakeDriver::peakBytes(int device) const {
  const std::scoped_lock lock(state_->mutex);
  return state_->peak.at(static_cast<std::size_t>(device));
}

CUdeviceptr FakeDriver::allocateForeign(std::span<const std::byte> contents, int device) {
  const std::scoped_lock lock(state_->mutex);
  const CUdeviceptr address = state_->allocate(contents.size(), device, true);
  std::ranges::copy(contents, state_->range(address, contents.size()));
  return address;
}

std::vector<std::byte> FakeDriver::readForeign(CUdeviceptr address, std::size_t bytes) const {
  const std::scoped_lock lock(state_->mutex);
  const std::byte* const from = state_->range(address, bytes);
  return {from, from + bytes};
}

void FakeDriver::freeForeign(CUdeviceptr address) {
  const std::scoped_lock lock(state_->mutex);
  if (state_->memory.erase(address) == 0) state_->problem("foreign memory is freed twice");
}

std::vector<std::string> FakeDriver::takeProblems() {
  const std::scoped_lock lock(state_->mutex);
  return std::exchange(state_->problems, {});
}

}  // namespace srjit
