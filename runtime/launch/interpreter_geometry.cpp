#include "runtime/launch/run.h"

#include <algorithm>
#include <bit>

#include "ir/numbers/rounding.h"

namespace srjit {
namespace {

// A program of more tokens than this is long: blocks that hold all of it would be few. Warps then have windows of so
// many tokens, or of as many as two parts of seven of a small device's shared memory hold.
constexpr std::size_t kLongProgram = 1024;
constexpr unsigned kWindow = 512;
// Blocks that each multiprocessor should hold at once.
constexpr std::size_t kResidentBlocks = 5;
// Blocks that each multiprocessor gets in all: many, so that none idles while another has its last ones; but fewer, if
// warps had too few programs then to be worth copying columns for (docs/history/experiments.md).
constexpr std::size_t kManyBlocks = 40, kFewBlocks = 10, kFewPrograms = 8, kMaxProgramsPerWarp = 64;

/// Instructions for one token and strip, roughly: dispatch and rows.
constexpr std::size_t dispatchCost(unsigned rows_per_thread) { return 11 + 2 * rows_per_thread; }

class GeometryChooser {
 public:
  GeometryChooser(const InterpreterCode& code, const InterpreterSection& section, std::size_t rows, Precision precision,
                  const DeviceLimits& limits)
      : code_(code),
        section_(section),
        rows_(rows),
        precision_(precision),
        limits_(limits),
        share_(limits.shared_bytes_per_multiprocessor / kResidentBlocks) {}

  InterpreterGeometry choose() {
    chooseRows();
    choosePrograms();
    fitIntoBlock();
    return geometry_;
  }

 private:
  std::size_t strips(unsigned rows_per_thread) const {
    return ceilDivide(rows_, std::size_t{kWarpLanes} * rows_per_thread);
  }
  std::size_t columnBytes() const {
    return interpreterSharedBytes(precision_, geometry_, section_.staged_columns, section_.slots, 0);
  }
  std::size_t bytes() const {
    const std::size_t teams = kBlockWarps / geometry_.row_warps;
    return interpreterSharedBytes(precision_, geometry_, section_.staged_columns, section_.slots,
                                  code_.mostTokens(section_, std::size_t{geometry_.programs_per_warp} * teams));
  }

  void useRowsPerThread(unsigned rows_per_thread) {
    geometry_.rows_per_thread = rows_per_thread;
    geometry_.row_warps = std::bit_ceil(toUnsigned(std::min<std::size_t>(strips(rows_per_thread), kBlockWarps)));
    while (geometry_.row_warps > 1 && columnBytes() > share_) geometry_.row_warps /= 2;
  }

  void chooseRows() {
    const auto cost = [&](unsigned rows_per_thread) { return strips(rows_per_thread) * dispatchCost(rows_per_thread); };
    geometry_.programs_per_warp = 1;
    useRowsPerThread(cost(8) <= cost(4) ? 8 : 4);
    if (geometry_.rows_per_thread == 8 && (columnBytes() > share_ || runsAlone())) useRowsPerThread(4);
  }

  // Whether each warp of a block has programs of its own, although there are rows for several. Warps with the same
  // program share the instructions that are fetched; the code of handlers of eight rows is too long for many at
  // once.
  bool runsAlone() const { return geometry_.row_warps == 1 && strips(geometry_.rows_per_thread) > 1; }

  void choosePrograms() {
    const std::size_t tiles = ceilDivide(strips(geometry_.rows_per_thread), geometry_.row_warps);
    const std::size_t teams = kBlockWarps / geometry_.row_warps;
    const auto programsFor = [&](std::size_t blocks) {
      return section_.programs * tiles / (teams * blocks * limits_.multiprocessors);
    };
    const std::size_t programs = std::max(programsFor(kManyBlocks), std::min(programsFor(kFewBlocks), kFewPrograms));
    geometry_.programs_per_warp = toUnsigned(std::clamp<std::size_t>(programs, 1, kMaxProgramsPerWarp));
    if (code_.mostTokens(section_, 1) > kLongProgram) geometry_.window = windowTokens();
    while (geometry_.window == 0 && geometry_.programs_per_warp > 1 &&
           bytes() > std::max(share_, columnBytes() + share_ / 4)) {
      geometry_.programs_per_warp = (geometry_.programs_per_warp + 1) / 2;
    }
  }

  unsigned windowTokens() const {
    const std::size_t part = limits_.shared_bytes_per_block / 7 * 2;
    return std::min(kWindow, toUnsigned(part / (std::size_t{kBlockWarps} * sharedTokenBytes(precision_)) - 2));
  }

  // Encoded programs fit with one team or with four.
  void fitIntoBlock() {
    for (const unsigned row_warps : {kBlockWarps, 1u}) {
      if (bytes() <= limits_.shared_bytes_per_block) return;
      geometry_ = {.rows_per_thread = 4, .row_warps = row_warps, .programs_per_warp = 1, .window = windowTokens()};
    }
  }

  const InterpreterCode& code_;
  const InterpreterSection& section_;
  std::size_t rows_;
  Precision precision_;
  const DeviceLimits& limits_;
  std::size_t share_;  ///< of a multiprocessor's shared memory, for one block
  InterpreterGeometry geometry_{};
};

}  // namespace

InterpreterGeometry chooseGeometry(const InterpreterCode& code, const InterpreterSection& section, std::size_t rows,
                                   Precision precision, const DeviceLimits& limits) {
  return GeometryChooser(code, section, rows, precision, limits).choose();
}

}  // namespace srjit
