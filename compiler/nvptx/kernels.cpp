#include "compiler/nvptx/kernels.h"

#include <vector>

#include <fmt/format.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "compiler/lowering/llvm_modules.h"
#include "compiler/lowering/operators.h"
#include "compiler/lowering/source_map.h"
#include "compiler/nvptx/module.h"
#include "compiler/nvptx/strip.h"

namespace srjit {
namespace {

enum Parameter : unsigned { kColumns, kColumnStride, kRowStride, kRowCount, kParameters, kOutputs, kResults };

std::vector<llvm::Type*> parameterTypes(llvm::IRBuilder<>& builder, const std::optional<LossSpec>& loss) {
  llvm::Type* const pointer = globalPointer(builder.getContext());
  llvm::Type* const size = builder.getInt64Ty();
  std::vector<llvm::Type*> types = {pointer, size, size, size, pointer, pointer};
  appendResultTypes(types, builder, loss);
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
      strip_.storeLoss(*options_.loss, {kernel_, kResults, *options_.loss}, output, predictions);
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
    llvm::Function& kernel =
        *made->addKernel(rowsKernelName(i), parameterTypes(builder, options.loss), builder, options.min_blocks);
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

namespace {

static_assert(kSumChains == kWarpLanes, "a warp holds the chains of one output");

// Outstanding loads of one thread: the additions depend on each other, the loads do not.
constexpr unsigned kAhead = 8;

/// Emits the kernel: lane c of the threads of an output adds chain c.
class TotalsEmitter {
 public:
  TotalsEmitter(DeviceModule& made, llvm::IRBuilder<>& builder, Precision precision)
      : b_(builder), kernel_(addKernel(made)), element_(elementTypeOf(precision, b_.getContext())) {}

  void run() {
    llvm::Value* const thread = b_.CreateAdd(b_.CreateMul(blockIndex(b_), b_.getInt32(kBlockThreads)), threadIndex(b_));
    llvm::Value* const lanes = argument(kLanes);
    llvm::Value* const shift = b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, lanes, b_.getTrue());
    llvm::Value* const output = b_.CreateLShr(thread, shift);
    llvm::Value* const lane = b_.CreateAnd(thread, b_.CreateSub(lanes, b_.getInt32(1)));
    llvm::Value* const exists = b_.CreateICmpULT(output, argument(kOutputCount));
    llvm::Value* const channel = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_y, {}, {});
    llvm::Value* const item = b_.CreateAdd(wideProduct(b_, channel, argument(kOutputCount)), wide(output));
    llvm::Value* const place = b_.CreateGEP(b_.getDoubleTy(), argument(kChains),
                                            b_.CreateAdd(b_.CreateMul(item, b_.getInt64(kSumChains)), wide(lane)));

    // Threads without an output stay for the shuffles, with nothing to add.
    llvm::Value* const goes_on = b_.CreateAnd(exists, b_.CreateICmpEQ(argument(kFirst), b_.getInt32(0)));
    llvm::Value* const start = valueWhere(goes_on, [&] { return b_.CreateLoad(b_.getDoubleTy(), place); });
    llvm::Value* const row_groups = b_.CreateSelect(exists, argument(kRowGroups), b_.getInt64(0));
    llvm::Value* const offset = b_.CreateAdd(b_.CreateMul(wide(channel), argument(kChannelStride)),
                                             b_.CreateMul(wide(output), argument(kRowGroups)));
    llvm::Value* const chain =
        addRowGroups(b_.CreateGEP(element_, argument(kGroupSums), offset), wide(lane), row_groups, start);

    llvm::Value* const last = b_.CreateICmpNE(argument(kLast), b_.getInt32(0));
    storeWhere(b_.CreateAnd(exists, b_.CreateNot(last)), chain, place);
    llvm::Value* const total = addChains(chain, lanes);
    llvm::Value* const writes = b_.CreateAnd(b_.CreateAnd(exists, last), b_.CreateICmpEQ(lane, b_.getInt32(0)));
    storeWhere(writes, total, b_.CreateGEP(b_.getDoubleTy(), argument(kTotals), item));
    b_.CreateRetVoid();
  }

 private:
  enum Parameter : unsigned {
    kGroupSums,
    kChannelStride,
    kRowGroups,
    kOutputCount,
    kLanes,
    kChains,
    kTotals,
    kFirst,
    kLast
  };

  llvm::Function* addKernel(DeviceModule& made) {
    llvm::Type* const pointer = globalPointer(made.module().getContext());
    llvm::Type* const size = b_.getInt64Ty();
    llvm::Type* const word = b_.getInt32Ty();
    llvm::Function* const kernel =
        made.addKernel(kTotalsKernel, {pointer, size, size, word, word, pointer, pointer, word, word}, b_);
    kernel->addParamAttr(kGroupSums, llvm::Attribute::NoAlias);
    kernel->addParamAttr(kGroupSums, llvm::Attribute::ReadOnly);
    return kernel;
  }

  llvm::Value* argument(Parameter parameter) const { return kernel_->getArg(parameter); }
  llvm::Value* wide(llvm::Value* value) const { return b_.CreateZExt(value, b_.getInt64Ty()); }
  llvm::BasicBlock* newBlock(const char* name) const {
    return llvm::BasicBlock::Create(b_.getContext(), name, kernel_);
  }

  // The value that `make` emits if the condition holds, else 0.
  template <class Make>
  llvm::Value* valueWhere(llvm::Value* condition, const Make& make) const {
    llvm::BasicBlock* const before = b_.GetInsertBlock();
    llvm::BasicBlock* const then = newBlock("then");
    llvm::BasicBlock* const next = newBlock("next");
    b_.CreateCondBr(condition, then, next);
    b_.SetInsertPoint(then);
    llvm::Value* const made = make();
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
    llvm::PHINode* const value = b_.CreatePHI(b_.getDoubleTy(), 2);
    value->addIncoming(llvm::ConstantFP::get(b_.getDoubleTy(), 0), before);
    value->addIncoming(made, then);
    return value;
  }

  void storeWhere(llvm::Value* condition, llvm::Value* value, llvm::Value* pointer) const {
    llvm::BasicBlock* const then = newBlock("write");
    llvm::BasicBlock* const next = newBlock("next");
    b_.CreateCondBr(condition, then, next);
    b_.SetInsertPoint(then);
    b_.CreateStore(value, pointer);
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
  }

  struct ChainSum {
    llvm::Value* row_group;  ///< the next one
    llvm::Value* sum;
  };

  // while (row_group + (count - 1) * kSumChains < row_groups) { add `count` row groups of the chain, all loaded first }
  ChainSum addWhile(llvm::Value* sums, ChainSum from, llvm::Value* row_groups, unsigned count) const {
    llvm::BasicBlock* const before = b_.GetInsertBlock();
    llvm::BasicBlock* const header = newBlock("chain");
    llvm::BasicBlock* const body = newBlock("add");
    llvm::BasicBlock* const exit = newBlock("added");
    b_.CreateBr(header);
    b_.SetInsertPoint(header);
    llvm::PHINode* const row_group = b_.CreatePHI(b_.getInt64Ty(), 2);
    llvm::PHINode* const sum = b_.CreatePHI(b_.getDoubleTy(), 2);
    row_group->addIncoming(from.row_group, before);
    sum->addIncoming(from.sum, before);
    llvm::Value* const furthest = b_.CreateAdd(row_group, b_.getInt64((count - 1) * kSumChains));
    b_.CreateCondBr(b_.CreateICmpULT(furthest, row_groups), body, exit);
    b_.SetInsertPoint(body);
    std::vector<llvm::Value*> items;
    for (unsigned i = 0; i < count; ++i) {
      llvm::Value* const pointer = b_.CreateGEP(element_, sums, b_.CreateAdd(row_group, b_.getInt64(i * kSumChains)));
      items.push_back(b_.CreateFPExt(b_.CreateLoad(element_, pointer), b_.getDoubleTy()));
    }
    llvm::Value* next = sum;
    for (llvm::Value* const item : items) next = b_.CreateFAdd(next, item);
    row_group->addIncoming(b_.CreateAdd(row_group, b_.getInt64(count * kSumChains)), body);
    sum->addIncoming(next, body);
    b_.CreateBr(header);
    b_.SetInsertPoint(exit);
    return {row_group, sum};
  }

  llvm::Value* addRowGroups(llvm::Value* sums, llvm::Value* first, llvm::Value* row_groups, llvm::Value* start) const {
    const ChainSum most = addWhile(sums, {first, start}, row_groups, kAhead);
    return addWhile(sums, most, row_groups, 1).sum;
  }

  // A chain is never -0, so that adding those which do not exist would change nothing.
  llvm::Value* addChains(llvm::Value* sum, llvm::Value* lanes) const {
    for (unsigned mask = 1; mask < kSumChains; mask *= 2) {
      llvm::Value* const both = b_.CreateFAdd(sum, shuffleLanes(b_, sum, mask));
      sum = b_.CreateSelect(b_.CreateICmpUGT(lanes, b_.getInt32(mask)), both, sum);
    }
    return sum;
  }

  llvm::IRBuilder<>& b_;
  llvm::Function* kernel_;
  llvm::Type* element_;
};

Result<DeviceModule> buildTotals(const DeviceOptions& options) {
  DeviceOptions used;
  used.precision = options.precision;
  used.arch = options.arch;
  auto made = DeviceModule::create(used);
  if (!made) return made;
  llvm::IRBuilder<> builder(made->module().getContext());
  TotalsEmitter(*made, builder, options.precision).run();
  return made;
}

}  // namespace

Result<std::string> totalsPtx(const DeviceOptions& options) {
  return ptxOf([&] { return buildTotals(options); });
}

}  // namespace srjit
