// Makes the code of a program, of every kind.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <tbb/task_arena.h>

#include "runtime/code/calibration.h"
#include "runtime/code/compile.h"
#include "runtime/code/direct.h"
#include "runtime/code/kernel_store.h"
#include "runtime/code/parts.h"
#include "runtime/gpu/queue.h"

namespace srjit {

/// Stores no code; records the time that making it takes. Thread-safe. Throws CudaFailure, OutOfMemory,
/// std::bad_alloc. Needs a current context; works on the calling thread's arena, unless stated otherwise.
class CodeMaker {
 public:
  using Code = std::shared_ptr<const DeviceCode>;

  /// `arena` and `costs` must outlive it.
  CodeMaker(std::shared_ptr<DeviceQueue> queue, std::shared_ptr<KernelStore> store, tbb::task_arena& arena,
            Calibration& costs, unsigned threads)
      : queue_(std::move(queue)), store_(std::move(store)), arena_(arena), costs_(costs), threads_(threads) {}

  /// Bytecode of all expressions; in the engine's arena.
  Code interpreted(const GraphSource& source) const;
  /// The graphs of all expressions for direct code, and for compiled code; in the engine's arena.
  Graphs directGraphs(const GraphSource& source) const;
  Graphs compilePlan(const GraphSource& source, const std::atomic<bool>& cancelled) const;

  /// Machine code by LLVM of the chosen expressions, by their `plan` if it is not null; the others are interpreted.
  Code compiled(const GraphSource& source, std::span<const std::uint32_t> chosen, const Graphs* plan,
                const KernelKind& kind, const std::atomic<bool>& cancelled) const;
  /// Direct code of all expressions, for so many rows, of `graphs` if they are not null.
  Code direct(const GraphSource& source, const Graphs* graphs, const KernelKind& kind, std::size_t rows,
              const std::atomic<bool>& cancelled) const;
  /// What compiled() of all expressions would have to compile, as findMissing(); everything where that fails.
  /// Needs no context.
  MissingKernels missing(const GraphSource& source, const KernelKind& kind,
                         const std::function<bool(const MissingKernels&)>& pays,
                         const std::atomic<bool>& cancelled) const;

  static std::vector<std::uint32_t> allOf(const ProgramSource& source);

 private:
  CodeRequest request(const GraphSource& source, std::span<const std::uint32_t> chosen = {}) const;
  Graphs planOf(const GraphSource& source, std::span<const std::uint32_t> chosen,
                const std::atomic<bool>& cancelled) const;

  std::shared_ptr<DeviceQueue> queue_;
  std::shared_ptr<KernelStore> store_;
  tbb::task_arena& arena_;
  Calibration& costs_;
  unsigned threads_;
};

}  // namespace srjit
