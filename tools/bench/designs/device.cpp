#include "tools/bench/designs/device.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include "ir/numbers/rounding.h"
#include "tools/bench/designs/baseline.h"

namespace srjit {
namespace {

/// Size of the matrix of predictions on the device; larger results are fetched in groups of expressions.
constexpr std::size_t kMatrixBytes = std::size_t{8} << 30;
/// Size of each of the two staging buffers through which it is fetched.
constexpr std::size_t kFetchBytes = std::size_t{32} << 20;

void copyInParallel(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  tbb::parallel_for(std::size_t{0}, ceilDivide(bytes, kPiece), [&](std::size_t i) {
    const std::size_t first = i * kPiece;
    std::memcpy(static_cast<std::byte*>(to) + first, static_cast<const std::byte*>(from) + first,
                std::min(kPiece, bytes - first));
  });
}

/// Grows the buffer to at least `bytes`; keeps it if it is large enough.
void reserve(PinnedBuffer& buffer, const std::shared_ptr<const Cuda>& cuda, std::size_t bytes) {
  if (buffer.bytes() < bytes) buffer = PinnedBuffer(cuda, bytes);
}

// The frame of the kernels in PTX.
constexpr unsigned kWarps = kBaselineThreads / 32;
static_assert(kWarps == 4, "the sums of a block are loaded as one vector");

constexpr const char* kBegin = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry {}(.param .u64 columns, .param .u32 rows, .param .u64 parameters, .param .u64 target, .param .u64 out{})
{{
 .shared .align 16 .b8 warp_sums[16]; .reg .pred %p, %pa, %pb, %beyond; .reg .f32 %x, %y, %r, %t, %ta, %tb, %tc;
 .reg .f64 %sum; .reg .b32 %thread, %row, %rows, %i, %j, %ia, %ib; .reg .b64 %column, %pitch, %a, %b, %c;
{} mov.u32 %thread, %tid.x;
 mov.u32 %i, %ctaid.x; mov.u32 %j, %ntid.x; mad.lo.u32 %row, %i, %j, %thread; ld.param.u32 %rows, [rows];
 setp.ge.u32 %beyond, %row, %rows; sub.u32 %i, %rows, 1; min.u32 %row, %row, %i;
 ld.param.u64 %column, [columns]; mul.wide.u32 %a, %row, 4; add.u64 %column, %column, %a;
 mul.wide.u32 %pitch, %rows, 4;
)";

constexpr const char* kAddError =
    R"( ld.param.u64 %b, [out]; ld.param.u64 %a, [target]; mov.u32 %ia, %ctaid.y; setp.eq.u64 %p, %a, 0; @%p bra STORE;
 mul.wide.u32 %c, %row, 4; add.u64 %a, %a, %c; ld.global.nc.f32 %t, [%a]; sub.rn.f32 %r, %r, %t;
 mul.rn.f32 %r, %r, %r; selp.f32 %r, 0f00000000, %r, %beyond;
)";

constexpr const char* kAddWarps =
    R"( and.b32 %i, %thread, 31; setp.ne.u32 %p, %i, 0; shr.u32 %j, %thread, 5; mov.u64 %a, warp_sums;
 mul.wide.u32 %c, %j, 4; add.u64 %a, %a, %c; @!%p st.shared.f32 [%a], %r; bar.sync 0;
 setp.ne.u32 %p, %thread, 0; @%p exit; mov.u64 %a, warp_sums; ld.shared.v4.f32 {%x, %y, %t, %r}, [%a];
 add.rn.f32 %x, %x, %y; add.rn.f32 %t, %t, %r; add.rn.f32 %x, %x, %t; cvt.f64.f32 %sum, %x;
 mul.wide.u32 %c, %ia, 8; add.u64 %b, %b, %c; red.global.add.f64 [%b], %sum; exit;
)";

constexpr const char* kStorePrediction =
    R"(STORE: @%beyond exit; cvt.u64.u32 %a, %ia; mul.lo.u64 %a, %a, %pitch; mul.wide.u32 %c, %row, 4;
 add.u64 %a, %a, %c; add.u64 %b, %b, %a; st.global.f32 [%b], %r; exit;
}
)";

}  // namespace

std::shared_ptr<const Cuda> openBaselineDevice(unsigned ordinal) {
  const auto driver = loadDriver();
  if (!driver) throw CudaFailure(CUDA_ERROR_NO_DEVICE, driver.error());
  auto cuda = Cuda::open(*driver, static_cast<int>(ordinal));
  if (!cuda) throw CudaFailure(CUDA_ERROR_NO_DEVICE, cuda.error());
  return *cuda;
}

KernelImage imageOfPtx(const std::string& ptx) {
  KernelImage image{.code = std::vector<std::byte>(ptx.size() + 1), .form = ImageForm::kPtx, .kernels = {}};
  std::memcpy(image.code.data(), ptx.c_str(), ptx.size() + 1);
  return image;
}

DeviceBaseline::DeviceBaseline(std::shared_ptr<const Cuda> cuda, const BenchData& data)
    : cuda_(std::move(cuda)), rows_(static_cast<std::uint32_t>(data.target.size())) {
  const CurrentContext current(*cuda_);
  stream_ = std::make_shared<const Stream>(cuda_);
  std::vector<float> columns;
  for (const auto& column : data.columns) columns.insert(columns.end(), column.begin(), column.end());
  columns_ = upload(columns);
  target_ = upload(data.target);
}

Kernel DeviceBaseline::load(const KernelImage& image, const char* kernel) {
  const CurrentContext current(*cuda_);
  return modules_.emplace_back(cuda_, image).kernel(kernel);
}

void DeviceBaseline::run(const Kernel& kernel, std::size_t blocks, std::size_t expressions,
                         std::span<void* const> arguments) const {
  stream_->launch({.kernel = kernel.get(),
                   .grid_x = static_cast<unsigned>(blocks),
                   .grid_y = static_cast<unsigned>(expressions),
                   .block_threads = kBaselineThreads,
                   .arguments = arguments});
}

// Through pinned memory, which is kept: the driver copies from other memory on one thread, and several times as slowly.
DeviceBuffer DeviceBaseline::uploadBytes(const void* data, std::size_t bytes) {
  DeviceBuffer buffer(stream_, bytes);
  reserve(staged_, cuda_, bytes);
  copyInParallel(staged_.data(), data, bytes);
  stream_->copyToDevice(buffer.address(), staged_.data(), bytes);
  stream_->synchronize();
  return buffer;
}

void DeviceBaseline::prepare(std::span<const Expression> expressions) {
  const CurrentContext current(*cuda_);
  expressions_ = 0;
  matrix_ = {};
  build(expressions);
  const std::size_t parameters = parameterOffsets(expressions).back();
  parameters_ = DeviceBuffer(stream_, parameters * sizeof(float));
  sums_ = DeviceBuffer(stream_, expressions.size() * sizeof(double));
  reserve(sent_, cuda_, parameters * sizeof(float));
  reserve(fetched_sums_, cuda_, expressions.size() * sizeof(double));
  stream_->synchronize();
  expressions_ = expressions.size();
}

void DeviceBaseline::sendParameters(std::span<const double> parameters) {
  checkStepSize(parameters.size(), parameters_.bytes() / sizeof(float), "parameters");
  std::ranges::transform(parameters, sent_.as<float>().begin(), [](double value) { return static_cast<float>(value); });
  stream_->copyToDevice(parameters_.address(), sent_.data(), parameters_.bytes());
}

template <class Body>
void DeviceBaseline::time(const Body& body) {
  const Event begin(cuda_, true), end(cuda_, true);
  stream_->record(begin);
  body();
  stream_->record(end);
  end.synchronize();
  kernel_seconds_ += end.secondsSince(begin);
}

void DeviceBaseline::losses(std::span<const double> parameters, std::span<double> sums) {
  const CurrentContext current(*cuda_);
  checkStepSize(sums.size(), expressions_, "sums");
  kernel_seconds_ = 0;
  sendParameters(parameters);
  stream_->fill(sums_.address(), 0, sums_.bytes());
  time([&] {
    launchShared();
    launch(0, expressions_, target_.address(), sums_.address());
  });
  stream_->copyToHost(fetched_sums_.data(), sums_.address(), sums_.bytes());
  stream_->synchronize();
  if (!sums.empty()) std::memcpy(sums.data(), fetched_sums_.data(), sums.size_bytes());
}

void DeviceBaseline::predictions(std::span<const double> parameters, std::span<float> out) {
  const CurrentContext current(*cuda_);
  checkStepSize(out.size(), expressions_ * rows_, "predictions");
  kernel_seconds_ = 0;
  if (out.empty()) return;
  const std::size_t row_bytes = rows_ * sizeof(float);
  if (matrix_.bytes() == 0) {
    const std::size_t budget = std::min(kMatrixBytes, cuda_->freeMemory() / 2);
    matrix_ = DeviceBuffer(stream_, std::clamp<std::size_t>(budget / row_bytes, 1, expressions_) * row_bytes);
  }
  const std::size_t group = matrix_.bytes() / row_bytes;
  sendParameters(parameters);
  for (std::size_t first = 0; first < expressions_; first += group) {
    const std::size_t count = std::min(group, expressions_ - first);
    time([&] {
      if (first == 0) launchShared();
      launch(first, count, 0, matrix_.address());
    });
    fetch(out.subspan(first * rows_, count * rows_));
  }
}

// Double buffering: the device fills one buffer while the host reads the other.
void DeviceBaseline::fetch(std::span<float> out) {
  int memory_type = 0;
  const CUresult code = cuda_->driver().cuPointerGetAttribute(&memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                              reinterpret_cast<CUdeviceptr>(out.data()));
  if (code == CUDA_SUCCESS && memory_type == CU_MEMORYTYPE_HOST) {
    stream_->copyToHost(out.data(), matrix_.address(), out.size_bytes());
    stream_->synchronize();
    return;
  }
  constexpr std::size_t kPiece = kFetchBytes / sizeof(float);
  const std::size_t pieces = ceilDivide(out.size(), kPiece);
  const auto pieceOf = [&](std::size_t i) {
    return out.subspan(i * kPiece, std::min(kPiece, out.size() - i * kPiece));
  };
  const std::array<Event, 2> done = {Event(cuda_), Event(cuda_)};
  for (std::size_t i = 0; i <= pieces; ++i) {
    if (i < pieces) {
      PinnedBuffer& buffer = fetched_[i % 2];
      reserve(buffer, cuda_, pieceOf(i).size_bytes());
      stream_->copyToHost(buffer.data(), matrix_.address() + i * kFetchBytes, pieceOf(i).size_bytes());
      stream_->record(done[i % 2]);
    }
    if (i > 0) {
      done[(i - 1) % 2].synchronize();
      copyInParallel(pieceOf(i - 1).data(), fetched_[(i - 1) % 2].data(), pieceOf(i - 1).size_bytes());
    }
  }
}

void beginBaselineKernel(std::string_view name, std::string_view more_parameters, std::string_view declarations,
                         std::string& ptx) {
  ptx += fmt::format(kBegin, name, more_parameters, declarations);
}

void endBaselineKernel(std::string& ptx) {
  ptx += kAddError;
  writeBaselineSum(ptx);
  ptx += kStorePrediction;
}

void writeBaselineDispatch(std::size_t first, std::size_t last, std::string& ptx) {
  if (last - first == 1) {
    ptx += fmt::format(" bra CASE_{};\n", first);
    return;
  }
  const std::size_t middle = first + (last - first) / 2;
  ptx += fmt::format(" setp.lt.u32 %p, %code, {0};\n @%p bra BELOW_{0};\n", middle);
  writeBaselineDispatch(middle, last, ptx);
  ptx += fmt::format("BELOW_{}:\n", middle);
  writeBaselineDispatch(first, middle, ptx);
}

void writeBaselineSum(std::string& ptx) {
  for (const int distance : {16, 8, 4, 2, 1}) {
    ptx += fmt::format(" shfl.sync.down.b32 %t, %r, {}, 31, 0xffffffff;\n add.rn.f32 %r, %r, %t;\n", distance);
  }
  ptx += kAddWarps;
}

}  // namespace srjit
