// Encoding a population on the device (compiler/interpreter/front_end/arguments.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compiler/interpreter/front_end/arguments.h"
#include "compiler/interpreter/handler_table.h"
#include "compiler/kernels/parameter_table.h"
#include "runtime/code/interpreted/chunk_encoder.h"
#include "runtime/code/parts.h"
#include "runtime/cuda/handles.h"

namespace srjit {

/// Of one device, precision and math mode. Immutable; thread-safe, but that launches must be in one stream
/// (compiler/interpreter/front_end/arguments.h).
class FrontEnd {
 public:
  /// Copies the tables to the device, on `stream`. Needs a current context. Throws CudaFailure.
  FrontEnd(std::shared_ptr<const Module> module, const std::shared_ptr<const Stream>& stream, Precision precision,
           Math math, const HandlerTable& table);

  const Kernel& encodeKernel() const noexcept { return encode_; }
  const Kernel& linkKernel() const noexcept { return link_; }
  /// What depends on the tables and modes; the rest is not set.
  const EncodeArguments& arguments() const noexcept { return arguments_; }

 private:
  std::shared_ptr<const Module> module_;
  Kernel encode_, link_;
  DeviceBuffer tables_;
  EncodeArguments arguments_{};
};

/// Populations of fewer expressions are encoded on the host: copies and launches would take longer.
inline constexpr std::size_t kLeastEncodedOnDevice = 16'384;

/// Programs of the first expressions of a source, on the device. The host encodes long expressions, and those that the
/// interpreter cannot run. Not thread-safe. Members need a current context, work in parallel on the calling thread's
/// arena, and throw CudaFailure and std::bad_alloc. Their results are known after finish().
class DeviceEncoding {
 public:
  /// Copies the first `count` expressions, which are all or a multiple of Population::kBlock, to the device and has
  /// them encoded there, meanwhile: for at most `max_slots` slots, which are numbered from kFirstSlot on, as in
  /// programs that the host encodes.
  DeviceEncoding(KernelStore& store, const ProgramSource& source, std::size_t count,
                 std::shared_ptr<const FrontEnd> front_end, std::uint32_t max_slots);
  DeviceEncoding(const DeviceEncoding&) = delete;
  DeviceEncoding& operator=(const DeviceEncoding&) = delete;
  ~DeviceEncoding();

  /// Waits until they are encoded.
  void finish();

  /// What the device took, with the copies.
  double seconds() const { return done_.secondsSince(began_); }
  /// The expressions that are left to the host, ascending.
  const std::vector<std::uint32_t>& left() const noexcept { return left_; }
  std::size_t programs() const noexcept { return sizes_.size() - left_.size(); }
  std::size_t tokens() const noexcept { return tokens_; }  ///< of all programs
  std::uint32_t slots() const noexcept { return slots_; }  ///< the most of a program
  const EncodedFacts& facts() const noexcept { return facts_; }

  /// Where the tokens of each program begin among tokens(), in order of expression.
  void putOffsets(std::span<std::uint32_t> offsets) const;
  std::size_t parameters() const noexcept { return parameters_; }  ///< of all programs: entries of their table
  std::size_t patches() const noexcept { return patches_; }        ///< entries that are no literals
  /// Writes the programs to `tokens`, on the device, with these handlers and columns, and their parameters to the
  /// beginning of the table, which gets room for `more_entries` and `more_patches`.
  void link(std::span<const std::uint16_t> handlers, std::span<const std::uint32_t> staged_as,
            std::uint32_t staged_columns, CUdeviceptr tokens, ParameterTable& table, std::size_t more_entries,
            std::size_t more_patches);

 private:
  struct Part;

  /// Gives the number of tokens that are copied.
  std::size_t copyPopulation();
  void encode(std::size_t codes, std::uint32_t max_slots);
  void findPlaces();
  void writeParameters(std::span<const ParameterSource> sources, ParameterTable& table);

  const ProgramSource& source_;
  std::size_t count_;
  DeviceQueue& queue_;
  std::shared_ptr<const FrontEnd> front_end_;
  std::vector<Part> parts_;
  DeviceBuffer population_memory_, program_memory_;
  UploadedPopulation population_{};
  EncodedPrograms encoded_{};
  std::shared_ptr<PinnedBuffer> population_staging_, sizes_staging_;  ///< not used by the device after finish()
  Event began_, done_;
  bool in_flight_ = false;
  std::span<const EncodedSize> sizes_;
  std::span<const std::uint32_t> used_;  ///< flags by operator, then by variable
  std::vector<std::uint32_t> left_;
  std::shared_ptr<PinnedBuffer> places_staging_;
  std::span<ProgramPlace> places_;  ///< by expression
  std::size_t tokens_ = 0, parameters_ = 0, patches_ = 0;
  EncodedFacts facts_;
  std::uint32_t slots_ = 0;
};

}  // namespace srjit
