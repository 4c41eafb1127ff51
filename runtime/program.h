// What a Program holds on the host.
#pragma once

#include <memory>
#include <vector>

#include "runtime/engine.h"
#include "runtime/host_batches.h"

namespace srjit {

struct Program::State {
  Precision precision = Precision::kF32;  ///< the engine's that made it, like `math`
  Math math = Math::kPrecise;
  std::vector<Expression> expressions;
  std::vector<std::size_t> parameter_offsets{0};  ///< one more than expressions
  std::uint32_t variables = 0;                    ///< the largest Expression::variableCount()
  Pipeline pipeline;
  ProgramInfo info{};
  std::vector<Failure> failures;
  std::unique_ptr<const HostBatches> batches;  ///< null if nothing could be made ready
};

}  // namespace srjit
