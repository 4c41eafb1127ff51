// Changes inputs of graph_input.h by whole tokens. Linked with the targets that read them.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/numbers/random.h"
#include "tests/fuzz/harness/graph_input.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using srjit::Random;
using srjit::fuzz::GraphInput;
constexpr std::size_t kHead = GraphInput::kHead, kRecord = GraphInput::kRecord;
using Bytes = std::vector<std::uint8_t>;

std::size_t recordsOf(const Bytes& bytes) { return (bytes.size() - kHead) / kRecord; }
Bytes::iterator at(Bytes& bytes, std::size_t record) {
  return bytes.begin() + static_cast<std::ptrdiff_t>(kHead + record * kRecord);
}

/// A token of a kind that is below `end`, and not below `begin`.
std::array<std::uint8_t, kRecord> anyRecord(Random& random, std::uint8_t begin, std::uint8_t end) {
  return {static_cast<std::uint8_t>(begin + random.below(end - begin)), static_cast<std::uint8_t>(random.next()),
          static_cast<std::uint8_t>(random.next()), 0};
}

/// Some adjacent records, which are often a subtree.
struct Range {
  std::size_t first, count;
};
Range anyRange(Random& random, std::size_t records) {
  const std::size_t first = random.below(records), most = std::min<std::size_t>(records - first, 8);
  return {first, 1 + random.below(most)};
}

void insert(Bytes& bytes, std::size_t place, std::span<const std::uint8_t> records) {
  bytes.insert(at(bytes, place), records.begin(), records.end());
}

void change(Bytes& bytes, Random& random) {
  const std::size_t records = recordsOf(bytes), place = random.below(records + 1);
  const std::uint64_t what = records == 0 ? 0 : random.below(8);
  if (what <= 1) {
    // A leaf and an operator over it and what stands before.
    insert(bytes, place, anyRecord(random, GraphInput::kConstant, GraphInput::kOperator));
    if (what == 1) insert(bytes, place, anyRecord(random, 0, GraphInput::kConstant));
  } else if (what == 2) {
    const Range range = anyRange(random, records);
    bytes.erase(at(bytes, range.first), at(bytes, range.first + range.count));
  } else if (what == 3) {
    const Range range = anyRange(random, records);
    const Bytes copy(at(bytes, range.first), at(bytes, range.first + range.count));
    insert(bytes, place, copy);
  } else if (what == 4) {
    const auto one = at(bytes, random.below(records)), other = at(bytes, random.below(records));
    if (one != other) std::swap_ranges(one, one + kRecord, other);
  } else if (what == 5) {
    // The same kind, another operator, column or number.
    at(bytes, random.below(records))[1 + static_cast<std::ptrdiff_t>(random.below(2))] =
        static_cast<std::uint8_t>(random.next());
  } else if (what == 6) {
    bytes[random.below(kHead)] = static_cast<std::uint8_t>(random.next());
  } else {
    insert(bytes, place, anyRecord(random, GraphInput::kOperator, GraphInput::kEnd));
  }
}

std::size_t give(const Bytes& bytes, std::uint8_t* to, std::size_t max_size) {
  const std::size_t size = std::min(bytes.size(), max_size);
  std::copy_n(bytes.begin(), size, to);
  return size;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  Random random(seed);
  if (random.below(5) == 0) return LLVMFuzzerMutate(data, size, max_size);
  Bytes bytes(data, data + size);
  if (bytes.size() < kHead) bytes.resize(kHead);
  for (std::size_t changes = 1 + random.below(4); changes > 0; --changes) change(bytes, random);
  return give(bytes, data, max_size);
}

/// The head of the first, and records of both.
extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* data1, std::size_t size1,
                                                 const std::uint8_t* data2, std::size_t size2, std::uint8_t* out,
                                                 std::size_t max_size, unsigned seed) {
  Random random(seed);
  Bytes first(data1, data1 + size1), second(data2, data2 + size2);
  if (first.size() < kHead) first.resize(kHead);
  if (second.size() < kHead + kRecord) return give(first, out, max_size);
  const Range range = anyRange(random, recordsOf(second));
  const Bytes records(at(second, range.first), at(second, range.first + range.count));
  insert(first, random.below(recordsOf(first) + 1), records);
  return give(first, out, max_size);
}
