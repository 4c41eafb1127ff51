#include "compiler/kernels/key.h"

#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "compiler/host/jit.h"
#include "compiler/interpreter/kernel.h"

namespace srjit {
namespace {

template <class Enum>
std::uint64_t numberOf(Enum value) {
  return static_cast<std::uint64_t>(value);
}

// The structured bindings below name every member, so that one that is added cannot be forgotten here.

void addOptions(DigestBuilder& digest, const DeviceOptions& options) {
  const auto& [precision, math, arch, machine, rows_per_thread, min_blocks, loss, strided_columns] = options;
  digest.add(numberOf(precision))
      .add(numberOf(math))
      .add(arch)
      .add(machine)
      .add(rows_per_thread)
      .add(min_blocks)
      .add(strided_columns);
  digest.add(loss.has_value());
  if (!loss) return;
  const auto& [term, weighted, skip_invalid] = *loss;
  digest.add(numberOf(term)).add(weighted).add(skip_invalid);
}

void addTable(DigestBuilder& digest, const HandlerTable& table) {
  const auto& [precision, math, ops, rows_per_thread, depth] = table.spec();
  digest.add(numberOf(precision)).add(numberOf(math)).add(rows_per_thread).add(depth).add(ops.size());
  for (const Op op : ops) digest.add(nameHashOf(op));
  digest.add(table.handlers().size());
  for (const auto& [kind, height, argument, op, operands] : table.handlers()) {
    const bool has_operator = kind == Handler::Kind::kApply || kind == Handler::Kind::kBody;
    digest.add(numberOf(kind)).add(height).add(argument).add(has_operator ? nameHashOf(op) : 0).add(operands);
  }
}

std::string describe(const DeviceOptions& options) {
  std::string text = fmt::format("{} {} {}, {} rows per thread", nameOf(options.precision), nameOf(options.math),
                                 options.arch, options.rows_per_thread);
  if (options.strided_columns) text += ", strided columns";
  if (options.loss) {
    text += fmt::format(", {} loss", infoOf(options.loss->term).name);
    if (options.loss->weighted) text += " with weights";
    if (options.loss->skip_invalid) text += " of valid rows";
  }
  return text;
}

}  // namespace

DigestBuilder& DigestBuilder::add(std::uint64_t number) {
  std::array<std::uint8_t, sizeof number> bytes;
  std::memcpy(bytes.data(), &number, sizeof number);
  hasher_.update(bytes);
  return *this;
}

DigestBuilder& DigestBuilder::add(std::span<const std::byte> bytes) {
  add(std::uint64_t{bytes.size()});
  hasher_.update(llvm::ArrayRef(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
  return *this;
}

KernelKey keyOfRows(std::span<const Dag> dags, const DeviceOptions& options, std::string_view identity) {
  DigestBuilder digest;
  digest.add("rows").add(identity);
  addOptions(digest, options);
  digest.add(dags.size());
  std::vector<std::byte> structure;
  std::size_t expressions = 0;
  for (const Dag& dag : dags) {
    structure.clear();
    dag.appendStructure(structure);
    digest.add(structure);
    expressions += dag.roots().size();
  }
  return {digest.finish(),
          fmt::format("rows {}, {} expressions in {} kernels", describe(options), expressions, dags.size())};
}

KernelKey keyOfInterpreter(const HandlerTable& table, const DeviceOptions& options, std::string_view identity) {
  DigestBuilder digest;
  digest.add("interpreter").add(identity);
  addOptions(digest, options);
  addTable(digest, table);
  return {digest.finish(), fmt::format("interpreter {}, {} operators, depth {}", describe(options),
                                       table.spec().ops.size(), table.spec().depth)};
}

KernelKey keyOfTotals(const DeviceOptions& options, std::string_view identity) {
  DigestBuilder digest;
  digest.add("totals").add(identity).add(numberOf(options.precision)).add(options.arch).add(options.machine);
  return {digest.finish(), fmt::format("totals {} {}", nameOf(options.precision), options.arch)};
}

KernelKey keyOfLanes(const DeviceOptions& options, std::string_view identity) {
  DigestBuilder digest;
  digest.add("lanes").add(identity).add(options.arch).add(options.machine).add(lanesBitcode());
  return {digest.finish(), fmt::format("lanes {}", options.arch)};
}

KernelKey keyOfHostObject(const std::string& title, const HostTarget& target, std::string_view identity) {
  const auto& [cpu, features, vector_bytes, has_fma] = target;
  DigestBuilder digest;
  digest.add("host").add(identity).add(cpu).add(features).add(vector_bytes).add(has_fma).add(title);
  return {digest.finish(), fmt::format("{} {}", title, cpu)};
}

}  // namespace srjit
