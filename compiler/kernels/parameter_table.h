// The values that code reads besides the data: literals, and the caller's parameters.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/numeric.h"
#include "passes/dag.h"

namespace srjit {

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
  /// Makes room for tables of so many entries in all, which several threads then put() there.
  void resize(std::size_t entries, std::size_t patches) {
    literals_.resize(entries);
    patches_.resize(patches);
  }
  /// The entries of `other` become those from `entry` on; of its parameters, the first is the patch `patch`.
  void put(std::size_t entry, std::size_t patch, const ParameterTable& other);
  void addLiteral(double value) { literals_.push_back(value); }
  /// An entry of Dag::parameters(); the caller's parameters of its expression begin at `parameter_offset`.
  void add(const ParameterSource& source, std::size_t parameter_offset);
  /// All entries of `other`, in order, behind those that are here.
  void append(const ParameterTable& other);

  /// Writes all entries to `table`, rounded to the precision; parameters count as 0 until fill().
  void writeLiterals(Precision precision, std::byte* table) const;
  /// Writes the caller's parameters into a table that has the literals; in parallel on the thread's arena if there are
  /// many.
  void fill(std::span<const double> parameters, Precision precision, std::byte* table) const;

 private:
  struct Patch {
    std::uint32_t entry;
    std::uint32_t parameter;
  };
  std::vector<double> literals_;
  std::vector<Patch> patches_;
};

}  // namespace srjit
