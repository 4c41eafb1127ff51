// Trees as arrays, interpreted: all expressions in one launch.
#include <algorithm>

#include "tools/bench/baselines/designs/tree_arrays.h"
#include "tools/bench/baselines/device.h"

namespace srjit {
namespace {

class TreeBaseline final : public DeviceBaseline {
 public:
  TreeBaseline(std::shared_ptr<const Cuda> device, const BaselineData& data) : DeviceBaseline(std::move(device), data) {
    const CurrentContext current(*cuda());
    module_ = Module(cuda(), imageOfPtx(treeKernelPtx()));
    kernel_ = module_.kernel(kTreeKernel);
  }

 private:
  void build(std::span<const Expression> expressions) override {
    fillTreeArrays(expressions, arrays_);
    values_ = upload(arrays_.values);
    types_ = upload(arrays_.types);
    sizes_ = upload(arrays_.sizes);
  }

  void launch(std::size_t first, std::size_t count, CUdeviceptr target, CUdeviceptr out) override {
    CUdeviceptr columns_at = columns(), parameters_at = parameters(), values = 0, types = 0, sizes = 0, result = 0;
    std::uint32_t row_count = rows();
    auto length = static_cast<std::uint32_t>(arrays_.length);
    const auto arguments =
        addressesOf(columns_at, row_count, parameters_at, target, result, values, types, sizes, length);
    const std::size_t result_bytes = target != 0 ? sizeof(double) : rows() * sizeof(float);
    for (std::size_t done = 0; done < count; done += kMaxGridY) {
      const std::size_t node = (first + done) * arrays_.length;
      values = values_.address() + node * sizeof(float);
      types = types_.address() + node * sizeof(std::int16_t);
      sizes = sizes_.address() + node * sizeof(std::int16_t);
      result = out + done * result_bytes;
      stream().launch({.kernel = kernel_.get(),
                       .grid_x = static_cast<unsigned>(ceilDivide(rows(), kBaselineThreads * kTreeStripRows)),
                       .grid_y = static_cast<unsigned>(std::min<std::size_t>(kMaxGridY, count - done)),
                       .block_threads = kBaselineThreads,
                       .arguments = arguments});
    }
  }

  Module module_;
  Kernel kernel_;
  TreeArrays arrays_;
  DeviceBuffer values_, types_, sizes_;
};

}  // namespace

std::unique_ptr<Baseline> makeTreeBaseline(std::shared_ptr<const Cuda> cuda, const BaselineData& data) {
  return std::make_unique<TreeBaseline>(std::move(cuda), data);
}

}  // namespace srjit
