// C++ for the population, compiled by NVRTC: modules of many expressions, one after another.
#include <algorithm>

#include "tools/bench/baselines/designs/cuda_source.h"
#include "tools/bench/baselines/designs/nvrtc.h"
#include "tools/bench/baselines/device.h"
#include "tools/bench/failure.h"

namespace srjit {
namespace {

/// Blocks that occupy a multiprocessor.
constexpr unsigned kFullBlocks = 16;

class NvrtcBaseline final : public DeviceBaseline {
 public:
  NvrtcBaseline(std::shared_ptr<const Cuda> device, const BaselineData& data, Math math)
      : DeviceBaseline(std::move(device), data), math_(math), row_blocks_(rowBlocks()) {
    if (!hasNvrtc()) must(compileCuda("", cuda()->limits().arch, false, math));
    if (math != Math::kFast) row_blocks_ = std::min(row_blocks_, kFullBlocks * cuda()->limits().multiprocessors);
  }

 private:
  void build(std::span<const Expression> expressions) override {
    offsets_ = parameterOffsets(expressions);
    kernels_.clear();
    modules_.clear();
    for (std::size_t first = 0; first < expressions.size(); first += kNvrtcModuleExpressions) {
      const std::size_t count = std::min(kNvrtcModuleExpressions, expressions.size() - first);
      modules_.emplace_back(cuda(), must(compileCuda(cudaSource(expressions.subspan(first, count), math_),
                                                     cuda()->limits().arch, cuda()->limits().needs_ptx, math_)));
      kernels_.push_back(modules_.back().kernel(kPopulationKernel));
    }
  }

  void launch(std::size_t first, std::size_t count, CUdeviceptr target, CUdeviceptr out) override {
    CUdeviceptr all_columns = columns(), module_parameters = 0, result = 0;
    std::uint32_t row_count = rows(), first_of_module = 0;
    const auto arguments = addressesOf(all_columns, row_count, module_parameters, target, result, first_of_module);
    const std::size_t result_bytes = target != 0 ? sizeof(double) : rows() * sizeof(float);
    for (std::size_t e = first; e < first + count;) {
      const std::size_t module = e / kNvrtcModuleExpressions;
      const std::size_t end = std::min(first + count, (module + 1) * kNvrtcModuleExpressions);
      first_of_module = static_cast<std::uint32_t>(e % kNvrtcModuleExpressions);
      module_parameters = parameters() + offsets_[module * kNvrtcModuleExpressions] * sizeof(float);
      result = out + (e - first) * result_bytes;
      stream().launch({.kernel = kernels_[module].get(),
                       .grid_x = row_blocks_,
                       .grid_y = static_cast<unsigned>(end - e),
                       .block_threads = kBaselineThreads,
                       .arguments = arguments});
      e = end;
    }
  }

  Math math_;
  unsigned row_blocks_;
  std::vector<std::uint32_t> offsets_;
  std::vector<Module> modules_;
  std::vector<Kernel> kernels_;
};

}  // namespace

std::unique_ptr<Baseline> makeNvrtcBaseline(std::shared_ptr<const Cuda> cuda, const BaselineData& data, Math math) {
  return std::make_unique<NvrtcBaseline>(std::move(cuda), data, math);
}

}  // namespace srjit
