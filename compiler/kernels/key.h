// Keys of kernel images: a digest of everything that decides the code.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <llvm/Support/BLAKE3.h>

#include "compiler/interpreter/handler_table.h"
#include "compiler/nvptx/options.h"
#include "passes/dag.h"

namespace srjit {

struct HostTarget;

/// A BLAKE3 hash (J. O'Connor, J.-P. Aumasson, S. Neves, Z. Wilcox-O'Hearn, "BLAKE3", 2020).
using Digest = std::array<std::uint8_t, 32>;

/// Digests a sequence of values. Each counts with its length and place, so that no two sequences feed the same bytes,
/// as long as the kinds of values come in an order that the values before them decide. Not thread-safe.
class DigestBuilder {
 public:
  DigestBuilder& add(std::uint64_t number);
  DigestBuilder& add(std::span<const std::byte> bytes);
  DigestBuilder& add(std::string_view text) { return add(std::as_bytes(std::span(text))); }
  Digest finish() { return hasher_.final(); }

 private:
  llvm::BLAKE3 hasher_;
};

/// The name of an image: the digest of structures, options and ImageMaker::identity(), never of constants' values.
struct KernelKey {
  Digest digest{};
  std::string title;  ///< for people: "rows f32 fast sm_90, 64 expressions"; not compared

  friend bool operator==(const KernelKey& a, const KernelKey& b) { return a.digest == b.digest; }
};

// The keys of the images that ImageMaker makes from the same arguments; `identity` is its identity(). Literals count
// where they stand in a graph, and do not once they are hoisted; nor does which expression a parameter belongs to.
// Operators count by their names: a new row of ir/ops.def changes no key with the same `identity`, unless the new
// operator is in the graph or in the table.
KernelKey keyOfRows(std::span<const Dag> dags, const DeviceOptions& options, std::string_view identity);
KernelKey keyOfInterpreter(const HandlerTable& table, const DeviceOptions& options, std::string_view identity);
/// Of the options, only precision and arch count.
KernelKey keyOfTotals(const DeviceOptions& options, std::string_view identity);
/// Of the options, only arch and machine count; besides, the bitcode that clang made of the sources.
KernelKey keyOfLanes(const DeviceOptions& options, std::string_view identity);

/// The key of an object of a HostJit for this target (compiler/host/jit.h); `identity` is buildIdentity().
KernelKey keyOfHostObject(const std::string& title, const HostTarget& target, std::string_view identity);

}  // namespace srjit
