// The three kinds of kernel models.
#pragma once

#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/handler_table.h"
#include "tests/gpu_model/memory.h"

namespace srjit {

/// A graph without the sources of its parameters.
struct ModelGraph {
  std::vector<Node> nodes;
  std::vector<NodeId> roots;
  std::size_t parameters = 0;
};

struct ModelOptions {
  Precision precision = Precision::kF32;
  unsigned rows_per_thread = 4;
  std::optional<LossSpec> loss;
  bool strided_columns = false;
};

std::unique_ptr<KernelModel> makeRowsModel(ModelGraph graph, const ModelOptions& options, KernelFacts facts);
std::unique_ptr<KernelModel> makeInterpreterModel(HandlerTable table, const ModelOptions& options, KernelFacts facts);
std::unique_ptr<KernelModel> makeTotalsModel(const ModelOptions& options, KernelFacts facts);

}  // namespace srjit
