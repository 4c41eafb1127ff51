#include "tests/faults/kinds.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace srjit {
namespace {

using Source = FaultKind::Source;

constexpr std::array<std::string_view, 1> kWriteCalls{"write"}, kReadCalls{"read"}, kSyncCalls{"fsync"},
    kRenames{"rename"}, kSizes{"ftruncate"}, kOpened{"open"}, kMakes{"mkdir"}, kFileLocks{"flock"}, kMaps{"mmap"},
    kProtects{"mprotect"}, kStarts{"pthread_create"};

constexpr FaultKind system(std::string_view name, unsigned uses, std::span<const std::string_view> calls, int number,
                           bool is_lasting = false) {
  return {name, uses, Source::kPoint, PointKind::kSystem, is_lasting, calls, number, CUDA_SUCCESS};
}

constexpr FaultKind memory(std::string_view name, unsigned uses, PointKind point, bool is_lasting) {
  return {name, uses, Source::kPoint, point, is_lasting, {}, 0, CUDA_SUCCESS};
}

constexpr FaultKind device(std::string_view name, Source source, CUresult code, unsigned uses = 0) {
  return {name, kGpu | uses, source, PointKind::kAllocation, source != Source::kCall, {}, 0, code};
}

constexpr FaultKind kKinds[] = {
    memory("Allocation", kMemory, PointKind::kAllocation, false),
    memory("AllocationsFrom", kMemory, PointKind::kAllocation, true),
    device("CallOutOfMemory", Source::kCall, CUDA_ERROR_OUT_OF_MEMORY),
    device("CallNotInitialized", Source::kCall, kNotInitialized, kCodes),
    device("CallUnavailable", Source::kCall, kDeviceUnavailable, kCodes),
    device("CallIllegalAddress", Source::kCall, CUDA_ERROR_ILLEGAL_ADDRESS),
    device("CallLaunchFailed", Source::kCall, CUDA_ERROR_LAUNCH_FAILED, kCodes),
    device("CallUnknown", Source::kCall, CUDA_ERROR_UNKNOWN, kCodes),
    device("LostByIllegalAddress", Source::kLost, CUDA_ERROR_ILLEGAL_ADDRESS),
    device("LostByEcc", Source::kLost, kEccUncorrectable, kCodes),
    device("KernelFails", Source::kKernel, CUDA_ERROR_LAUNCH_FAILED, kKernels),
    system("ThreadStart", kThreads, kStarts, EAGAIN),
    system("ThreadStartsFrom", kThreads, kStarts, EAGAIN, true),
    system("Map", kCode, kMaps, ENOMEM),
    system("Protect", kCode, kProtects, ENOMEM),
    system("WriteNoSpace", kFiles, kWriteCalls, ENOSPC),
    system("WriteNoSpaceFrom", kFiles, kWriteCalls, ENOSPC, true),
    system("WriteFails", kFiles, kWriteCalls, EIO),
    system("ReadFails", kReads, kReadCalls, EIO),
    system("SyncFails", kSyncs, kSyncCalls, EIO),
    system("RenameFails", kNames, kRenames, EIO),
    system("RenameRefused", kNames, kRenames, EPERM),
    system("ResizeNoSpace", kMarks, kSizes, ENOSPC),
    system("OpenTooMany", kOpens, kOpened, EMFILE),
    system("OpenFails", kOpens, kOpened, EIO),
    system("OpenUnsupported", kSyncs, kOpened, EOPNOTSUPP),
    system("MakeNoSpace", kFolders, kMakes, ENOSPC),
    system("FileLockFails", kLocks, kFileLocks, ENOLCK),
};

}  // namespace

std::span<const FaultKind> faultKinds() { return kKinds; }

Fault::Fault(const FaultKind& kind, std::size_t n, FakeDriver& driver, int device)
    : kind_(kind), driver_(driver), device_(device) {
  driver_.forgetCalls();
  const Injection counted{kind.point, kind.source == Source::kPoint ? n : 0, kind.is_lasting, kind.calls, kind.number};
  inject(counted);
  if (n == 0) return;
  if (kind.source == Source::kCall) driver_.failAt("", n, kind.code);
  if (kind.source == Source::kLost) driver_.loseAt(device, "", n, kind.code);
  if (kind.source == Source::kKernel) driver_.failKernel(n, kind.code);
}

Fault::~Fault() { end(); }

void Fault::end() {
  if (is_over_) return;
  is_over_ = true;
  points_ = endInjection();
  const bool is_point = kind_.source == Source::kPoint;
  if (kind_.source == Source::kCall || kind_.source == Source::kLost) points_ = driver_.calls().size();
  if (kind_.source == Source::kKernel) points_ = driver_.kernelsRun();
  has_happened_ = is_point ? hasFailed() : driver_.hasFailed();
  driver_.forgetFailures();
}

std::string Fault::missingIn(std::string_view message) const {
  const auto says = [&](std::string_view words) { return message.find(words) != std::string_view::npos; };
  const auto unless = [&](bool is_named, std::string_view what) {
    return is_named ? std::string() : fmt::format("it does not name {}", what);
  };
  if (kind_.source == Source::kCall) {
    const std::string entry = driver_.failedEntry();
    return unless(says(entry) || (kind_.code == CUDA_ERROR_OUT_OF_MEMORY && says("out of device memory")), entry);
  }
  if (kind_.source != Source::kPoint) return unless(says(std::to_string(kind_.code)), "the code of the driver");
  if (kind_.point != PointKind::kSystem) return unless(says("memory"), "memory");
  if (kind_.calls.data() == kStarts.data()) return unless(says("thread"), "the thread");
  return unless(says(std::strerror(kind_.number)) || says("cannot"), std::strerror(kind_.number));
}

}  // namespace srjit
