// One PTX kernel per expression, compiled by the driver, and one launch for each.
#include "tools/bench/baselines/designs/ptx_transpiler.h"
#include "tools/bench/baselines/device.h"

namespace srjit {
namespace {

class PtxBaseline final : public DeviceBaseline {
 public:
  PtxBaseline(std::shared_ptr<const Cuda> device, const BaselineData& data) : DeviceBaseline(std::move(device), data) {}

 private:
  // Sequential: the driver compiles on one thread at a time.
  void build(std::span<const Expression> expressions) override {
    offsets_ = parameterOffsets(expressions);
    kernels_.clear();
    modules_.clear();
    for (const Expression& expression : expressions) {
      modules_.emplace_back(cuda(), imageOfPtx(transpile(expression)));
      kernels_.push_back(modules_.back().kernel(kExpressionKernel));
    }
  }

  void launch(std::size_t first, std::size_t count, CUdeviceptr target, CUdeviceptr out) override {
    CUdeviceptr all_columns = columns(), own_parameters = 0, result = 0;
    std::uint32_t row_count = rows();
    const auto arguments = addressesOf(all_columns, row_count, own_parameters, target, result);
    const std::size_t result_bytes = target != 0 ? sizeof(double) : rows() * sizeof(float);
    for (std::size_t i = 0; i < count; ++i) {
      own_parameters = parameters() + offsets_[first + i] * sizeof(float);
      result = out + i * result_bytes;
      stream().launch({.kernel = kernels_[first + i].get(),
                       .grid_x = rowBlocks(),
                       .block_threads = kBaselineThreads,
                       .arguments = arguments});
    }
  }

  std::vector<std::uint32_t> offsets_;
  std::vector<Module> modules_;
  std::vector<Kernel> kernels_;
};

}  // namespace

std::unique_ptr<Baseline> makePtxBaseline(std::shared_ptr<const Cuda> cuda, const BaselineData& data) {
  return std::make_unique<PtxBaseline>(std::move(cuda), data);
}

}  // namespace srjit
