// Straight-line kernels over rows; device.h says what they compute and how they are called.
#include <vector>

#include "compiler/device.h"
#include "compiler/device_module.h"
#include "compiler/lowering.h"
#include "compiler/tile.h"

namespace srjit {
namespace {

// The kernel's parameters after the four that every kind has.
std::vector<llvm::Type*> parameterTypes(llvm::IRBuilder<>& builder, bool loss) {
  llvm::Type* const pointer = globalPointer(builder.getContext());
  llvm::Type* const size = builder.getInt64Ty();
  std::vector<llvm::Type*> types = {pointer, size, size, pointer};
  const std::vector<llvm::Type*> outputs =
      loss ? std::vector{pointer, pointer, pointer, pointer} : std::vector{pointer, size};
  types.insert(types.end(), outputs.begin(), outputs.end());
  return types;
}

// The rows of every node, in ascending order. A node is computed for all rows of the thread before the next, which
// leaves the assembler independent instructions to overlap; a parameter is one value for all rows.
std::vector<Rows> emitNodes(const Dag& dag, Lowering& lowering, const Tile& tile, llvm::Function& kernel) {
  llvm::IRBuilder<>& b = lowering.builder();
  const unsigned count = tile.rowsPerThread();
  std::vector<Rows> rows(dag.size());
  for (NodeId id = 0; id < dag.size(); ++id) {
    const Node& node = dag.node(id);
    switch (node.kind) {
      case Token::Kind::kConstant:
        rows[id].assign(count, lowering.literal(node.value));
        break;
      case Token::Kind::kVariable: {
        llvm::Value* const offset = b.CreateMul(kernel.getArg(1), b.getInt64(node.index));
        rows[id] = tile.load(b.CreateInBoundsGEP(lowering.elementType(), kernel.getArg(0), offset));
        break;
      }
      case Token::Kind::kParameter: {
        llvm::Value* const pointer = b.CreateConstInBoundsGEP1_64(lowering.elementType(), kernel.getArg(3), node.index);
        llvm::LoadInst* const load = b.CreateLoad(lowering.elementType(), pointer);
        load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(b.getContext(), {}));
        rows[id].assign(count, load);
        break;
      }
      case Token::Kind::kOp:
        for (unsigned k = 0; k < count; ++k) {
          std::array<llvm::Value*, kMaxArity> operands{};
          for (std::size_t i = 0; i < node.inputs().size(); ++i) operands[i] = rows[node.operands[i]][k];
          rows[id].push_back(lowering.apply(node.op, {operands.data(), node.inputs().size()}));
        }
        break;
    }
  }
  return rows;
}

Result<DeviceModule> buildRows(const Dag& dag, const DeviceOptions& options) {
  auto made = DeviceModule::create(options);
  if (!made) return made;
  llvm::IRBuilder<> builder(made->module().getContext());
  llvm::Function& kernel = *made->addKernel(kRowsKernel, parameterTypes(builder, options.loss.has_value()), builder);
  for (const unsigned pointer : {0u, 3u}) {
    kernel.addParamAttr(pointer, llvm::Attribute::NoAlias);
    kernel.addParamAttr(pointer, llvm::Attribute::ReadOnly);
  }
  Lowering lowering(builder, TargetKind::kDevice, options.precision, options.math);
  const Tile tile(lowering, options, kernel.getArg(2));
  const std::vector<Rows> rows = emitNodes(dag, lowering, tile, kernel);
  for (std::size_t root = 0; root < dag.roots().size(); ++root) {
    const Rows& predictions = rows[dag.roots()[root]];
    if (options.loss) {
      const LossPointers pointers{kernel.getArg(4), kernel.getArg(5), kernel.getArg(6), kernel.getArg(7)};
      tile.storeLoss(*options.loss, pointers, builder.getInt64(root), predictions);
    } else {
      llvm::Value* const offset = builder.CreateMul(kernel.getArg(5), builder.getInt64(root));
      tile.store(builder.CreateInBoundsGEP(lowering.elementType(), kernel.getArg(4), offset), predictions);
    }
  }
  builder.CreateRetVoid();
  return made;
}

}  // namespace

Result<std::string> rowsIr(const Dag& dag, const DeviceOptions& options, bool optimized) {
  auto made = buildRows(dag, options);
  if (!made) return std::move(made).error();
  if (optimized) {
    if (Status finished = made->finish(); !finished) return std::move(finished).error();
  }
  return made->ir();
}

Result<std::string> rowsPtx(const Dag& dag, const DeviceOptions& options) {
  auto made = buildRows(dag, options);
  if (!made) return std::move(made).error();
  if (Status finished = made->finish(); !finished) return std::move(finished).error();
  return made->ptx();
}

}  // namespace srjit
