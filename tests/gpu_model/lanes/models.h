// Models of the kernels of compiler/interpreter/lanes/arguments.h: the lanes' own code, one lane after another.
#pragma once

#include "compiler/interpreter/lanes/arguments.h"
#include "tests/gpu_model/kernels.h"

namespace srjit {

/// What a launch of `srjit_encode_trees` writes, of arrays on the host. Blocks take room in the order of `blocks`,
/// which has each number once.
void encodeTrees(const TreeArguments& arguments, std::span<const std::uint32_t> blocks);

std::unique_ptr<KernelModel> makeTreesModel(KernelFacts facts);
std::unique_ptr<KernelModel> makeLossesModel(KernelFacts facts);

}  // namespace srjit
