// The values that code reads besides the data: literals, and the caller's parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ir/numeric.h"
#include "passes/dag.h"
#include "passes/tree.h"

namespace srjit {

/// Memory whose values resize() leaves as they are: several threads write them, and the first write of a page takes
/// long.
template <class T>
struct Uninitialized : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = Uninitialized<U>;
  };
  template <class U>
  void construct(U* place) noexcept {
    ::new (static_cast<void*>(place)) U;
  }
  template <class U, class... Values>
  void construct(U* place, Values&&... values) {
    std::construct_at(place, std::forward<Values>(values)...);
  }
};

/// A list of entries, each a literal or one of the caller's parameters. Immutable once filled in; then thread-safe.
class ParameterTable {
 public:
  std::size_t size() const noexcept { return literals_.size(); }
  std::size_t bytes(Precision precision) const noexcept {
    return size() * static_cast<std::size_t>(bytesOf(precision));
  }

  std::size_t patches() const noexcept { return patches_.size(); }  ///< entries that are parameters

  std::size_t heldBytes() const noexcept {  ///< memory
    return literals_.capacity() * sizeof(double) + patches_.capacity() * sizeof(Patch);
  }

  void clear() noexcept {
    literals_.clear();
    patches_.clear();
  }
  /// The entries first to last - 1 of `other`, whose parameters are `moved` further on here, behind those that are
  /// here.
  void append(const ParameterTable& other, std::size_t first, std::size_t last, std::size_t moved);
  /// Makes room for this number of entries and patches, which several threads then put() there: until then new entries
  /// are not set.
  void resize(std::size_t entries, std::size_t patches) {
    literals_.resize(entries);
    patches_.resize(patches);
  }
  /// The entries of `other` become those from `entry` on; of its parameters, the first is the patch `patch`.
  void put(std::size_t entry, std::size_t patch, const ParameterTable& other);
  void addLiteral(double value) { literals_.push_back(value); }
  /// An entry of Dag::parameters(); the caller's parameters of its expression begin at `parameter_offset`.
  void add(const ParameterSource& source, std::size_t parameter_offset);
  /// These constants and parameters of a tree; the caller's parameters of its expression begin at `parameter_offset`.
  void add(const Tree& tree, std::span<const NodeId> leaves, std::size_t parameter_offset);
  /// All entries of `other`, in order, behind those that are here.
  void append(const ParameterTable& other);

  /// Writes all entries to `table`, rounded to the precision; parameters count as 0 until fill(). Both work in parallel
  /// on the thread's arena if they have many to write, isolated: the thread runs no tasks of other work meanwhile.
  void writeLiterals(Precision precision, std::byte* table) const;
  /// Writes the caller's parameters into a table that has the literals.
  void fill(std::span<const double> parameters, Precision precision, std::byte* table) const;

 private:
  struct Patch {
    std::uint32_t entry;
    std::uint32_t parameter;
  };
  void addParameter(std::size_t parameter) {
    patches_.push_back({static_cast<std::uint32_t>(literals_.size()), static_cast<std::uint32_t>(parameter)});
    literals_.push_back(0);
  }
  std::vector<double, Uninitialized<double>> literals_;
  std::vector<Patch, Uninitialized<Patch>> patches_;
};

}  // namespace srjit
