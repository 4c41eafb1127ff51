#include "tests/gpu_model/direct_code.h"

#include <algorithm>
#include <cstring>

#include "compiler/direct/emitter.h"
#include "compiler/sass/cubin.h"
#include "compiler/target/architecture.h"
#include "tests/gpu_model/memory.h"
#include "tests/gpu_model/sass_machine.h"

namespace srjit {
namespace {

/// The memory of a launch, for the machine.
class LaunchMemory final : public SassMemory {
 public:
  explicit LaunchMemory(ModelMemory& memory) : memory_(memory) {}

 private:
  std::byte* find(std::uint64_t address) const override {
    return reinterpret_cast<std::byte*>(elementsAt<std::uint32_t>(memory_, address, 1).data());
  }
  ModelMemory& memory_;
};

class DirectModel final : public KernelModel {
 public:
  DirectModel(const CubinKernel& kernel, std::vector<sass::Instruction> code, unsigned architecture)
      : KernelModel({kernel.name, kernel.registers, 0, 0, 0}), code_(std::move(code)), architecture_(architecture) {}

  std::vector<std::size_t> parameterBytes() const override { return {sizeof(DirectArguments)}; }

  void run(const ModelLaunch& launch, ModelMemory& memory) const override {
    const DirectGrid grid{launch.grid[0], launch.block[0] / kWarpLanes};
    requireOfModel(
        launch.block == std::array<unsigned, 3>{kWarpLanes * grid.warps, 1, 1} && grid.warps <= kDirectMostWarps,
        "blocks are whole warps in a row");
    requireOfModel(launch.grid[2] == 1 && launch.shared_bytes == 0, "a flat grid, and no shared memory");
    DirectArguments arguments;
    std::memcpy(static_cast<void*>(&arguments), launch.arguments.data(), sizeof arguments);
    requireOfModel(arguments.rows >= 1 && arguments.rows <= directMaxRows(Precision::kF32),
                   "a number of rows in range");
    requireOfModel(arguments.warps == grid.warps && arguments.row_jump == directRowJump(grid),
                   "the jump fits the grid");
    requireOfModel(grid.row_blocks <= ceilDivide(arguments.rows, grid.warps * kGroupRows),
                   "no more parts than blocks of rows");
    for (const std::uint64_t table : {arguments.numbers, arguments.outputs, arguments.groups}) {
      requireOfModel(table % 16 == 0, "tables are aligned to 16 bytes");
    }
    const std::uint32_t first = architectureOf(architecture_).parameters;
    std::vector<std::byte> bank(first + sizeof arguments);
    std::memcpy(bank.data() + first, &arguments, sizeof arguments);
    LaunchMemory seen(memory);
    SassMachine machine(code_, bank, seen, facts().registers - sass::kHiddenRegisters, architecture_);
    for (unsigned y = 0; y < launch.grid[1]; ++y) {
      for (unsigned x = 0; x < grid.row_blocks; ++x) {
        for (unsigned warp = 0; warp < grid.warps; ++warp) machine.runWarp(warp, x, y);
      }
    }
  }

 private:
  std::vector<sass::Instruction> code_;
  unsigned architecture_;
};

template <class T>
T fieldAt(const std::byte* bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof value);
  return value;
}

/// The size of a 64-bit ELF file: up to the end of its section headers and of all sections.
std::size_t bytesOfElf(const std::byte* image) {
  constexpr std::size_t kHeadersAt = 0x28, kHeaderBytes = 0x3a, kHeaders = 0x3c;
  constexpr std::size_t kTypeAt = 0x04, kOffsetAt = 0x18, kSizeAt = 0x20;
  constexpr std::uint32_t kNoBits = 8;
  const auto at = fieldAt<std::uint64_t>(image, kHeadersAt);
  const std::size_t each = fieldAt<std::uint16_t>(image, kHeaderBytes), count = fieldAt<std::uint16_t>(image, kHeaders);
  std::size_t end = at + each * count;
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte* const section = image + at + i * each;
    if (fieldAt<std::uint32_t>(section, kTypeAt) == kNoBits) continue;
    end = std::max<std::size_t>(end,
                                fieldAt<std::uint64_t>(section, kOffsetAt) + fieldAt<std::uint64_t>(section, kSizeAt));
  }
  return end;
}

}  // namespace

std::optional<ModelImage> readDirectModel(const void* image, const AlterCode& alter) {
  const auto* const bytes = static_cast<const std::byte*>(image);
  if (std::strncmp(static_cast<const char*>(image),
                   "\x7f"
                   "ELF",
                   4) != 0)
    return std::nullopt;
  const Result<CubinContents> contents = readCubin({bytes, bytesOfElf(bytes)});
  if (!contents) return std::nullopt;
  ModelImage model{.is_ptx = false, .arch = "sm_" + std::to_string(contents->architecture), .kernels = {}};
  for (const CubinKernel& kernel : contents->kernels) {
    if (kernel.parameter_bytes != std::vector<std::uint16_t>{sizeof(DirectArguments)}) return std::nullopt;
    std::vector<sass::Instruction> code;
    for (const sass::Word& word : kernel.body()) {
      const auto instruction = sass::decode(word, contents->architecture);
      if (!instruction) return std::nullopt;
      code.push_back(*instruction);
    }
    if (alter) alter(code, contents->architecture);
    model.kernels.push_back(std::make_unique<DirectModel>(kernel, std::move(code), contents->architecture));
  }
  return model;
}

}  // namespace srjit
