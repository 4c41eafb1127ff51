#include "runtime/gpu/download.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include <tbb/parallel_for.h>

#include "runtime/platform/aligned_buffer.h"
#include "runtime/platform/clock.h"
#include "runtime/platform/trace.h"

namespace srjit {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{16} << 20;
constexpr std::size_t kSpreadBytes = std::size_t{256} << 10;  // that one task copies at most
// A thread that sleeps wakes up 0.2 to 0.5 ms late (H200, docs/history/measurements.md): of a longer wait that is a
// twentieth.
constexpr double kSpinSeconds = 10e-3;

}  // namespace

void waitBriefly(const Event& event) {
  const Stopwatch watch;
  while (watch.seconds() < kSpinSeconds) {
    if (event.ready()) return;
    std::this_thread::yield();
  }
  event.synchronize();
}

Download::Download(DeviceQueue& queue) : queue_(queue) {
  for (auto& event : arrived_) event.emplace(queue_.cuda);
}

/// Some adjacent expressions of a chunk.
struct Download::Piece {
  std::size_t chunk, first, count;
  bool is_last;  ///< of its chunk
};

void Download::run(const CopyEnd& out, std::size_t expressions, std::size_t chunks, std::size_t ahead,
                   const Launch& launch) {
  TraceSpan span(TraceKind::kTransfer, "download", queue_.name);
  span.add("bytes", expressions * out.pitch);
  out_ = out;
  expressions_ = expressions;
  launch_ = &launch;
  chunks_ = chunks;
  launched_chunks_.clear();
  direct_ = !out.on_host || queue_.cuda->isPinned(out.onHost(), expressions * out.pitch);
  while (launched_chunks_.size() < std::min(ahead, chunks)) launchNext();
  const std::size_t bytes = launched_chunks_[0].bytes;
  per_piece_ = direct_ ? expressions : std::clamp<std::size_t>(kPieceBytes / bytes, 1, expressions);
  pieces_of_chunk_ = ceilDivide(expressions, per_piece_);
  if (!direct_) {
    for (auto& buffer : buffers_) buffer = queue_.pinned.take(per_piece_ * bytes);
  }
  const std::size_t pieces = chunks * pieces_of_chunk_;
  std::size_t begun = 0;
  const auto beginUpTo = [&](std::size_t end) {
    while (begun < std::min(end, launched_chunks_.size() * pieces_of_chunk_)) begin(begun++);
  };
  beginUpTo(kBuffers);
  for (std::size_t number = 0; number < pieces; ++number) {
    waitBriefly(*arrived_[number % kBuffers]);
    if (pieceAt(number).is_last && launched_chunks_.size() < chunks) launchNext();
    // The buffer of this piece is free only when it was spread.
    beginUpTo(number + kBuffers);
    if (!direct_) spread(number);
    beginUpTo(number + kBuffers + 1);
  }
  buffers_ = {};
}

void Download::launchNext() { launched_chunks_.push_back((*launch_)(launched_chunks_.size())); }

Download::Piece Download::pieceAt(std::size_t number) const {
  const std::size_t chunk = number / pieces_of_chunk_, first = number % pieces_of_chunk_ * per_piece_;
  const std::size_t count = std::min(per_piece_, expressions_ - first);
  return {chunk, first, count, first + count == expressions_};
}

void Download::begin(std::size_t number) {
  const Piece piece = pieceAt(number);
  const PredictionChunk& chunk = launched_chunks_[piece.chunk];
  const Stream& stream = *queue_.downloads;
  stream.wait(*chunk.ready);
  const CopyEnd to = direct_ ? out_ + piece.first * out_.pitch + chunk.first_byte
                             : CopyEnd(buffers_[number % kBuffers]->data(), chunk.bytes);
  stream.copyRows(to, {chunk.address + piece.first * chunk.pitch, chunk.pitch}, chunk.bytes, piece.count);
  stream.record(*arrived_[number % kBuffers]);
}

void Download::spread(std::size_t number) const {
  const Piece piece = pieceAt(number);
  const PredictionChunk& chunk = launched_chunks_[piece.chunk];
  const auto* const from = static_cast<const std::byte*>(buffers_[number % kBuffers]->data());
  std::byte* const to = out_.onHost() + piece.first * out_.pitch + chunk.first_byte;
  const std::size_t parts = ceilDivide(chunk.bytes, kSpreadBytes);
  tbb::parallel_for(std::size_t{0}, piece.count * parts, [&](std::size_t i) {
    const std::size_t expression = i / parts, begin = i % parts * kSpreadBytes;
    std::memcpy(to + expression * out_.pitch + begin, from + expression * chunk.bytes + begin,
                std::min(kSpreadBytes, chunk.bytes - begin));
  });
}

}  // namespace srjit
