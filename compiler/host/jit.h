// Machine code for the processor it runs on, through LLVM: handlers of a row-block interpreter, vector loops,
// losses.
//
// Everything here comes from the one lowering (compiler/lowering/operators.h) at one vector width, so that interpreter
// and loops agree bit for bit. Rows are processed in whole vectors: every row pointer must be readable (outputs:
// writable) up to the row count rounded up to kRowQuantum; no pointer needs more than the element's alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "compiler/host/linker.h"
#include "compiler/lowering/source_map.h"
#include "ir/error.h"
#include "ir/numbers/loss_sums.h"
#include "ir/numeric.h"
#include "passes/dag.h"

namespace llvm {
class Module;
}

namespace srjit {

/// Rows are padded to a multiple of this.
inline constexpr std::size_t kRowQuantum = 64;

/// out[r] = op(x[r], y[r], z[r]) for `rows` rows, a multiple of kRowQuantum. Operands past the arity are ignored. An
/// operand whose bit is set in the handler's scalar mask is one value instead of a row block. `out` may equal an
/// operand.
using HostHandler = void (*)(void* out, const void* x, const void* y, const void* z, std::int64_t rows);

/// A handler's identity. `op` none stands for a move: out[r] = x[r] (or one value spread over the rows).
struct HandlerKey {
  std::int16_t op = -1;          ///< an Op, or -1 for a move
  std::uint8_t scalar_mask = 0;  ///< bit i: operand i is one value
  friend bool operator==(const HandlerKey&, const HandlerKey&) = default;
};

/// All roots of a batch for `rows` rows (a multiple of kRowQuantum): root i at out + i * out_stride. Column j is at
/// columns + j * column_stride; strides count elements; `parameters` follow Dag::parameters().
using HostKernel = void (*)(const void* columns, std::int64_t column_stride, const void* parameters, void* out,
                            std::int64_t out_stride, std::int64_t rows);

/// The terms of `rows` rows (any number; buffers readable up to a multiple of kGroupRows) summed by row groups: sum i
/// of row group g, i < spec.sums(), goes to sums[i * sum_stride + g], in the precision. Returns the number of rows with
/// a finite prediction if the spec skips invalid rows, else `rows`. `weights` is ignored unless the spec is weighted,
/// and `numbers` unless its term has moments: HostMoments of the precision. Moments are of fma(f, factor, offset)
/// instead of the prediction f, with a factor that is a power of two.
using HostLossKernel = std::int64_t (*)(const void* predictions, const void* target, const void* weights,
                                        const void* numbers, void* sums, std::int64_t sum_stride, std::int64_t rows);
template <class T>
struct HostMoments {
  T centre = 0;  ///< of the target
  T factor = 1, offset = 0;
};

/// A compiled batch; the last copy frees its code.
using HostCode = std::shared_ptr<std::remove_pointer_t<HostKernel>>;

/// The processor that code is generated for.
struct HostTarget {
  std::string cpu;             ///< LLVM's name of the processor
  std::string features;        ///< LLVM's feature string
  unsigned vector_bytes = 16;  ///< 16, 32 or 64
  bool has_fma = false;        ///< without, fused multiply-add is a call of libm for each row, with the same bits
};
/// This processor. Thread-safe.
const HostTarget& detectHost();

/// Keeps objects between compilers and processes. Called with a title: the object that was kept under it, else the one
/// that `make` makes, which should be kept. Titles, all with the same target, tell apart the objects of one build of
/// this library: "handler add(rows, value) f32 precise". Called by several threads at once. Errors: those of `make`.
using MakeHostObject = std::function<Result<std::vector<std::byte>>()>;
using HostObjects = std::function<Result<HostObject>(const std::string& title, const MakeHostObject& make)>;

/// A compiler and the code it made, for one precision and math mode. All calls are thread-safe and may run in parallel.
/// LLVM's code generator starts when it is needed first.
class HostJit {
 public:
  /// The code runs only on processors that have the target's features. `objects` keeps the handlers and losses; by
  /// default nothing does.
  HostJit(Precision precision, Math math, HostTarget target = detectHost(), HostObjects objects = {});
  ~HostJit();

  /// The handlers for `keys`, in order; missing ones are found or made in parallel on the calling thread's arena.
  /// Handlers live as long as the HostJit. Throws what `objects` throws.
  Result<std::vector<HostHandler>> handlers(std::span<const HandlerKey> keys);

  /// Straight-line code over all roots of `dag`, which must have the HostJit's precision. Nodes are computed in
  /// ascending order, so schedule the graph first.
  Result<HostCode> compile(const Dag& dag);

  /// The loss kernel of a spec, found or made at first use; lives as long as the HostJit. Throws as handlers().
  Result<HostLossKernel> loss(const LossSpec& spec);

  /// The code that compile() generates for each graph, as the text of one module: LLVM IR before or after optimisation,
  /// and assembly. Kernels are called rowsKernelName(0), ... (compiler/lowering/source_map.h). `sources`, if not
  /// empty, has the source of each graph, which the text then names.
  Result<std::string> irOf(std::span<const Dag> dags, bool optimized, std::span<const SourceMap> sources = {}) const;
  Result<std::string> assemblyOf(std::span<const Dag> dags, std::span<const SourceMap> sources = {}) const;

  Precision precision() const noexcept;
  Math math() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// LLVM IR of these kernels (kernels.cpp).

/// Everything that the IR of a host kernel depends on besides its operator, graph or loss.
struct HostOptions {
  Precision precision;
  Math math;
  unsigned vector_bytes;

  unsigned lanes() const { return vector_bytes / static_cast<unsigned>(bytesOf(precision)); }
};

/// Adds a HostHandler named `name` to `module`.
void emitHostHandler(llvm::Module& module, const std::string& name, const HandlerKey& key, const HostOptions& options);

/// Adds a HostKernel named `name` over all roots of `dag`, which names its `source`, if that is given.
void emitHostKernel(llvm::Module& module, const std::string& name, const Dag& dag, const HostOptions& options,
                    const SourceMap* source = nullptr);

/// Adds a HostLossKernel named `name`.
void emitHostLoss(llvm::Module& module, const std::string& name, const LossSpec& spec, const HostOptions& options);

/// The operators that the roots need, in a topological order that interleaves up to `ways` roots, one operator each in
/// turn; a root that is finished is replaced by the next. Within a root the order is ascending. An out-of-order
/// processor looks ahead by some hundreds of instructions, fewer than a chain of function calls has; interleaving puts
/// independent work into that window. Linear in the nodes and roots times `ways`; not recursive.
std::vector<NodeId> interleavedOrder(const Dag& dag, unsigned ways);

}  // namespace srjit
