#include "compiler/host/jit.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include "compiler/lowering/llvm_modules.h"
#include "compiler/lowering/operators.h"

namespace srjit {
namespace {

using llvm::BasicBlock;
using Values = llvm::SmallVector<llvm::Value*, 8>;

llvm::Function* createFunction(llvm::Module& module, const std::string& name, llvm::Type* result,
                               llvm::ArrayRef<llvm::Type*> parameters, const HostOptions& options) {
  auto* const function = llvm::Function::Create(llvm::FunctionType::get(result, parameters, false),
                                                llvm::Function::ExternalLinkage, name, module);
  function->setDoesNotThrow();
  // Without this attribute, LLVM's tuning for some processors splits 512-bit vectors in two.
  const std::string bits = std::to_string(options.vector_bytes * 8);
  function->addFnAttr("min-legal-vector-width", bits);
  function->addFnAttr("prefer-vector-width", bits);
  return function;
}

// A loop `for (i = 0; i < end; i += step)`: the body is emitted by the caller at the builder, then finish() is called.
class Loop {
 public:
  Loop(llvm::IRBuilder<>& builder, llvm::Value* end, std::uint64_t step) : builder_(builder) {
    llvm::Function* const function = builder.GetInsertBlock()->getParent();
    BasicBlock* const before = builder.GetInsertBlock();
    header_ = BasicBlock::Create(builder.getContext(), "rows", function);
    body_ = BasicBlock::Create(builder.getContext(), "block", function);
    exit_ = BasicBlock::Create(builder.getContext(), "done", function);
    builder.CreateBr(header_);
    builder.SetInsertPoint(header_);
    index_ = builder.CreatePHI(builder.getInt64Ty(), 2, "row");
    index_->addIncoming(builder.getInt64(0), before);
    builder.CreateCondBr(builder.CreateICmpSLT(index_, end), body_, exit_);
    builder.SetInsertPoint(body_);
    step_ = step;
  }
  llvm::Value* index() const { return index_; }
  BasicBlock* header() const { return header_; }
  void finish() {
    index_->addIncoming(builder_.CreateAdd(index_, builder_.getInt64(step_)), builder_.GetInsertBlock());
    builder_.CreateBr(header_);
    builder_.SetInsertPoint(exit_);
  }

 private:
  llvm::IRBuilder<>& builder_;
  BasicBlock *header_, *body_, *exit_;
  llvm::PHINode* index_;
  std::uint64_t step_;
};

// Unaligned loads and stores of one vector.
struct Memory {
  llvm::IRBuilder<>& builder;
  const Lowering& lowering;

  llvm::Align alignment() const { return llvm::Align(static_cast<std::uint64_t>(bytesOf(lowering.precision()))); }
  llvm::Value* at(llvm::Value* base, llvm::Value* index) const {
    return builder.CreateInBoundsGEP(lowering.elementType(), base, index);
  }
  llvm::Value* load(llvm::Value* base, llvm::Value* index) const {
    return builder.CreateAlignedLoad(lowering.type(), at(base, index), alignment());
  }
  void store(llvm::Value* value, llvm::Value* base, llvm::Value* index) const {
    builder.CreateAlignedStore(value, at(base, index), alignment());
  }
  llvm::Value* splat(llvm::Value* base, std::uint64_t index) const {
    llvm::Value* const element = builder.CreateAlignedLoad(
        lowering.elementType(), builder.CreateConstInBoundsGEP1_64(lowering.elementType(), base, index), alignment());
    return builder.CreateVectorSplat(lowering.lanes(), element);
  }
};

// Whether lowering `op` emits calls. Such a handler computes one vector per iteration; others compute several to hide
// latency.
bool callsLibrary(Op op, const HostOptions& options) {
  llvm::LLVMContext context;
  llvm::Module module("probe", context);
  llvm::IRBuilder<> builder(context);
  auto* const function = createFunction(module, "probe", builder.getVoidTy(), {}, options);
  builder.SetInsertPoint(BasicBlock::Create(context, "entry", function));
  Lowering lowering(builder, TargetKind::kHost, options.precision, options.math, options.lanes());
  const Values operands(kMaxArity, llvm::PoisonValue::get(lowering.type()));
  lowering.apply(op, {operands.data(), static_cast<std::size_t>(arityOf(op))});
  for (const llvm::Function& callee : module) {
    if (&callee != function && !callee.isIntrinsic()) return true;
  }
  return false;
}

/// The operators of every root that no root before it has, ascending.
std::vector<std::vector<NodeId>> ownOperators(const Dag& dag) {
  std::vector<std::vector<NodeId>> own(dag.roots().size());
  std::vector<bool> seen(dag.size());
  std::vector<NodeId> pending;
  for (std::size_t root = 0; root < own.size(); ++root) {
    pending.push_back(dag.roots()[root]);
    while (!pending.empty()) {
      const NodeId id = pending.back();
      pending.pop_back();
      if (seen[id] || dag.node(id).kind != Token::Kind::kOp) continue;
      seen[id] = true;
      own[root].push_back(id);
      const auto inputs = dag.node(id).inputs();
      pending.insert(pending.end(), inputs.begin(), inputs.end());
    }
    std::sort(own[root].begin(), own[root].end());
  }
  return own;
}

}  // namespace

std::vector<NodeId> interleavedOrder(const Dag& dag, unsigned ways) {
  const std::vector<std::vector<NodeId>> own = ownOperators(dag);
  std::vector<bool> done(dag.size());
  const auto isReady = [&](NodeId id) {
    const auto inputs = dag.node(id).inputs();
    return std::all_of(inputs.begin(), inputs.end(),
                       [&](NodeId input) { return dag.node(input).kind != Token::Kind::kOp || done[input]; });
  };
  struct Turn {
    std::size_t root, position;
  };
  std::vector<Turn> turns;
  std::vector<NodeId> order;
  std::size_t next_root = 0;
  while (true) {
    while (turns.size() < ways && next_root < own.size()) turns.push_back({next_root++, 0});
    if (turns.empty()) return order;
    // A root waits only for operators of roots before it, so the first root in the list always makes progress.
    for (Turn& turn : turns) {
      if (turn.position == own[turn.root].size()) continue;
      const NodeId id = own[turn.root][turn.position];
      if (!isReady(id)) continue;
      done[id] = true;
      order.push_back(id);
      ++turn.position;
    }
    std::erase_if(turns, [&](const Turn& turn) { return turn.position == own[turn.root].size(); });
  }
}

void emitHostHandler(llvm::Module& module, const std::string& name, const HandlerKey& key, const HostOptions& options) {
  llvm::IRBuilder<> builder(module.getContext());
  llvm::Type* const pointer = builder.getPtrTy();
  auto* const function = createFunction(module, name, builder.getVoidTy(),
                                        {pointer, pointer, pointer, pointer, builder.getInt64Ty()}, options);
  builder.SetInsertPoint(BasicBlock::Create(module.getContext(), "entry", function));
  Lowering lowering(builder, TargetKind::kHost, options.precision, options.math, options.lanes());
  const Memory memory{builder, lowering};
  const bool move = key.op < 0;
  const auto op = static_cast<Op>(move ? 0 : key.op);
  const unsigned arity = move ? 1 : static_cast<unsigned>(arityOf(op));
  const auto isScalar = [&](unsigned operand) { return ((key.scalar_mask >> operand) & 1) != 0; };

  Values scalars(arity, nullptr);
  for (unsigned i = 0; i < arity; ++i) {
    if (isScalar(i)) scalars[i] = memory.splat(function->getArg(i + 1), 0);
  }
  const unsigned unroll = !move && callsLibrary(op, options) ? 1 : std::min<unsigned>(4, kRowQuantum / options.lanes());
  Loop loop(builder, function->getArg(4), std::uint64_t{unroll} * options.lanes());
  std::vector<Values> operands(unroll);
  for (unsigned turn = 0; turn < unroll; ++turn) {
    llvm::Value* const row = builder.CreateAdd(loop.index(), builder.getInt64(std::uint64_t{turn} * options.lanes()));
    for (unsigned i = 0; i < arity; ++i) {
      operands[turn].push_back(isScalar(i) ? scalars[i] : memory.load(function->getArg(i + 1), row));
    }
  }
  Values results;
  for (const Values& turn : operands) {
    results.push_back(move ? turn[0] : lowering.apply(op, {turn.data(), turn.size()}));
  }
  for (unsigned turn = 0; turn < unroll; ++turn) {
    memory.store(results[turn], function->getArg(0),
                 builder.CreateAdd(loop.index(), builder.getInt64(std::uint64_t{turn} * options.lanes())));
  }
  loop.finish();
  builder.CreateRetVoid();
}

// Measured on Zen 4: 1 gives 30, 4 gives 37, 8 gives 38.5, 16 gives 36 G node evaluations per second (mixed, f32 fast).
constexpr unsigned kInterleavedRoots = 8;

void emitHostKernel(llvm::Module& module, const std::string& name, const Dag& dag, const HostOptions& options,
                    const SourceMap* source) {
  llvm::IRBuilder<> builder(module.getContext());
  llvm::Type* const pointer = builder.getPtrTy();
  llvm::Type* const integer = builder.getInt64Ty();
  auto* const function = createFunction(module, name, builder.getVoidTy(),
                                        {pointer, integer, pointer, pointer, integer, integer}, options);
  llvm::Value* const columns = function->getArg(0);
  llvm::Value* const column_stride = function->getArg(1);
  llvm::Value* const parameters = function->getArg(2);
  llvm::Value* const out = function->getArg(3);
  function->addParamAttr(0, llvm::Attribute::ReadOnly);
  function->addParamAttr(2, llvm::Attribute::ReadOnly);
  function->addParamAttr(3, llvm::Attribute::NoAlias);
  builder.SetInsertPoint(BasicBlock::Create(module.getContext(), "entry", function));
  Lowering lowering(builder, TargetKind::kHost, options.precision, options.math, options.lanes());
  lowering.callPrograms();
  const Memory memory{builder, lowering};
  NodeLocations locations(builder, *function, source);

  Loop loop(builder, function->getArg(5), options.lanes());
  std::vector<llvm::Value*> values(dag.size());
  const auto valueOf = [&](NodeId id) {
    const Node& node = dag.node(id);
    if (values[id] != nullptr) return values[id];
    locations.set(id);
    if (node.kind == Token::Kind::kConstant) {
      values[id] = lowering.literal(node.value);
    } else if (node.kind == Token::Kind::kParameter) {
      values[id] = memory.splat(parameters, node.index);
    } else {
      llvm::Value* const offset = builder.CreateMul(column_stride, builder.getInt64(node.index));
      values[id] = memory.load(columns, builder.CreateAdd(offset, loop.index()));
    }
    return values[id];
  };
  std::vector<std::vector<std::uint64_t>> outputs(dag.size());
  for (std::uint64_t root = 0; root < dag.roots().size(); ++root) outputs[dag.roots()[root]].push_back(root);
  const auto storeOutputs = [&](NodeId id) {
    for (const std::uint64_t root : outputs[id]) {
      locations.set(id);
      llvm::Value* const offset = builder.CreateMul(function->getArg(4), builder.getInt64(root));
      memory.store(valueOf(id), out, builder.CreateAdd(offset, loop.index()));
    }
  };
  for (const NodeId id : interleavedOrder(dag, kInterleavedRoots)) {
    Values operands;
    for (const NodeId operand : dag.node(id).inputs()) operands.push_back(valueOf(operand));
    locations.set(id);
    values[id] = lowering.apply(dag.node(id).op, {operands.data(), operands.size()});
    storeOutputs(id);
  }
  for (NodeId id = 0; id < dag.size(); ++id) {
    if (dag.node(id).kind != Token::Kind::kOp) storeOutputs(id);
  }
  locations.clear();
  loop.finish();
  builder.CreateRetVoid();
}

namespace {

// Adds the elements of `vectors` pairwise, neighbours first, down to one scalar.
llvm::Value* sumPairwise(llvm::IRBuilder<>& builder, Values vectors) {
  while (true) {
    const auto lanes = llvm::cast<llvm::FixedVectorType>(vectors[0]->getType())->getNumElements();
    const bool single = vectors.size() == 1;
    const unsigned pairs = single ? lanes / 2 : lanes;
    llvm::SmallVector<int, 64> even, odd;
    for (unsigned i = 0; i < pairs; ++i) {
      even.push_back(static_cast<int>(2 * i));
      odd.push_back(static_cast<int>(2 * i + 1));
    }
    Values sums;
    for (std::size_t i = 0; i < vectors.size(); i += 2) {
      llvm::Value* const second = single ? llvm::PoisonValue::get(vectors[i]->getType()) : vectors[i + 1];
      sums.push_back(builder.CreateFAdd(builder.CreateShuffleVector(vectors[i], second, even),
                                        builder.CreateShuffleVector(vectors[i], second, odd)));
    }
    vectors = std::move(sums);
    if (vectors.size() == 1 && llvm::cast<llvm::FixedVectorType>(vectors[0]->getType())->getNumElements() == 1) {
      return builder.CreateExtractElement(vectors[0], std::uint64_t{0});
    }
  }
}

enum LossArgument : unsigned { kPredictions, kTarget, kWeights, kNumbers, kSums, kSumStride, kLossRows };

/// The rows of a loss kernel, one vector at a time: emits at the insert point of the lowering's builder.
class LossRows {
 public:
  LossRows(const LossSpec& spec, Lowering& lowering, llvm::Function& kernel)
      : spec_(spec), lowering_(lowering), builder_(lowering.builder()), memory_{builder_, lowering}, kernel_(kernel) {
    if (!isOfMoments(spec.term)) return;
    for (std::uint64_t i = 0; i < numbers_.size(); ++i) numbers_[i] = memory_.splat(kernel.getArg(kNumbers), i);
  }

  /// The predictions from `row` on that the loss is of. Those of moments are rounded once, as by a fused multiply-add:
  /// the product is exact, or too small to matter.
  Value predictions(llvm::Value* row) const {
    const Value loaded(memory_.load(kernel_.getArg(kPredictions), row), lowering_);
    return isOfMoments(spec_.term) ? loaded * number(1) + number(2) : loaded;
  }
  /// Calls take(terms) with the terms of these rows with their weights, for every sum in order.
  template <class Take>
  void eachTerm(const Value& predictions, llvm::Value* row, const Take& take) const {
    Value target(memory_.load(kernel_.getArg(kTarget), row), lowering_);
    if (isOfMoments(spec_.term)) target = target - number(0);
    eachLossTerm(spec_.term, predictions, target, [&](const Value& term) {
      llvm::Value* const made = lowering_.materialize(term);
      take(spec_.weighted ? builder_.CreateFMul(memory_.load(kernel_.getArg(kWeights), row), made) : made);
    });
  }
  void storeSum(llvm::Value* value, std::size_t sum, llvm::Value* row_group) const {
    llvm::Value* const first = builder_.CreateMul(kernel_.getArg(kSumStride), builder_.getInt64(sum));
    builder_.CreateAlignedStore(value, memory_.at(kernel_.getArg(kSums), builder_.CreateAdd(first, row_group)),
                                memory_.alignment());
  }

 private:
  Value number(std::size_t i) const { return {numbers_[i], lowering_}; }

  const LossSpec& spec_;
  Lowering& lowering_;
  llvm::IRBuilder<>& builder_;
  const Memory memory_;
  llvm::Function& kernel_;
  std::array<llvm::Value*, 3> numbers_{};  ///< HostMoments
};

}  // namespace

void emitHostLoss(llvm::Module& module, const std::string& name, const LossSpec& spec, const HostOptions& options) {
  llvm::IRBuilder<> builder(module.getContext());
  llvm::Type *const pointer = builder.getPtrTy(), *const size = builder.getInt64Ty();
  auto* const function =
      createFunction(module, name, size, {pointer, pointer, pointer, pointer, pointer, size, size}, options);
  BasicBlock* const entry = BasicBlock::Create(module.getContext(), "entry", function);
  builder.SetInsertPoint(entry);
  Lowering lowering(builder, TargetKind::kHost, options.precision, options.math, options.lanes());
  const LossRows loss(spec, lowering, *function);
  const unsigned lanes = options.lanes();
  llvm::Value* const rows = function->getArg(kLossRows);

  llvm::SmallVector<llvm::Constant*, 64> iota;
  for (unsigned i = 0; i < lanes; ++i) iota.push_back(builder.getInt32(i));
  Loop loop(builder, rows, kGroupRows);
  llvm::PHINode* count = nullptr;
  {
    llvm::IRBuilder<>::InsertPointGuard guard(builder);
    builder.SetInsertPoint(loop.header(), loop.header()->begin());
    count = builder.CreatePHI(builder.getInt64Ty(), 2, "valid");
    count->addIncoming(builder.getInt64(0), entry);
  }
  llvm::Value* const left = builder.CreateSub(rows, loop.index());
  llvm::Value* const in_group = builder.CreateTrunc(
      builder.CreateBinaryIntrinsic(llvm::Intrinsic::umin, left, builder.getInt64(kGroupRows)), builder.getInt32Ty());
  llvm::Value* const limit = builder.CreateVectorSplat(lanes, in_group);
  llvm::Value* valid_rows = count;
  std::vector<Values> terms(spec.sums());
  for (unsigned first = 0; first < kGroupRows; first += lanes) {
    llvm::Value* const row = builder.CreateAdd(loop.index(), builder.getInt64(first));
    const Value predictions = loss.predictions(row);
    llvm::Value* const index =
        builder.CreateAdd(llvm::ConstantVector::get(iota), builder.CreateVectorSplat(lanes, builder.getInt32(first)));
    llvm::Value* counts = builder.CreateICmpULT(index, limit);
    if (spec.skip_invalid) {
      llvm::Value* const size_of =
          builder.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, lowering.materialize(predictions));
      counts = builder.CreateAnd(
          counts, builder.CreateFCmpOLT(size_of, lowering.literal(std::numeric_limits<double>::infinity())));
      llvm::Value* const bits = builder.CreateBitCast(counts, builder.getIntNTy(lanes));
      valid_rows = builder.CreateAdd(
          valid_rows,
          builder.CreateZExt(builder.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, bits), builder.getInt64Ty()));
    }
    std::size_t sum = 0;
    loss.eachTerm(predictions, row, [&](llvm::Value* term) {
      terms[sum++].push_back(builder.CreateSelect(counts, term, lowering.literal(0)));
    });
  }
  llvm::Value* const row_group = builder.CreateUDiv(loop.index(), builder.getInt64(kGroupRows));
  for (std::size_t sum = 0; sum < terms.size(); ++sum) {
    loss.storeSum(sumPairwise(builder, std::move(terms[sum])), sum, row_group);
  }
  count->addIncoming(valid_rows, builder.GetInsertBlock());
  loop.finish();
  builder.CreateRet(spec.skip_invalid ? static_cast<llvm::Value*>(count) : rows);
}

}  // namespace srjit
