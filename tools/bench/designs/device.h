// What the designs on a GPU have in common: data on the device, parameters and results of each step, and the frame of
// their PTX.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "ir/numbers/rounding.h"
#include "ir/numeric.h"
#include "runtime/cuda/handles.h"
#include "tools/bench/designs/baseline.h"

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
  DeviceBaseline(std::shared_ptr<const Cuda> cuda, const BenchData& data);

  /// Replaces earlier expressions. The device's context is current in all of these.
  virtual void build(std::span<const Expression> expressions) = 0;
  /// Launches the work of a step that precedes the expressions.
  virtual void launchShared() {}
  /// Launches `count` expressions from `first` on. With a target, adds the sum of squared errors of expression first +
  /// i to the double at out + 8 i; without (0), stores its predictions in f32 from out + 4 rows() i on.
  virtual void launch(std::size_t first, std::size_t count, CUdeviceptr target, CUdeviceptr out) = 0;

  const Cuda& cuda() const noexcept { return *cuda_; }
  std::uint32_t rows() const noexcept { return rows_; }
  CUdeviceptr columns() const noexcept { return columns_.address(); }
  CUdeviceptr parameters() const noexcept { return parameters_.address(); }
  /// The bytes between two results at `out` of launch().
  std::size_t resultBytes(CUdeviceptr target) const { return target != 0 ? sizeof(double) : rows_ * sizeof(float); }

  /// Loads an image, which stays until the next clearModules(), and gives its kernel. Makes the context current.
  Kernel load(const KernelImage& image, const char* kernel);
  void clearModules() { modules_.clear(); }
  /// A grid of `blocks` x `expressions` blocks.
  void run(const Kernel& kernel, std::size_t blocks, std::size_t expressions, std::span<void* const> arguments) const;
  /// Blocks that cover all rows.
  std::size_t rowBlocks() const noexcept { return ceilDivide(rows_, kBaselineThreads); }
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
  std::vector<Module> modules_;
  DeviceBuffer columns_, target_, parameters_, sums_, matrix_;
  PinnedBuffer staged_, sent_, fetched_sums_;
  std::array<PinnedBuffer, 2> fetched_;
  double kernel_seconds_ = 0;
};

/// The device that a design uses. Throws CudaFailure, also if there is no driver.
std::shared_ptr<const Cuda> openBaselineDevice(unsigned ordinal);
/// An image of PTX text.
KernelImage imageOfPtx(const std::string& ptx);

/// The designs. Modules of NVRTC are bounded, since compile time grows superlinearly with their length.
std::unique_ptr<Baseline> makeStackBaseline(std::shared_ptr<const Cuda> cuda, const BenchData& data,
                                            std::size_t expressions_per_launch);
std::unique_ptr<Baseline> makeCacheBaseline(std::shared_ptr<const Cuda> cuda, const BenchData& data);
std::unique_ptr<Baseline> makeTreeBaseline(std::shared_ptr<const Cuda> cuda, const BenchData& data);
std::unique_ptr<Baseline> makePtxBaseline(std::shared_ptr<const Cuda> cuda, const BenchData& data);
inline constexpr std::size_t kNvrtcModuleExpressions = 100;
std::unique_ptr<Baseline> makeNvrtcBaseline(std::shared_ptr<const Cuda> cuda, const BenchData& data);
std::unique_ptr<Baseline> makeCpuSwitch(const BenchData& data);

/// The frame of the kernels in PTX: a prologue that computes the row of a thread, code that leaves its value in %r, and
/// an epilogue. Kernels have the parameters u64 columns, u32 rows, u64 parameters, u64 target, u64 out; then their own.
/// A block of kBaselineThreads threads computes as many rows, of the expression whose number is ctaid.y.
///
/// Begins a module with one kernel: `more_parameters` continues the list of parameters ("" or ", .param ..."),
/// `declarations` are registers and memory of its own. Leaves the address of the row in the first column in %column,
/// the bytes between columns in %pitch, and %row, the last row where it is %beyond the end. %a to %c (b64), %i and %j
/// (b32), %x, %y, %t (f32) and %p are free, as are the temporaries of operators (code.h).
void beginBaselineKernel(std::string_view name, std::string_view more_parameters, std::string_view declarations,
                         std::string& ptx);
/// Jumps to the label CASE_n for the n in %code, first <= n < last, by a binary search. Overwrites %p.
void writeBaselineDispatch(std::size_t first, std::size_t last, std::string& ptx);
/// Adds %r of all threads of the block to the sum number %ia of those at %b, by shuffles and one atomic addition, and
/// ends the kernel. All threads must get here.
void writeBaselineSum(std::string& ptx);
/// The epilogue: adds squared errors by writeBaselineSum(), or stores predictions.
void endBaselineKernel(std::string& ptx);

}  // namespace srjit
