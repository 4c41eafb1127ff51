#include "compiler/nvptx/totals_kernel.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "compiler/nvptx/module.h"
#include "compiler/nvptx/strip.h"

namespace srjit {
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
        addRowGroups(b_.CreateGEP(element_, argument(kSums), offset), wide(lane), row_groups, start);

    llvm::Value* const last = b_.CreateICmpNE(argument(kLast), b_.getInt32(0));
    storeWhere(b_.CreateAnd(exists, b_.CreateNot(last)), chain, place);
    llvm::Value* const total = addChains(chain, lanes);
    llvm::Value* const writes = b_.CreateAnd(b_.CreateAnd(exists, last), b_.CreateICmpEQ(lane, b_.getInt32(0)));
    storeWhere(writes, total, b_.CreateGEP(b_.getDoubleTy(), argument(kTotals), item));
    b_.CreateRetVoid();
  }

 private:
  enum Parameter : unsigned {
    kSums,
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
    kernel->addParamAttr(kSums, llvm::Attribute::NoAlias);
    kernel->addParamAttr(kSums, llvm::Attribute::ReadOnly);
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
