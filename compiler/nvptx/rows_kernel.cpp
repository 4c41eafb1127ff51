#include "compiler/nvptx/rows_kernel.h"

#include <vector>

#include <fmt/format.h>

#include "compiler/lowering/node_locations.h"
#include "compiler/lowering/operators.h"
#include "compiler/lowering/source_map.h"
#include "compiler/nvptx/module.h"
#include "compiler/nvptx/strip.h"

namespace srjit {
namespace {

enum Parameter : unsigned { kColumns, kColumnStride, kRowStride, kRowCount, kParameters, kOutputs, kResults };

std::vector<llvm::Type*> parameterTypes(llvm::IRBuilder<>& builder, bool loss) {
  llvm::Type* const pointer = globalPointer(builder.getContext());
  llvm::Type* const size = builder.getInt64Ty();
  std::vector<llvm::Type*> types = {pointer, size, size, size, pointer, pointer, pointer};
  if (loss) types.insert(types.end(), {pointer, pointer});
  types.push_back(size);
  return types;
}

/// Emits one kernel.
class RowsEmitter {
 public:
  RowsEmitter(const Dag& dag, const DeviceOptions& options, llvm::Function& kernel, llvm::IRBuilder<>& builder,
              const SourceMap* source)
      : locations_(builder, kernel, source),
        dag_(dag),
        options_(options),
        kernel_(kernel),
        b_(builder),
        lowering_(builder, TargetKind::kDevice, options.precision, options.math),
        strip_(lowering_, options, argument(kRowCount), stripNumber()) {}

  // A node is computed for all rows of the thread before the next, which leaves the assembler independent instructions
  // to overlap. A root is written as soon as it is known, so that its registers are free again.
  void run() {
    strip_.leaveIfEmpty();
    std::vector<std::vector<std::size_t>> roots_at(dag_.size());
    for (std::size_t root = 0; root < dag_.roots().size(); ++root) roots_at[dag_.roots()[root]].push_back(root);
    rows_.resize(dag_.size());
    for (NodeId id = 0; id < dag_.size(); ++id) {
      locations_.set(id);
      rows_[id] = rowsOf(dag_.node(id));
      for (const std::size_t root : roots_at[id]) store(root, rows_[id]);
    }
    locations_.clear();
    b_.CreateRetVoid();
  }

 private:
  llvm::Value* argument(unsigned index) const { return kernel_.getArg(index); }

  llvm::Value* stripNumber() const {
    llvm::Value* const first = b_.CreateMul(blockIndex(b_), b_.getInt32(kBlockWarps));
    return b_.CreateAdd(first, b_.CreateLShr(threadIndex(b_), b_.getInt32(5)));
  }

  Rows rowsOf(const Node& node) {
    const unsigned count = options_.rows_per_thread;
    switch (node.kind) {
      case Token::Kind::kConstant:
        return Rows(count, lowering_.literal(node.value));
      case Token::Kind::kVariable: {
        llvm::Value* const offset = b_.CreateMul(argument(kColumnStride), b_.getInt64(node.index));
        llvm::Value* const column = b_.CreateGEP(lowering_.elementType(), argument(kColumns), offset);
        return options_.strided_columns ? strip_.loadStrided(column, argument(kRowStride)) : strip_.load(column);
      }
      case Token::Kind::kParameter: {
        llvm::Value* const pointer =
            b_.CreateConstInBoundsGEP1_64(lowering_.elementType(), argument(kParameters), node.index);
        return Rows(count, loadConstant(b_, lowering_.elementType(), pointer,
                                        static_cast<unsigned>(bytesOf(options_.precision))));
      }
      case Token::Kind::kOp:
        break;
    }
    Rows rows;
    for (unsigned k = 0; k < count; ++k) {
      std::array<llvm::Value*, kMaxArity> operands{};
      for (std::size_t i = 0; i < node.inputs().size(); ++i) operands[i] = rows_[node.operands[i]][k];
      rows.push_back(lowering_.apply(node.op, {operands.data(), node.inputs().size()}));
    }
    return rows;
  }

  void store(std::size_t root, const Rows& predictions) const {
    llvm::Value* const pointer = b_.CreateConstInBoundsGEP1_64(b_.getInt32Ty(), argument(kOutputs), root);
    llvm::Value* const output = b_.CreateZExt(loadConstant(b_, b_.getInt32Ty(), pointer, 4), b_.getInt64Ty());
    const auto result = [&](unsigned i) { return argument(kResults + i); };
    if (options_.loss) {
      strip_.storeLoss(*options_.loss, {result(0), result(1), result(2), result(3)}, output, predictions);
    } else {
      llvm::Value* const offset = b_.CreateMul(output, result(1));
      strip_.store(b_.CreateInBoundsGEP(lowering_.elementType(), result(0), offset), predictions);
    }
  }

  NodeLocations locations_;
  const Dag& dag_;
  const DeviceOptions& options_;
  llvm::Function& kernel_;
  llvm::IRBuilder<>& b_;
  Lowering lowering_;
  Strip strip_;
  std::vector<Rows> rows_;  ///< of every node that was computed
};

Result<DeviceModule> buildRows(std::span<const Dag> dags, const DeviceOptions& options,
                               std::span<const SourceMap> sources) {
  auto made = DeviceModule::create(options);
  if (!made) return made;
  llvm::IRBuilder<> builder(made->module().getContext());
  for (std::size_t i = 0; i < dags.size(); ++i) {
    llvm::Function& kernel = *made->addKernel(rowsKernelName(i), parameterTypes(builder, options.loss.has_value()),
                                              builder, options.min_blocks);
    for (const Parameter input : {kColumns, kParameters, kOutputs}) {
      kernel.addParamAttr(input, llvm::Attribute::NoAlias);
      kernel.addParamAttr(input, llvm::Attribute::ReadOnly);
    }
    RowsEmitter(dags[i], options, kernel, builder, sources.empty() ? nullptr : &sources[i]).run();
  }
  return made;
}

}  // namespace

Result<std::string> rowsIr(std::span<const Dag> dags, const DeviceOptions& options, bool optimized,
                           std::span<const SourceMap> sources) {
  return irOf([&] { return buildRows(dags, options, sources); }, optimized);
}

Result<std::string> rowsPtx(std::span<const Dag> dags, const DeviceOptions& options,
                            std::span<const SourceMap> sources) {
  return ptxOf([&] { return buildRows(dags, options, sources); });
}

}  // namespace srjit
