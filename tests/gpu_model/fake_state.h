// The state of a FakeDriver: handles, memory, and streams as queues. All under one mutex.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <type_traits>

#include "tests/faults/spared_scope.h"
#include "tests/gpu_model/direct_code.h"
#include "tests/gpu_model/fake_driver.h"
#include "tests/gpu_model/kernels.h"

namespace srjit {

/// Thrown by the body of an entry: the call fails with the code.
struct FakeRefusal {
  CUresult code;
};

struct FakeContext {
  int device = 0;
  int retained = 0;
  CUresult lost = CUDA_SUCCESS;
};

struct FakeStream;

/// A position in a stream's work.
struct FakeMark {
  bool done = false;
  double milliseconds = 0;  ///< the device's clock when execution passed it
  std::weak_ptr<FakeStream> stream;
};

struct FakeWork {
  std::function<void()> run;
  std::shared_ptr<FakeMark> after;  ///< work that must be done before
  const void* host = nullptr;       ///< pinned memory in use by it
  std::size_t host_bytes = 0;
};

struct FakeStream {
  FakeContext* context;
  std::uint64_t number;
  std::deque<FakeWork> queue;
};

struct FakeEvent {
  FakeContext* context;
  bool timing;
  std::shared_ptr<FakeMark> mark;  ///< mark of the last record
};

struct FakeAllocation {
  std::size_t bytes;
  int device;
  bool foreign = false, freed = false;
  std::unique_ptr<std::byte[]> storage;
};

struct FakePool {
  FakeContext* context;
  int device;
  std::uint64_t threshold = 0;
};

struct FakeModule {
  FakeContext* context;
  ModelImage image;
};

struct FakeFunction {
  std::shared_ptr<FakeModule> module;
  const KernelModel* model;
  std::size_t dynamic_shared_bytes = std::size_t{48} << 10;
};

struct FakeKernelCall {
  std::shared_ptr<FakeFunction> function;
  ModelLaunch launch;
};

struct FakeGraph {
  FakeContext* context;
  std::map<std::uint64_t, FakeKernelCall> nodes;  ///< in order of insertion
};

struct FakeState : ModelMemory {
  explicit FakeState(FakeOptions chosen);
  ~FakeState() override;

  /// The context requirement of a call, and whether it has its effect where it fails: those that free something do.
  /// kEnd frees and needs no context.
  enum class Kind { kFree, kInContext, kRelease, kEnd };
  /// Counts a call, applies failures, and runs `body` on the active state. It returns a CUresult, or nothing for
  /// success, and may throw a FakeRefusal.
  template <class Body>
  static CUresult enter(const char* entry, Kind kind, const Body& body) {
    const SparedScope spared;
    if constexpr (std::is_void_v<std::invoke_result_t<Body, FakeState&>>) {
      return enterModel(entry, kind, [&](FakeState& state) { return body(state), CUDA_SUCCESS; });
    } else {
      return enterModel(entry, kind, body);
    }
  }

  static CUresult enterModel(const char* entry, Kind kind, const std::function<CUresult(FakeState&)>& body);
  /// Applies planned failures to a call of this entry, and gives its code.
  CUresult planned(std::string_view entry);

  // Streams.
  CUresult put(const std::shared_ptr<FakeStream>& stream, FakeWork work);
  CUresult putKernels(const std::shared_ptr<FakeStream>& stream, FakeWork work);
  void advance(FakeStream& stream, const FakeMark* until = nullptr);
  std::shared_ptr<FakeMark> mark(const std::shared_ptr<FakeStream>& stream);
  void runKernel(const FakeKernelCall& call, FakeContext& context);
  FakeKernelCall prepare(CUfunction function, std::array<unsigned, 3> grid, std::array<unsigned, 3> block,
                         std::size_t shared_bytes, void** arguments);

  // Memory.
  std::byte* range(std::uint64_t address, std::size_t bytes) override;
  CUdeviceptr allocate(std::size_t bytes, int device, bool foreign);
  /// Subtracts an allocation from the used bytes; its memory stays valid until earlier work is done.
  void release(FakeAllocation& allocation);
  bool isPinned(const void* address, std::size_t bytes) const;
  std::size_t available(int device) const;

  void problem(std::string text) { problems.push_back(std::move(text)); }
  void note(std::size_t bytes, std::string detail = {}, std::uint64_t stream = 0);
  void reportLeaks(const FakeContext* context);
  FakeContext* current();

  template <class Object>
  using Table = std::map<std::uint64_t, std::shared_ptr<Object>>;
  /// The object of a handle; if there is none, reports a problem and refuses the call.
  template <class Object, class Handle>
  std::shared_ptr<Object> find(const Table<Object>& table, Handle handle, const char* what) {
    const auto found = table.find(reinterpret_cast<std::uint64_t>(handle));
    if (found != table.end()) return found->second;
    problem(std::string("no such ") + what);
    throw FakeRefusal{CUDA_ERROR_INVALID_HANDLE};
  }
  template <class Object, class Handle>
  void remove(Table<Object>& table, Handle handle, const char* what) {
    find(table, handle, what);
    table.erase(reinterpret_cast<std::uint64_t>(handle));
  }
  template <class Object, class Handle>
  void add(Table<Object>& table, Handle* handle, std::shared_ptr<Object> object) {
    table.emplace(++last_handle, std::move(object));
    *handle = reinterpret_cast<Handle>(last_handle);
  }

  FakeOptions options;
  mutable std::mutex mutex;
  std::uint64_t instance = 0;
  std::uint64_t last_handle = 0;
  std::vector<FakeCall> calls;
  std::vector<std::string> problems;
  struct Failure {
    std::string entry;  ///< empty: any
    std::size_t calls_left;
    CUresult code;
    std::optional<int> device = {};  ///< counts calls of this device alone
    bool loses_device = false;
  };
  bool has_failed = false;
  std::string failed_entry;  ///< of the last call that failed by a plan
  std::vector<Failure> failures;
  AlterCode alter_code;
  std::function<void(std::size_t)> before_kernel;
  std::string announced_entry;
  std::function<void(int)> before_call;
  std::size_t kernels_left = 0, kernels_run = 0;
  CUresult kernel_code = CUDA_SUCCESS;
  double milliseconds = 0;
  std::size_t occupied = 0;
  CUdeviceptr next_address = CUdeviceptr{1} << 40;

  std::vector<std::unique_ptr<FakeContext>> contexts;  ///< by device
  std::vector<std::size_t> used, peak, reserved;       ///< bytes by device
  std::map<CUdeviceptr, FakeAllocation> memory;
  std::map<const std::byte*, std::size_t> pinned;
  Table<FakeStream> streams;
  Table<FakeEvent> events;
  Table<FakePool> pools;
  Table<FakeModule> modules;
  Table<FakeFunction> functions;
  Table<FakeGraph> graphs, executables;
};

/// The entries of the driver's table, which enter() the active FakeState.
struct FakeEntries {
#define SRJIT_DRIVER(name, version, parameters) static CUresult name parameters;
#include "runtime/cuda/driver.def"
#undef SRJIT_DRIVER
};

}  // namespace srjit
