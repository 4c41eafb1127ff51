#include "compiler/direct_code.h"

namespace srjit::direct {

void Code::clear() {
  operations_.clear();
  uses_.clear();
  definitions_.clear();
  predicate_uses_.clear();
  predicate_definitions_.clear();
  predicates_ = kFirstPredicate;
}

ValueId Code::newValues(unsigned count) {
  const auto first = static_cast<ValueId>(kFirstValue + uses_.size());
  uses_.resize(uses_.size() + count, 0);
  definitions_.resize(uses_.size(), 0);
  return first;
}

void Code::count(const Operation& operation, std::uint32_t at) {
  const FormFacts& facts = factsOf(operation.form);
  for (std::size_t i = 0; i < operation.sources.size(); ++i) {
    const ValueId source = operation.sources[i];
    if (source < kFirstValue) continue;
    for (unsigned part = 0; part < facts.sources[i]; ++part) ++uses_[source - kFirstValue + part];
  }
  for (const PredicateId read : {operation.guard, operation.condition}) {
    if (read / 2 >= kFirstPredicate) ++predicate_uses_[read / 2 - kFirstPredicate];
  }
  if (operation.destination >= kFirstValue) {
    for (unsigned part = 0; part < facts.results; ++part) {
      definitions_[operation.destination - kFirstValue + part] = at;
    }
  }
  if (operation.predicate / 2 >= kFirstPredicate) {
    predicate_definitions_[operation.predicate / 2 - kFirstPredicate] = at;
  }
}

std::uint32_t Code::append(const Operation& operation) {
  const std::uint32_t at = size();
  operations_.push_back(operation);
  predicate_uses_.resize(predicates_ - kFirstPredicate, 0);
  predicate_definitions_.resize(predicate_uses_.size(), 0);
  count(operation, at);
  return at;
}

void Code::place(std::uint32_t at, const Operation& operation) {
  operations_[at] = operation;
  count(operation, at);
}

ValueId Code::value(Operation operation, unsigned width) {
  operation.destination = newValues(width);
  append(operation);
  return operation.destination;
}

PredicateId Code::truth(Operation operation) {
  operation.predicate = newPredicate();
  append(operation);
  return operation.predicate;
}

}  // namespace srjit::direct
