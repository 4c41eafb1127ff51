// Copies predictions from where kernels write them to the caller's memory.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/gpu/queue.h"

namespace srjit {

/// Rows of all expressions, on the device.
struct PredictionChunk {
  CUdeviceptr address = 0;       ///< of the first expression
  std::size_t pitch = 0;         ///< bytes from one expression to the next
  std::size_t first_byte = 0;    ///< of the rows, in an expression's predictions in the caller's memory
  std::size_t bytes = 0;         ///< of the rows, for one expression
  const Event* ready = nullptr;  ///< recorded after the kernels that make it
};

/// The most bytes of one expression that a chunk may have.
inline constexpr std::size_t kMaxChunkBytesOfExpression = std::size_t{16} << 20;

/// Copies chunks out one after another: while kernels make a chunk, the one before it is copied to pinned memory piece
/// by piece, and of the pieces that have arrived one is spread into the caller's memory by the threads of the calling
/// thread's arena. If the caller's memory is pinned itself, or of the device, chunks go straight to it. Not
/// thread-safe; needs a current context. Throws CudaFailure; then copies may still be under way on queue.downloads.
class Download {
 public:
  explicit Download(DeviceQueue& queue);

  /// Puts the kernels of a chunk on the queue's stream. Called for 0, 1, ... in order: for `ahead` chunks at first,
  /// then for one more whenever a chunk has arrived.
  using Launch = std::function<PredictionChunk(std::size_t chunk)>;

  /// Waits until the caller's memory `out` has all rows, out.pitch bytes, of `expressions` expressions, at least 1.
  void run(const CopyEnd& out, std::size_t expressions, std::size_t chunks, std::size_t ahead, const Launch& launch);

 private:
  struct Piece;
  Piece pieceAt(std::size_t number) const;
  void begin(std::size_t number);
  void spread(std::size_t number) const;
  void launchNext();

  // One piece arrives and one waits while one is spread.
  static constexpr std::size_t kBuffers = 3;
  /// The same for all chunks but the last one, whose rows are fewer, so every chunk has the same pieces.
  std::size_t per_piece_ = 0, pieces_of_chunk_ = 0;

  DeviceQueue& queue_;
  CopyEnd out_{nullptr, 0};
  std::size_t expressions_ = 0;
  const Launch* launch_ = nullptr;
  std::size_t chunks_ = 0;
  bool direct_ = false;
  std::vector<PredictionChunk> launched_chunks_;
  std::array<std::shared_ptr<PinnedBuffer>, kBuffers> buffers_;
  std::array<std::optional<Event>, kBuffers> arrived_;
};

/// Waits for an event in a loop at first: blocking waits take tens of microseconds to wake up from.
void waitBriefly(const Event& event);

}  // namespace srjit
