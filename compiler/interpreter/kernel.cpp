#include "compiler/interpreter/kernel.h"

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/handler_table.h"
#include "compiler/interpreter/lanes/arguments.h"
#include "compiler/interpreter/stage.h"
#include "compiler/lowering/operators.h"
#include "compiler/nvptx/module.h"
#include "compiler/nvptx/strip.h"
#include "ir/ops.h"

namespace srjit {
namespace {

using Kind = Handler::Kind;
using llvm::BasicBlock;

// LLVM 19's NVPTX back end turns a switch into a tree of compares, so the dispatch is a callbr to inline assembly that
// ends in brx.idx over a table of labels. There is one dispatch block: a brx.idx per handler would copy the table to
// every site. The next token is fetched before the branch, so that its latency overlaps the handler. Registers are
// allocas here and become registers by SROA, since every handler knows its stack height.
class InterpreterEmitter {
 public:
  InterpreterEmitter(const HandlerTable& table, const DeviceOptions& options, DeviceModule& made, llvm::IRBuilder<>& b)
      : spec_(table.spec()),
        table_(table),
        options_(options),
        b_(b),
        kernel_(addKernel(made)),
        lowering_(b, TargetKind::kDevice, options.precision, options.math),
        wide_(hasValueBehindToken(options.precision)),
        shared_(addSharedMemory(made)),
        stage_(table, options, lowering_, shared_) {}

  void run() {
    createRegisters();
    stage_.run();
    if (keepsSums()) sums_.emplace(lowering_, stage_.strip(), lossPointers());
    always_ = b_.CreateICmpNE(kernel_->getArg(InterpreterStage::kPrograms), word(0));
    b_.CreateStore(stage_.firstToken(), counter_);
    fetch();
    dispatch_ = newBlock("dispatch");
    b_.CreateBr(dispatch_);
    std::vector<BasicBlock*> handlers;
    for (const Handler& handler : table_.handlers()) {
      handlers.push_back(newBlock("handler"));
      b_.SetInsertPoint(handlers.back());
      emitHandler(handler);
    }
    emitDispatch(handlers);
  }

 private:
  llvm::Function* addKernel(DeviceModule& made) {
    llvm::Function* const kernel =
        made.addKernel(kInterpreterKernel, InterpreterStage::parameterTypes(b_, options_.loss), b_);
    using Stage = InterpreterStage;
    for (const unsigned input :
         {Stage::kColumns, Stage::kParameters, Stage::kColumnMap, Stage::kTokens, Stage::kProgramOffsets}) {
      kernel->addParamAttr(input, llvm::Attribute::NoAlias);
      kernel->addParamAttr(input, llvm::Attribute::ReadOnly);
    }
    return kernel;
  }

  llvm::GlobalVariable& addSharedMemory(DeviceModule& made) const {
    auto* const shared = new llvm::GlobalVariable(made.module(), llvm::ArrayType::get(b_.getInt8Ty(), 0), false,
                                                  llvm::GlobalValue::ExternalLinkage, nullptr, "srjit_shared", nullptr,
                                                  llvm::GlobalValue::NotThreadLocal, 3);
    shared->setAlignment(llvm::Align(16));
    return *shared;
  }

  BasicBlock* newBlock(const char* name) { return BasicBlock::Create(b_.getContext(), name, kernel_); }
  llvm::Value* word(std::uint32_t value) const { return b_.getInt32(value); }
  llvm::Value* sharedAt(llvm::Value* offset) const { return b_.CreateGEP(b_.getInt8Ty(), &shared_, offset); }
  llvm::AllocaInst* newRegister(llvm::Type* type) { return b_.CreateAlloca(type); }
  llvm::Value* read(llvm::AllocaInst* variable) const { return b_.CreateLoad(variable->getAllocatedType(), variable); }

  using Registers = std::vector<llvm::AllocaInst*>;  // one per row; of kept sums, per row group

  bool keepsSums() const { return options_.loss && isPlainSum(*options_.loss); }

  // In the entry block: elsewhere they would stay in local memory.
  void createRegisters() {
    const auto create = [&](std::size_t count) {
      std::vector<Registers> made(count);
      for (Registers& registers : made) {
        for (unsigned k = 0; k < spec_.rows_per_thread; ++k) registers.push_back(newRegister(lowering_.type()));
      }
      return made;
    };
    stack_ = create(spec_.depth);
    // Operands are popped from the top. The top register is free before the second argument is written, so the two
    // share it.
    arguments_ = create(table_.argumentCount());
    if (arguments_.size() > 1) arguments_[1] = stack_.back();
    for (llvm::AllocaInst** const variable : {&counter_, &next_code_, &next_argument_, &column_, &argument_}) {
      *variable = newRegister(b_.getInt32Ty());
    }
    next_value_ = newRegister(lowering_.type());
    value_ = newRegister(lowering_.type());
    if (!keepsSums()) return;
    for (Registers& registers : kept_) {
      for (unsigned group = 0; group < stage_.strip().rowGroups(); ++group) {
        registers.push_back(newRegister(lowering_.type()));
      }
    }
  }

  // Reads the token at the counter into the next_* registers and advances. The counter passes through assembly so that
  // LLVM does not move the addition into every handler.
  void fetch() {
    llvm::Value* const offset = read(counter_);
    llvm::Value* const pointer = sharedAt(offset);
    if (wide_) {
      llvm::Value* const words =
          b_.CreateAlignedLoad(llvm::FixedVectorType::get(b_.getInt64Ty(), 2), pointer, llvm::Align(16));
      llvm::Value* const token = b_.CreateExtractElement(words, std::uint64_t{0});
      b_.CreateStore(b_.CreateTrunc(token, b_.getInt32Ty()), next_code_);
      b_.CreateStore(b_.CreateTrunc(b_.CreateLShr(token, 32), b_.getInt32Ty()), next_argument_);
      b_.CreateStore(b_.CreateBitCast(b_.CreateExtractElement(words, std::uint64_t{1}), lowering_.type()), next_value_);
    } else {
      llvm::Value* const words =
          b_.CreateAlignedLoad(llvm::FixedVectorType::get(b_.getInt32Ty(), 2), pointer, llvm::Align(8));
      b_.CreateStore(b_.CreateExtractElement(words, std::uint64_t{0}), next_code_);
      b_.CreateStore(b_.CreateExtractElement(words, std::uint64_t{1}), next_argument_);
    }
    auto* const type = llvm::FunctionType::get(b_.getInt32Ty(), {b_.getInt32Ty()}, false);
    auto* const advance =
        llvm::InlineAsm::get(type, fmt::format("add.s32 $0, $1, {};", sharedTokenBytes(spec_.precision)), "=r,r", true);
    b_.CreateStore(b_.CreateCall(type, advance, {offset}), counter_);
  }

  void emitDispatch(const std::vector<BasicBlock*>& handlers) {
    b_.SetInsertPoint(dispatch_);
    llvm::Value* const code = read(next_code_);
    llvm::Value* const handler = b_.CreateAnd(code, DeviceToken::kHandlerMask);
    b_.CreateStore(b_.CreateLShr(code, DeviceToken::kColumnShift), column_);
    llvm::Value* const argument = read(next_argument_);
    b_.CreateStore(argument, argument_);
    b_.CreateStore(wide_ ? read(next_value_) : b_.CreateBitCast(argument, lowering_.type()), value_);
    fetch();
    BasicBlock* const never = newBlock("never");
    std::string targets, constraints = "r";
    for (std::size_t i = 0; i < handlers.size(); ++i) {
      targets += fmt::format("{}${{{}:l}}", i == 0 ? "" : ", ", i + 1);
      constraints += ",!i";
    }
    auto* const type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getInt32Ty()}, false);
    auto* const branch = llvm::InlineAsm::get(
        type, fmt::format("{{ TS: .branchtargets {}; brx.idx $0, TS; }}", targets), constraints, true);
    b_.CreateCallBr(type, branch, never, handlers, {handler});
    b_.SetInsertPoint(never);
    b_.CreateUnreachable();
  }

  Rows readRegisters(const Registers& registers) const {
    Rows rows;
    for (llvm::AllocaInst* const variable : registers) rows.push_back(read(variable));
    return rows;
  }
  void writeRegisters(const Registers& registers, const Rows& rows) const {
    for (std::size_t k = 0; k < rows.size(); ++k) b_.CreateStore(rows[k], registers[k]);
  }

  llvm::FixedVectorType* accessType() const {
    return llvm::FixedVectorType::get(lowering_.elementType(), wide_ ? 2 : 4);
  }
  llvm::Value* ownAccess(llvm::Value* offset, unsigned access) const {
    llvm::Value* const own = b_.CreateAdd(stage_.place(), offset);
    return b_.CreateGEP(b_.getInt8Ty(), sharedAt(own), word(access * InterpreterStage::kAccessStride));
  }
  unsigned accesses() const { return spec_.rows_per_thread / accessType()->getNumElements(); }

  Rows readColumn(llvm::Value* offset) const {
    Rows rows;
    for (unsigned access = 0; access < accesses(); ++access) {
      llvm::Value* const packed = b_.CreateAlignedLoad(accessType(), ownAccess(offset, access), llvm::Align(16));
      for (unsigned i = 0; i < accessType()->getNumElements(); ++i) rows.push_back(b_.CreateExtractElement(packed, i));
    }
    return rows;
  }
  void writeSlot(llvm::Value* offset, const Rows& rows) const {
    const unsigned width = accessType()->getNumElements();
    for (unsigned access = 0; access < accesses(); ++access) {
      llvm::Value* packed = llvm::PoisonValue::get(accessType());
      for (unsigned i = 0; i < width; ++i) packed = b_.CreateInsertElement(packed, rows[access * width + i], i);
      b_.CreateAlignedStore(packed, ownAccess(offset, access), llvm::Align(16));
    }
  }

  // A register copy that is opaque to LLVM and ptxas: it depends on a predicate that is always true. ptxas coalesces
  // plain copies between argument and stack registers, and then needs moves in the dispatch block, before every token.
  llvm::Value* copy(llvm::Value* value) const { return b_.CreateSelect(always_, value, lowering_.literal(0)); }
  Rows copy(Rows rows) const {
    for (llvm::Value*& row : rows) row = copy(row);
    return rows;
  }

  // The value in every row, as copies: otherwise LLVM keeps one register live across the dispatch and copies it in
  // every handler.
  Rows spread(llvm::Value* value) const {
    auto* const type = llvm::FunctionType::get(lowering_.type(), {lowering_.type()}, false);
    auto* const move =
        llvm::InlineAsm::get(type, wide_ ? "mov.f64 $0, $1;" : "mov.f32 $0, $1;", wide_ ? "=d,d" : "=f,f", false);
    Rows rows;
    for (unsigned k = 0; k < spec_.rows_per_thread; ++k) rows.push_back(b_.CreateCall(type, move, {value}));
    return rows;
  }

  void emitHandler(const Handler& handler) {
    switch (handler.kind) {
      case Kind::kPushColumn:
        writeRegisters(stack_[handler.height], readColumn(read(column_)));
        break;
      case Kind::kPushParameter:
        writeRegisters(stack_[handler.height], spread(read(value_)));
        break;
      case Kind::kApply:
        emitApply(handler);
        break;
      case Kind::kArgumentStack:
        writeRegisters(arguments_[handler.argument], copy(readRegisters(stack_[handler.height - 1u])));
        break;
      case Kind::kArgumentColumn:
        writeRegisters(arguments_[handler.argument], readColumn(read(column_)));
        break;
      case Kind::kArgumentParameter:
        writeRegisters(arguments_[handler.argument], spread(read(value_)));
        break;
      case Kind::kBody:
        emitBody(handler.op);
        break;
      case Kind::kPushResult:
        writeRegisters(stack_[handler.height], copy(readRegisters(arguments_[0])));
        break;
      case Kind::kStoreSlot:
        writeSlot(read(column_), readRegisters(stack_[0]));
        break;
      case Kind::kEnd:
        emitEnd();
        break;
      case Kind::kKeepSum:
      case Kind::kKeepProductSum:
      case Kind::kStoreSums:
        if (!sums_) {
          // A fault of whoever launched this kernel: an error of the launch is better than results that are missing.
          b_.CreateIntrinsic(llvm::Intrinsic::trap, {}, {});
          b_.CreateUnreachable();
          return;
        }
        emitSums(handler);
        break;
      case Kind::kHalt:
        b_.CreateRetVoid();
        return;
      case Kind::kNextWindow:
        b_.CreateStore(stage_.copyNextWindow(read(argument_), read(next_argument_), read(counter_)), counter_);
        fetch();
        break;
    }
    b_.CreateBr(dispatch_);
  }

  void emitSums(const Handler& handler) {
    if (handler.kind == Kind::kKeepSum) {
      return writeRegisters(kept_[handler.argument], sums_->sumRows(readRegisters(stack_[0])));
    }
    if (handler.kind == Kind::kKeepProductSum) {
      const std::vector<Rows> factors = {readColumn(read(column_)), readColumn(read(argument_))};
      return writeRegisters(kept_[handler.argument],
                            sums_->sumRows(applyToFirst(Op::kMul, factors, spec_.rows_per_thread)));
    }
    std::vector<Rows> sums;
    for (unsigned sum = 0; sum <= handler.argument; ++sum) sums.push_back(readRegisters(kept_[sum]));
    sums_->store(read(argument_), std::move(sums));
  }

  void emitApply(const Handler& handler) {
    unsigned popped = 0;
    for (const char source : handler.operands) popped += source <= '2' ? 1 : 0;
    const unsigned base = handler.height - popped;
    std::vector<Rows> operands;
    bool second = false;
    for (const char source : handler.operands) {
      if (source == 'v') {
        operands.push_back(readColumn(read(second ? argument_ : column_)));
        second = true;
      } else if (source == 'c') {
        operands.emplace_back(spec_.rows_per_thread, read(value_));
      } else {
        operands.push_back(readRegisters(stack_[base + static_cast<unsigned>(source - '0')]));
      }
    }
    writeRegisters(stack_[base], applyToFirst(handler.op, operands, spec_.rows_per_thread));
  }

  // A loop over the rows of the thread: every iteration computes the first rows and rotates the registers by as many.
  void emitBody(Op op) {
    const unsigned step = rowsPerTurn(op, spec_);
    const auto arity = static_cast<std::size_t>(arityOf(op));
    std::vector<Rows> rows(arity);
    for (std::size_t i = 0; i < arity; ++i) rows[i] = readRegisters(arguments_[i]);
    if (step == spec_.rows_per_thread) {
      writeRegisters(arguments_[0], applyToFirst(op, rows, step));
      return;
    }
    BasicBlock* const before = b_.GetInsertBlock();
    BasicBlock* const loop = newBlock("body");
    BasicBlock* const exit = newBlock("computed");
    b_.CreateBr(loop);
    b_.SetInsertPoint(loop);
    llvm::PHINode* const turn = b_.CreatePHI(b_.getInt32Ty(), 2);
    turn->addIncoming(word(0), before);
    std::vector<std::vector<llvm::PHINode*>> entering(arity);
    for (std::size_t i = 0; i < arity; ++i) {
      for (llvm::Value*& value : rows[i]) {
        entering[i].push_back(b_.CreatePHI(lowering_.type(), 2));
        entering[i].back()->addIncoming(value, before);
        value = entering[i].back();
      }
    }
    const Rows results = applyToFirst(op, rows, step);
    BasicBlock* const end = b_.GetInsertBlock();
    const auto rotated = [&](const Rows& from, std::size_t k) {
      return k + step < from.size() ? from[k + step] : results[k + step - from.size()];
    };
    for (std::size_t i = 0; i < arity; ++i) {
      for (std::size_t k = 0; k < rows[i].size(); ++k) entering[i][k]->addIncoming(rotated(rows[i], k), end);
    }
    llvm::Value* const next = b_.CreateAdd(turn, word(step));
    turn->addIncoming(next, end);
    llvm::BranchInst* const back = b_.CreateCondBr(b_.CreateICmpULT(next, word(spec_.rows_per_thread)), loop, exit);
    keepRolled(*back);
    b_.SetInsertPoint(exit);
    for (std::size_t k = 0; k < rows[0].size(); ++k) b_.CreateStore(rotated(rows[0], k), arguments_[0][k]);
  }

  Rows applyToFirst(Op op, const std::vector<Rows>& operands, unsigned count) {
    Rows results;
    for (unsigned k = 0; k < count; ++k) {
      std::vector<llvm::Value*> row;
      for (const Rows& operand : operands) row.push_back(operand[k]);
      results.push_back(lowering_.apply(op, row));
    }
    return results;
  }

  llvm::Value* result(unsigned i) const { return kernel_->getArg(InterpreterStage::kResults + i); }
  LossPointers lossPointers() const { return {*kernel_, InterpreterStage::kResults, *options_.loss}; }

  void emitEnd() {
    llvm::Value* const number = b_.CreateZExt(read(argument_), b_.getInt64Ty());
    const Rows predictions = readRegisters(stack_[0]);
    if (options_.loss) {
      stage_.strip().storeLoss(*options_.loss, lossPointers(), number, predictions);
    } else {
      llvm::Value* const column = b_.CreateGEP(lowering_.elementType(), result(0), b_.CreateMul(number, result(1)));
      stage_.strip().store(column, predictions);
    }
  }

  const InterpreterSpec& spec_;
  const HandlerTable& table_;
  const DeviceOptions& options_;
  llvm::IRBuilder<>& b_;
  llvm::Function* kernel_;
  Lowering lowering_;
  bool wide_;
  llvm::GlobalVariable& shared_;
  InterpreterStage stage_;
  std::vector<Registers> stack_, arguments_;
  std::optional<PlainSums> sums_;
  std::array<Registers, kMostKeptSums> kept_;
  llvm::AllocaInst *counter_ = nullptr, *next_code_ = nullptr, *next_argument_ = nullptr, *next_value_ = nullptr;
  llvm::AllocaInst *column_ = nullptr, *argument_ = nullptr, *value_ = nullptr;
  llvm::Value* always_ = nullptr;
  BasicBlock* dispatch_ = nullptr;
};

// A thread has 255 registers. The stack and argument registers stay at or below this limit, so that bodies do not
// spill.
constexpr unsigned kMaxMachineRegisters = 176;

Result<DeviceModule> buildInterpreter(const HandlerTable& table, const DeviceOptions& options) {
  const InterpreterSpec& spec = table.spec();
  if (spec.precision != options.precision || spec.math != options.math ||
      spec.rows_per_thread != options.rows_per_thread) {
    return Error{Errc::kInvalid, "the handler table was made for another precision, math mode or number of rows", {}};
  }
  if (spec.depth < kLeastInterpreterDepth || spec.depth > kMostInterpreterDepth) {
    return Error{
        Errc::kInvalid,
        fmt::format("stack depth {}: expected {} to {}", spec.depth, kLeastInterpreterDepth, kMostInterpreterDepth),
        {}};
  }
  const unsigned words = static_cast<unsigned>(bytesOf(spec.precision)) / 4;
  const unsigned registers = (spec.depth + table.argumentCount()) * spec.rows_per_thread * words;
  if (registers > kMaxMachineRegisters) {
    return Error{Errc::kInvalid,
                 fmt::format("depth {} with {} rows per thread in {} takes {} registers: expected at most {}",
                             spec.depth, spec.rows_per_thread, nameOf(spec.precision), registers, kMaxMachineRegisters),
                 {}};
  }
  auto made = DeviceModule::create(options);
  if (!made) return made;
  llvm::IRBuilder<> builder(made->module().getContext());
  InterpreterEmitter(table, options, *made, builder).run();
  return made;
}

}  // namespace

std::size_t interpreterSharedBytes(Precision precision, const InterpreterGeometry& geometry, std::size_t staged_columns,
                                   std::size_t slots, std::size_t block_tokens) {
  const std::size_t pitch = std::size_t{geometry.row_warps} * kWarpLanes * geometry.rows_per_thread *
                            static_cast<std::size_t>(bytesOf(precision));
  const std::size_t teams = kBlockWarps / geometry.row_warps;
  const std::size_t tokens =
      geometry.window == 0 ? block_tokens + 2 * teams : kBlockWarps * (std::size_t{geometry.window} + 2);
  return (staged_columns + teams * slots) * pitch + tokens * sharedTokenBytes(precision);
}

Result<std::string> interpreterIr(const HandlerTable& table, const DeviceOptions& options, bool optimized) {
  return irOf([&] { return buildInterpreter(table, options); }, optimized);
}

Result<std::string> interpreterPtx(const HandlerTable& table, const DeviceOptions& options) {
  return ptxOf([&] { return buildInterpreter(table, options); });
}

/// LLVM's bitcode of the sources that CMakeLists.txt of this layer lists; empty where there was no clang.
extern const std::span<const unsigned char> kLanesBitcode;

std::span<const std::byte> lanesBitcode() noexcept { return std::as_bytes(kLanesBitcode); }

Result<std::string> lanesPtx(const DeviceOptions& options) {
  if (kLanesBitcode.empty()) return Error{Errc::kUnsupported, "this build has no kernels that encode populations", {}};
  return ptxOf([&]() -> Result<DeviceModule> {
    Result<DeviceModule> made = DeviceModule::create(options);
    if (!made) return made;
    const std::string_view bytes(reinterpret_cast<const char*>(kLanesBitcode.data()), kLanesBitcode.size());
    constexpr std::array<std::string_view, 2> kKernels = {kTreesKernel, kLossesKernel};
    if (Status read = made->readBitcode(bytes, kKernels); !read) return std::move(read).error();
    made->limitRegisters(kTreesKernel, kTreesRegisters);
    return made;
  });
}

}  // namespace srjit
