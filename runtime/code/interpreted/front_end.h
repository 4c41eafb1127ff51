// The kernels that encode populations on a device (compiler/interpreter/front_end/arguments.h), loaded, with the tables
// they read.
#pragma once

#include <memory>

#include "compiler/interpreter/front_end/arguments.h"
#include "compiler/interpreter/handler_table.h"
#include "runtime/cuda/handles.h"

namespace srjit {

/// Of one device, precision and math mode. Immutable; thread-safe, but that launches must be in one stream
/// (compiler/interpreter/front_end/arguments.h).
class FrontEnd {
 public:
  /// Copies the tables to the device, on `stream`. Needs a current context. Throws CudaFailure.
  FrontEnd(std::shared_ptr<const Module> module, const std::shared_ptr<const Stream>& stream, Precision precision,
           Math math, const HandlerTable& table);

  const Kernel& encodeKernel() const noexcept { return encode_; }
  const Kernel& linkKernel() const noexcept { return link_; }
  /// What depends on the tables and modes; the rest is not set.
  const EncodeArguments& arguments() const noexcept { return arguments_; }

 private:
  std::shared_ptr<const Module> module_;
  Kernel encode_, link_;
  DeviceBuffer tables_;
  EncodeArguments arguments_{};
};

}  // namespace srjit
