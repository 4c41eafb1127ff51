// Owners of the objects of srjit.h, and its structs.
#pragma once

#include <memory>

#include "runtime/c_api/srjit.h"

namespace srjit::c_api {

struct Free {
  void operator()(srjit_engine* p) const { srjit_engine_free(p); }
  void operator()(srjit_dataset* p) const { srjit_dataset_free(p); }
  void operator()(srjit_tokens* p) const { srjit_tokens_free(p); }
  void operator()(srjit_program* p) const { srjit_program_free(p); }
  void operator()(srjit_pending* p) const { srjit_pending_free(p); }
  void operator()(srjit_device_loss* p) const { srjit_device_loss_free(p); }
  void operator()(srjit_failures* p) const { srjit_failures_free(p); }
  void operator()(srjit_stop* p) const { srjit_stop_free(p); }
  void operator()(srjit_found* p) const { srjit_found_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

/// A struct of srjit.h with its size.
template <class T>
T sized() {
  T value{};
  value.size = sizeof value;
  return value;
}

}  // namespace srjit::c_api
