// Models of kernels (compiler/nvptx/kernels.h, compiler/interpreter/kernel.h): same memory layout
// and reduction trees, computed on the host by the rows of ops.def in the kernel's precision.
//
// An image of models is a text that fully describes its kernels, so it can be cached like a real image.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/interpreter/handler_table.h"
#include "compiler/kernels/assembler.h"
#include "compiler/kernels/image_maker.h"
#include "compiler/nvptx/options.h"
#include "ir/error.h"
#include "passes/dag.h"

namespace srjit {

/// A launch that violates a precondition of those headers, or an access outside of memory.
class ModelFault : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// The device's memory as a model sees it.
class ModelMemory {
 public:
  virtual ~ModelMemory() = default;
  /// The host address of `bytes` bytes that lie in one live allocation; throws ModelFault otherwise.
  virtual std::byte* range(std::uint64_t address, std::size_t bytes) = 0;
};

/// Buffers of the host at their own addresses.
class HostMemory final : public ModelMemory {
 public:
  template <class T>
  std::uint64_t add(std::vector<T>& values) {
    pieces_.push_back(std::as_writable_bytes(std::span(values)));
    return reinterpret_cast<std::uint64_t>(values.data());
  }
  std::byte* range(std::uint64_t address, std::size_t bytes) override {
    for (const std::span<std::byte> piece : pieces_) {
      const auto begin = reinterpret_cast<std::uint64_t>(piece.data());
      if (address >= begin && address + bytes <= begin + piece.size()) return piece.data() + (address - begin);
    }
    throw ModelFault("outside of all buffers");
  }

 private:
  std::vector<std::span<std::byte>> pieces_;
};

struct ModelLaunch {
  std::array<unsigned, 3> grid{}, block{};
  std::size_t shared_bytes = 0;
  std::vector<std::uint64_t> arguments;  ///< in the kernel's order; u32 ones are widened, larger ones have several
};

/// One kernel. Immutable.
class KernelModel {
 public:
  explicit KernelModel(KernelFacts facts) : facts_(std::move(facts)) {}
  virtual ~KernelModel() = default;

  const KernelFacts& facts() const noexcept { return facts_; }
  /// Sizes of the parameters in bytes, 4 or a multiple of 8.
  virtual std::vector<std::size_t> parameterBytes() const = 0;
  /// Throws ModelFault.
  virtual void run(const ModelLaunch& launch, ModelMemory& memory) const = 0;

 private:
  KernelFacts facts_;
};

/// A loaded image.
struct ModelImage {
  bool is_ptx = false;
  std::string arch;
  std::vector<std::unique_ptr<KernelModel>> kernels;
};

/// The text of an image. `facts` are those of each kernel; their names are set here.
std::string rowsModel(std::span<const Dag> dags, const DeviceOptions& options, bool is_ptx,
                      std::vector<KernelFacts> facts);
std::string interpreterModel(const HandlerTable& table, const DeviceOptions& options, bool is_ptx, KernelFacts facts);
std::string totalsModel(const DeviceOptions& options, bool is_ptx, KernelFacts facts);
std::string lanesModel(const DeviceOptions& options, bool is_ptx, std::span<const KernelFacts> facts);

/// Reads such a text, or one of PTX (ptx_machine.h), up to its end or a 0; nullopt for any other text.
std::optional<ModelImage> readModel(const char* text);

}  // namespace srjit
