#include "compiler/direct/loss.h"

#include <cstddef>
#include <limits>

#include "compiler/direct/emitter.h"
#include "compiler/direct/registers.h"
#include "ir/numbers/rounding.h"

namespace srjit::direct {
namespace {

using sass::Compare;

constexpr unsigned kCountBits = 8;  // hold kGroupRows
constexpr unsigned kCountsOfRegister = 32 / kCountBits;
constexpr std::uint32_t kLaneMask = 31, kStepBit = 32;

// Whether a bit of the lane's number is set. Only the lowest two bits have reserved predicates, since each level has
// half as many exchanges as the one before.
PredicateId laneBit(Code& code, unsigned level) {
  if (level == 0) return fixed::kBit0;
  if (level == 1) return fixed::kBit1;
  return compareWith(code, Compare::kNotEqual, andWith(code, fixed::kRow, 1U << level), 0);
}

ValueId select(Code& code, PredicateId condition, ValueId x, ValueId y, unsigned width) {
  return code.value(
      {.opcode = width == 2 ? Opcode::kSelPair : Opcode::kSelRR, .condition = condition, .sources = {x, y, kRz}},
      width);
}

Opcode additionOf(unsigned width) { return width == 2 ? Opcode::kDAddRR : Opcode::kFAddRR; }
ValueId addNumbers(Code& code, ValueId x, ValueId y, unsigned width) {
  return code.value({.opcode = additionOf(width), .sources = {x, y, kRz}}, width);
}

/// Whether the rows exist and have finite predictions.
PredicateId areFinite(Builder& builder, const Value& prediction) {
  const Value infinity(std::numeric_limits<double>::infinity());
  return builder.compare(Compare::kLess, prediction.magnitude(), infinity, fixed::kExists).predicate;
}

}  // namespace

ValueId andWith(Code& code, ValueId x, std::uint32_t mask) {
  return code.value({.opcode = Opcode::kLop3RIR, .modifier = kLutAnd, .sources = {x, kRz, kRz}, .immediate = mask});
}

PredicateId compareWith(Code& code, Compare how, ValueId x, std::uint32_t number) {
  return code.truth(
      {.opcode = Opcode::kISetPURI, .modifier = sass::modifierOf(how), .sources = {x, kRz, kRz}, .immediate = number});
}

ValueId addressOf(Code& code, ValueId base, ValueId x, ValueId y) {
  return code.value({.opcode = Opcode::kImadWideURRR, .sources = {x, y, base}}, 2);
}

ValueId addressTimes(Code& code, ValueId base, ValueId x, std::uint32_t y) {
  return code.value({.opcode = Opcode::kImadWideURIR, .sources = {x, kRz, base}, .immediate = y}, 2);
}

ValueId loadAt(Code& code, ValueId address, unsigned width) {
  return code.value({.opcode = width == 2 ? Opcode::kLdg64 : Opcode::kLdg, .sources = {address, kRz, kRz}}, width);
}

void moveTo(Code& code, ValueId fixed, ValueId x, unsigned width, PredicateId guard) {
  code.append({.opcode = width == 2 ? Opcode::kMovPair : Opcode::kMovR,
               .guard = guard,
               .destination = fixed,
               .sources = {x, kRz, kRz}});
}

void Butterfly::begin(Opcode add, unsigned first_level) {
  add_ = add;
  first_level_ = first_level;
  waiting_.fill(kRz);
}

ValueId Butterfly::receive(Code& code, unsigned level, ValueId x) const {
  const Opcode opcode = width() == 2 ? Opcode::kShflPair : Opcode::kShflBfly;
  return code.value({.opcode = opcode, .sources = {x, kRz, kRz}, .immediate = 1U << level}, width());
}

ValueId Butterfly::exchange(Code& code, unsigned level, ValueId even, ValueId odd) const {
  const PredicateId bit = laneBit(code, level);
  const ValueId sent = select(code, bit, even, odd, width());
  const ValueId kept = select(code, bit, odd, even, width());
  const ValueId received = receive(code, level, sent);
  return add(code, kept, received);
}

void Butterfly::push(Code& code, ValueId item) {
  unsigned level = first_level_;
  for (; waiting_[level] != kRz; ++level) {
    item = exchange(code, level, waiting_[level], item);
    waiting_[level] = kRz;
  }
  waiting_[level] = item;
}

ValueId Butterfly::finish(Code& code) {
  ValueId sum = kRz;
  for (unsigned level = first_level_; level < kLevels; ++level) {
    if (sum == kRz && waiting_[level] == kRz) continue;
    if (sum != kRz && waiting_[level] != kRz) {
      sum = exchange(code, level, waiting_[level], sum);
    } else {
      sum = addNeighbour(code, level, sum == kRz ? waiting_[level] : sum);
    }
  }
  if (waiting_[kLevels] != kRz) sum = waiting_[kLevels];
  for (unsigned level = 0; level < first_level_; ++level) sum = addNeighbour(code, level, sum);
  return sum;
}

void LossSelector::loadArguments(Code& code) {
  targets_ = arguments_.loadPair(code, offsetof(DirectArguments, target));
  if (spec_.weighted) all_weights_ = arguments_.loadPair(code, offsetof(DirectArguments, weights));
  if (isOfMoments(spec_.term)) {
    constexpr std::size_t kCentre = offsetof(DirectArguments, kept_weights);
    centre_ = width_ == 2 ? arguments_.loadPair(code, kCentre) : arguments_.load(code, kCentre);
  }
  items_ = 0;
  terms_.begin(additionOf(width_), 0);
  weights_.begin(additionOf(width_), 0);
}

void LossSelector::loadRow(Builder& builder, ValueId row) {
  Code& code = builder.code();
  target_ = loadAt(code, addressTimes(code, targets_, row, 4 * width_), width_);
  if (spec_.weighted) weight_ = loadAt(code, addressTimes(code, all_weights_, row, 4 * width_), width_);
  if (isOfMoments(spec_.term)) target_ = (Value(target_, builder) - Value(centre_, builder)).id();
}

void LossSelector::add(Builder& builder, const Value& prediction) {
  Code& code = builder.code();
  PredicateId counts = fixed::kExists;
  if (isOfMoments(spec_.term)) {
    if (spec_.skip_invalid) counts = areFinite(builder, prediction);
    return addMoments(builder, prediction, counts);
  }
  Value term = lossTerm(spec_.term, prediction, Value(target_, builder));
  const Value weight(weight_, builder);
  if (spec_.weighted) term = builder.multiply(weight, term);
  if (spec_.skip_invalid) {
    counts = areFinite(builder, prediction);
    const ValueId counter = kept_.counts + items_ / kCountsOfRegister;
    code.append({.opcode = Opcode::kIAdd3RIR,
                 .guard = counts,
                 .destination = counter,
                 .sources = {counter, kRz, kRz},
                 .immediate = 1U << (kCountBits * (items_ % kCountsOfRegister))});
  }
  const Value nothing(kRz, builder);
  terms_.push(code, builder.choose(counts, term, nothing).id());
  if (weighsRows(spec_)) weights_.push(code, builder.choose(counts, weight, nothing).id());
  ++items_;
}

// In the order of LossSpec's channels.
void LossSelector::addMoments(Builder& builder, const Value& prediction, PredicateId counts) {
  const Value target(target_, builder), weight(weight_, builder), nothing(kRz, builder);
  const auto push = [&](const Value& item) {
    terms_.push(builder.code(), builder.choose(counts, item, nothing).id());
    ++items_;
  };
  const auto pushTerm = [&](const Value& term) { push(spec_.weighted ? builder.multiply(weight, term) : term); };
  eachLossTerm(spec_.term, prediction, target, pushTerm);
  if (spec_.targetSums() > 0) eachTargetTerm(target, pushTerm);
  if (spec_.skip_invalid) push(1.0);
  if (spec_.counts() == 2) push(weight);
}

// The sum of the steps of a row group as (0 + 1) + (2 + 3); the result of the last step is that sum.
ValueId LossSelector::addSteps(Code& code, ValueId sum, ValueId previous, ValueId first_half) const {
  const ValueId step = andWith(code, fixed::kRow, kStepMask);
  const PredicateId second = compareWith(code, Compare::kEqual, step, kStepBit);
  const PredicateId odd = compareWith(code, Compare::kNotEqual, andWith(code, fixed::kRow, kStepBit), 0);
  const ValueId pair = addNumbers(code, previous, sum, width_);
  const ValueId latest = select(code, odd, pair, sum, width_);
  const ValueId total = addNumbers(code, first_half, latest, width_);
  moveTo(code, previous, latest, width_);
  moveTo(code, first_half, latest, width_, second);
  return total;
}

// The count of the lane's root as a floating-point number. Each register holds the counts of four roots.
ValueId LossSelector::countOf(Code& code) const {
  Butterfly counts;
  counts.begin(Opcode::kIAdd3RRR, 2);
  const auto registers = static_cast<unsigned>(ceilDivide(items_, kCountsOfRegister));
  for (unsigned i = 0; i < registers; ++i) counts.push(code, kept_.counts + i);
  ValueId x = counts.finish(code);
  for (unsigned i = 0; i < registers; ++i) moveTo(code, kept_.counts + i, kRz);
  for (const unsigned bit : {0U, 1U}) {
    const ValueId shifted =
        code.value({.opcode = Opcode::kShrRI, .sources = {x, kRz, kRz}, .immediate = kCountBits << bit});
    x = select(code, laneBit(code, bit), shifted, x, 1);
  }
  // The lowest bits of 2^23 + n are n; in f64, those of 2^52 + n.
  constexpr std::uint32_t kBitsOf2To23 = 0x4b000000, kBitsOfItsOpposite = 0xcb000000;
  constexpr std::uint32_t kUpperOf2To52 = 0x43300000, kUpperOfItsOpposite = 0xc3300000;
  const ValueId count = andWith(code, x, (1U << kCountBits) - 1);
  if (width_ == 2) {
    const ValueId raised =
        code.value({.opcode = Opcode::kMovUpperI, .sources = {count, kRz, kRz}, .immediate = kUpperOf2To52}, 2);
    return code.value({.opcode = Opcode::kDAddRI, .sources = {raised, kRz, kRz}, .immediate = kUpperOfItsOpposite}, 2);
  }
  const ValueId raised = code.value(
      {.opcode = Opcode::kLop3RIR, .modifier = kLutOr, .sources = {count, kRz, kRz}, .immediate = kBitsOf2To23});
  return code.value({.opcode = Opcode::kFAddRI, .sources = {raised, kRz, kRz}, .immediate = kBitsOfItsOpposite});
}

void LossSelector::store(Code& code, ValueId sum, std::size_t pointer, PredicateId writes) const {
  const ValueId row_group = code.value({.opcode = Opcode::kShrRI, .sources = {fixed::kRow, kRz, kRz}, .immediate = 7});
  const ValueId of_row_group = addressTimes(code, arguments_.loadPair(code, pointer), row_group, 4 * width_);
  const ValueId stride = arguments_.load(code, offsetof(DirectArguments, output_stride));
  const ValueId address = addressOf(code, of_row_group, fixed::kOutput, stride);
  code.append({.opcode = width_ == 2 ? Opcode::kStg64 : Opcode::kStg, .guard = writes, .sources = {address, sum, kRz}});
}

void LossSelector::emitTail(Code& code) {
  static_assert(kGroupRows == 128, "a row group is four steps");
  const bool weighs_rows = weighsRows(spec_);
  const ValueId total = addSteps(code, terms_.finish(code), kept_.previous, kept_.first_half);
  ValueId kept_weights = kRz;
  if (weighs_rows) {
    kept_weights = addSteps(code, weights_.finish(code), kept_.previous_weight, kept_.first_half_weight);
  }
  const PredicateId is_last = compareWith(code, Compare::kEqual, andWith(code, fixed::kRow, kStepMask), kLastStep);
  const std::uint32_t skip = code.append({.opcode = Opcode::kBra, .guard = opposite(is_last), .synchronized = true});
  const PredicateId writes = compareWith(code, Compare::kLess, andWith(code, fixed::kRow, kLaneMask), items_);
  store(code, total, offsetof(DirectArguments, results), writes);
  if (countsRows(spec_)) store(code, countOf(code), offsetof(DirectArguments, counts), writes);
  if (weighs_rows) store(code, kept_weights, offsetof(DirectArguments, kept_weights), writes);
  code.operation(skip).immediate = code.size();
}

}  // namespace srjit::direct
