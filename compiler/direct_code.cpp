#include "compiler/direct_code.h"

namespace srjit::direct {

void Code::clear() {
  is_too_long_ = false;
  records_.clear();
  values_.assign(kFirstValue, {});
  predicates_.clear();
  touched_.fill(kNone);
  reordered_ = kNone;
}

// What operands are is hard to predict, so machine registers are counted as values are; nobody waits for those.
void Code::connect(std::uint32_t at) {
  const Operation& operation = records_[at].operation;
  for (std::uint32_t i = 0; i < operation.sources.size(); ++i) {
    Uses& uses = values_[operation.sources[i]];
    ++uses.count;
    waitFor(uses.definition, at, i);
  }
  std::uint32_t place = 3;
  for (const PredicateId read : {operation.guard, operation.condition}) {
    if (read < 2 * kFirstPredicate) continue;
    Uses& uses = predicates_[read / 2 - kFirstPredicate];
    ++uses.count;
    waitFor(uses.definition, at, place++);
  }
  if (operation.predicate >= 2 * kFirstPredicate)
    predicates_[operation.predicate / 2 - kFirstPredicate].definition = at;
  if (operation.destination >= kFirstValue) {
    Uses* const uses = &values_[operation.destination];
    uses[0].definition = at;
    if (factsOf(operation.form).results == 4) uses[1].definition = uses[2].definition = uses[3].definition = at;
  } else if (operation.destination != kRz) {
    // A machine register that is written among reordered operations is read by the same operation, and by no other.
    std::uint32_t& last = touched_[operation.destination];
    if (last != kNone) waitFor(last, at, place);
    last = at;
  }
}

void Code::waitFor(std::uint32_t writer, std::uint32_t at, std::uint32_t place) {
  const bool waits = writer >= reordered_;
  Record& record = records_[at];
  std::uint32_t nobody = kNone;
  std::uint32_t& users = *(waits ? &records_[writer].order.users : &nobody);
  record.links[place] = users;
  users = kPlaces * at + place;
  record.order.waits_for += waits ? 1 : 0;
}

}  // namespace srjit::direct
