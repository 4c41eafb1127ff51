#include "tests/gpu_model/fake_image_maker.h"

#include "compiler/interpreter/kernel.h"
#include "compiler/interpreter/lanes/arguments.h"
#include "compiler/lowering/source_map.h"
#include "compiler/nvptx/kernels.h"
#include "compiler/nvptx/options.h"
#include "tests/faults/spared_scope.h"

namespace srjit {
namespace {

constexpr unsigned kRegisters = 32;

}  // namespace

void FakeImageMaker::hold() {
  const std::scoped_lock lock(mutex_);
  holding_ = true;
}

void FakeImageMaker::release() {
  const std::scoped_lock lock(mutex_);
  holding_ = false;
  released_.notify_all();
}

std::size_t FakeImageMaker::held() const {
  const std::scoped_lock lock(mutex_);
  return held_;
}

std::size_t FakeImageMaker::count(std::string_view kind) const {
  const std::scoped_lock lock(mutex_);
  if (kind.empty()) return rows_ + interpreters_ + totals_ + lanes_;
  return countOf(kind);
}

std::size_t& FakeImageMaker::countOf(std::string_view kind) const {
  return kind == "rows" ? rows_ : kind == "interpreter" ? interpreters_ : kind == "totals" ? totals_ : lanes_;
}

Status FakeImageMaker::admit(const Request& request) const {
  {
    std::unique_lock lock(mutex_);
    ++countOf(request.kind);
    ++held_;
    released_.wait(lock, [this] { return !holding_; });
    --held_;
  }
  return before ? before(request) : okStatus();
}

KernelImage FakeImageMaker::finish(const std::string& text, std::vector<KernelFacts> kernels) const {
  KernelImage image;
  const auto* const first = reinterpret_cast<const std::byte*>(text.c_str());
  image.code.assign(first, first + text.size() + 1);
  image.form = makes_ptx ? ImageForm::kPtx : ImageForm::kCubin;
  if (!makes_ptx) image.kernels = std::move(kernels);
  image.seconds = seconds;
  return image;
}

Result<KernelImage> FakeImageMaker::rows(std::span<const Dag> dags, const DeviceOptions& options) const {
  const SparedScope spared;
  if (const Status status = admit({"rows", dags, nullptr, options}); !status) return status.error();
  std::vector<KernelFacts> kernels;
  for (const Dag& dag : dags) {
    kernels.push_back(facts ? facts(dag) : KernelFacts{{}, kRegisters, 0, 0, 0});
    kernels.back().name = rowsKernelName(kernels.size() - 1);
  }
  return finish(rowsModel(dags, options, makes_ptx, kernels), kernels);
}

Result<KernelImage> FakeImageMaker::interpreter(const HandlerTable& table, const DeviceOptions& options) const {
  const SparedScope spared;
  if (const Status status = admit({"interpreter", {}, &table, options}); !status) return status.error();
  const KernelFacts kernel{kInterpreterKernel, 4 * kRegisters, 0, 0, 0};
  return finish(interpreterModel(table, options, makes_ptx, kernel), {kernel});
}

Result<KernelImage> FakeImageMaker::totals(const DeviceOptions& options) const {
  const SparedScope spared;
  if (const Status status = admit({"totals", {}, nullptr, options}); !status) return status.error();
  const KernelFacts kernel{kTotalsKernel, kRegisters, 0, 0, 0};
  return finish(totalsModel(options, makes_ptx, kernel), {kernel});
}

Result<KernelImage> FakeImageMaker::lanes(const DeviceOptions& options) const {
  const SparedScope spared;
  if (const Status status = admit({"lanes", {}, nullptr, options}); !status) return status.error();
  const std::vector<KernelFacts> kernels = {{kTreesKernel, kRegisters, 0, 0, 0}, {kLossesKernel, kRegisters, 0, 0, 0}};
  return finish(lanesModel(options, makes_ptx, kernels), kernels);
}

}  // namespace srjit
