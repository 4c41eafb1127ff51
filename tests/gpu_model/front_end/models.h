// Models of the kernels of the front end (compiler/interpreter/front_end/arguments.h): the same workers, on the host.
#pragma once

#include <memory>

#include "tests/gpu_model/kernels.h"

namespace srjit {

std::unique_ptr<KernelModel> makeEncodeModel(KernelFacts facts);
std::unique_ptr<KernelModel> makeLinkModel(KernelFacts facts);

}  // namespace srjit
