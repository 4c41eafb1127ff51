// An ImageMaker whose images are models of kernels (kernels.h). It compiles nothing, so it is fast; delays, refusals
// and failures of a real one are injected on demand.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "compiler/kernels/image_maker.h"
#include "compiler/nvptx/options.h"
#include "tests/gpu_model/kernels.h"

namespace srjit {

/// Thread-safe. Images of one maker work in every other, and in other processes.
class FakeImageMaker : public ImageMaker {
 public:
  /// An image request. `dags` is set for rows, `table` for an interpreter.
  struct Request {
    std::string_view kind;  ///< "rows", "interpreter", "totals" or "lanes"
    std::span<const Dag> dags;
    const HandlerTable* table = nullptr;
    const DeviceOptions& options;
  };
  /// Called for each request, by several threads at once; its error becomes that of the request.
  std::function<Status(const Request&)> before;
  /// The facts of a kernel of rows; registers default to 32. May be called by several threads at once.
  std::function<KernelFacts(const Dag&)> facts;
  bool makes_ptx = false;     ///< as without an assembler: makes PTX without facts
  double seconds = 0.001;     ///< compile time that images report
  std::string version = "1";  ///< part of identity()

  /// Later requests wait until release().
  void hold();
  void release();
  /// Number of waiting requests.
  std::size_t held() const;
  /// Requests since the start, of one kind or ("") of all.
  std::size_t count(std::string_view kind = "") const;

  Result<KernelImage> rows(std::span<const Dag> dags, const DeviceOptions& options) const override;
  Result<KernelImage> interpreter(const HandlerTable& table, const DeviceOptions& options) const override;
  Result<KernelImage> totals(const DeviceOptions& options) const override;
  Result<KernelImage> lanes(const DeviceOptions& options) const override;
  std::string identity() const override { return "models " + version; }

 private:
  Status admit(const Request& request) const;
  std::size_t& countOf(std::string_view kind) const;
  KernelImage finish(const std::string& text, std::vector<KernelFacts> facts) const;

  mutable std::mutex mutex_;
  mutable std::condition_variable released_;
  mutable std::size_t rows_ = 0, interpreters_ = 0, totals_ = 0, lanes_ = 0, held_ = 0;
  bool holding_ = false;
};

}  // namespace srjit
