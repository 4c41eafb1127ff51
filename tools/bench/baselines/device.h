// The common part of GPU baselines: data on the device, upload of parameters and download of results in each step.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "ir/numbers/rounding.h"
#include "ir/numeric.h"
#include "runtime/cuda/handles.h"
#include "tools/bench/baselines/design.h"

namespace srjit {

/// Threads per block; each computes one row.
inline constexpr unsigned kBaselineThreads = 128;

class DeviceBaseline : public Baseline {
 public:
  void prepare(std::span<const Expression> expressions) final;
  void losses(std::span<const double> parameters, std::span<double> sums) final;
  void predictions(std::span<const double> parameters, std::span<float> out) final;
  double kernelSeconds() const final { return kernel_seconds_; }

 protected:
  DeviceBaseline(std::shared_ptr<const Cuda> cuda, const BaselineData& data);

  /// Replaces earlier expressions. The device's context is current in all of these.
  virtual void build(std::span<const Expression> expressions) = 0;
  /// Launches the work of a step that precedes the expressions.
  virtual void launchShared() {}
  /// Launches `count` expressions from `first` on. With a target, adds the sum of squared errors of expression first +
  /// i to the double at out + 8 i; without (0), stores its predictions in f32 from out + 4 rows() i on.
  virtual void launch(std::size_t first, std::size_t count, CUdeviceptr target, CUdeviceptr out) = 0;

  const std::shared_ptr<const Cuda>& cuda() const noexcept { return cuda_; }
  const Stream& stream() const noexcept { return *stream_; }
  std::uint32_t rows() const noexcept { return rows_; }
  CUdeviceptr columns() const noexcept { return columns_.address(); }
  CUdeviceptr parameters() const noexcept { return parameters_.address(); }

  /// Blocks that cover all rows.
  unsigned rowBlocks() const noexcept { return static_cast<unsigned>(ceilDivide(rows_, kBaselineThreads)); }
  /// A copy on the device; complete on return.
  template <class T>
  DeviceBuffer upload(const std::vector<T>& values) {
    return uploadBytes(values.data(), values.size() * sizeof(T));
  }
  DeviceBuffer allocate(std::size_t bytes) const { return DeviceBuffer(stream_, bytes); }

 private:
  DeviceBuffer uploadBytes(const void* data, std::size_t bytes);
  void sendParameters(std::span<const double> parameters);
  template <class Body>
  void time(const Body& body);
  void fetch(std::span<float> out);

  std::shared_ptr<const Cuda> cuda_;
  std::shared_ptr<const Stream> stream_;
  std::uint32_t rows_;
  std::size_t expressions_ = 0;
  DeviceBuffer columns_, target_, parameters_, sums_, matrix_;
  PinnedBuffer staged_, sent_, fetched_sums_;
  std::array<PinnedBuffer, 2> fetched_;
  double kernel_seconds_ = 0;
};

/// The device that a baseline uses. Throws CudaFailure, also if there is no driver.
std::shared_ptr<const Cuda> openBaselineDevice(unsigned ordinal);

/// An image of PTX text.
KernelImage imageOfPtx(const std::string& ptx);

/// The baselines, on an open device.
enum class StackLaunches { kEach, kOnce };
std::unique_ptr<Baseline> makeStackBaseline(std::shared_ptr<const Cuda> cuda, const BaselineData& data,
                                            StackLaunches launches);
std::unique_ptr<Baseline> makePtxBaseline(std::shared_ptr<const Cuda> cuda, const BaselineData& data);
/// Bounded, since compile time grows superlinearly with the length of a module.
inline constexpr std::size_t kNvrtcModuleExpressions = 100;
/// The published design is `fast`, with one row per thread. In other modes it has CUDA's own functions and several rows
/// per thread, so that functions are timed rather than sums of blocks.
std::unique_ptr<Baseline> makeNvrtcBaseline(std::shared_ptr<const Cuda> cuda, const BaselineData& data, Math math);
std::unique_ptr<Baseline> makeCacheBaseline(std::shared_ptr<const Cuda> cuda, const BaselineData& data);
std::unique_ptr<Baseline> makeTreeBaseline(std::shared_ptr<const Cuda> cuda, const BaselineData& data);

}  // namespace srjit
