#include "compiler/direct_code.h"

namespace srjit::direct {

void Code::clear() {
  records_.clear();
  values_.clear();
  predicates_.clear();
  touched_.fill(kNone);
  reordered_ = kNone;
}

}  // namespace srjit::direct
