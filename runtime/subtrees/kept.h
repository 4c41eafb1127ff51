// Which subtrees of a search's generations have their values in spare columns of a data set, and which should have.
//
//   choose()   at the start of a program: subtrees to compute into columns now        KeptSubtrees
//   publish()  after their kernels were put on the stream
//   ProgramSubtrees()   what the program may read                                    ProgramSubtrees
//   pass()     for every graph of the program: what pays is read; the rest is counted
//   close()    after the first graphs: the data set gets the counts, and columns that the program does not read
//
// A subtree is one of the graphs after the passes, so a value is exactly what the kernels would compute themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/expression.h"
#include "runtime/evaluation/program_state.h"
#include "runtime/launch/run.h"
#include "runtime/subtrees/graph.h"

namespace srjit {

/// The number of a column of the data set, which kernels call a variable, as long as a program may read its values: it
/// is given to another subtree only when no program owns this any more.
using KeptColumn = std::shared_ptr<const std::uint32_t>;

/// A subtree of more tokens is not kept by itself; parts of it may be.
inline constexpr std::size_t kMaxSubtreeTokens = 256;

/// A subtree whose values are to be computed into a column.
struct SubtreeWrite {
  std::size_t slot;      ///< in KeptSubtrees
  std::uint32_t column;  ///< of the data set
  SubtreeKey key;
  Expression expression;
  double saves;  ///< seconds per row and generation
};

class ProgramSubtrees;

/// The spare columns of one data set. Thread-safe; touches no device.
class KeptSubtrees {
 public:
  /// `columns` spare ones from `first_column` on, of `rows` rows; kMostSpareColumns of them are used.
  KeptSubtrees(Precision precision, Math math, std::uint32_t first_column, std::size_t columns, std::size_t rows);

  std::size_t capacity() const noexcept { return slots_.size(); }
  /// Whether an evaluation of `tokens` tokens is long enough to look for subtrees that others have, too.
  bool isWorthwhile(Tier tier, const DeviceCosts& costs, std::size_t tokens) const noexcept;

  /// The subtrees that were counted in two of the last generations or more and save most, each with a column that is
  /// free or saves less. The columns are taken until publish().
  std::vector<SubtreeWrite> choose();
  /// The work that is now on the stream computes the values of `writes`, except where `done` is false, or ends.
  void publish(std::span<const SubtreeWrite> writes, const std::vector<bool>& done);

  SubtreeStats stats() const;

 private:
  friend class ProgramSubtrees;
  struct Slot {
    std::uint32_t column = 0;
    SubtreeKey key;    ///< of the value, also while it is written
    KeptColumn value;  ///< null: free, or `writing`
    bool writing = false;
    double saves = 0;             ///< seconds per row, in the generation that read it last
    std::uint64_t last_read = 0;  ///< generation, which is the number of a program

    bool isFree() const noexcept { return value == nullptr && !writing; }
  };
  struct Seen {
    SubtreeUse use;  ///< in the generation that had it last
    std::uint32_t generations = 0;
    std::uint64_t last = 0;
    std::optional<Expression> expression = {};  ///< of subtrees that were wanted when they occurred again
  };
  struct Candidate;
  using Keys = std::unordered_set<SubtreeKey, SubtreeKey::Hash>;

  void take(ProgramSubtrees& program);
  void findWanted();
  std::vector<Candidate> candidates() const;
  double freshnessOf(std::uint64_t generation) const;
  double worthOf(const Slot& slot) const;
  std::vector<std::size_t> freeSlots() const;

  const CodeWeights weights_;
  const Precision precision_;
  const double value_seconds_;
  const std::size_t rows_;

  mutable std::mutex mutex_;
  std::vector<Slot> slots_;
  std::unordered_map<SubtreeKey, Seen, SubtreeKey::Hash> seen_;  ///< in one of the last few generations
  std::shared_ptr<const Keys> wanted_ = std::make_shared<Keys>();
  std::uint64_t generation_ = 0;
  // Of the last program:
  double seconds_ = 0, nodes_ = 0, threads_ = 1;  ///< seconds of one evaluation without kept subtrees
  std::uint64_t computed_ = 0, replaced_ = 0, reads_ = 0;
};

/// What one program reads. Until close() it counts the subtrees that it does not read.
class ProgramSubtrees final : public GraphFilter {
 public:
  /// For a program of `expressions` expressions, for `tier`; `threads` threads make its graphs.
  ProgramSubtrees(std::shared_ptr<KeptSubtrees> kept, Tier tier, const DeviceCosts& costs, std::size_t expressions,
                  unsigned threads);
  Dag pass(Dag dag, Tier tier, std::size_t tokens) override;
  void close(ProgramInfo& info) override;

 private:
  friend class KeptSubtrees;
  struct Rates;

  std::vector<std::uint32_t> readWhatPays(const Dag& dag, GraphSubtrees& graph, const Rates& rates);
  void countOthers(const Dag& dag, GraphSubtrees& graph, const Rates& rates);

  std::shared_ptr<KeptSubtrees> kept_;
  const Tier tier_;
  const DeviceCosts costs_;
  const double expressions_, threads_;
  std::uint64_t generation_;
  std::unordered_map<SubtreeKey, KeptColumn, SubtreeKey::Hash> values_;
  std::shared_ptr<const KeptSubtrees::Keys> wanted_;
  bool counting_ = true;

  std::mutex mutex_;  ///< of what follows
  std::vector<std::pair<SubtreeKey, SubtreeUse>> sightings_;
  std::unordered_map<SubtreeKey, std::optional<Expression>, SubtreeKey::Hash> found_;  ///< of the wanted
  std::unordered_map<SubtreeKey, double, SubtreeKey::Hash> saved_;  ///< seconds per row, by values that were read
  double seconds_ = 0;                                              ///< per row, without kept subtrees
  std::size_t nodes_ = 0, spared_nodes_ = 0;
  bool staged_ = false;  ///< whether the interpreter's blocks stage columns that are read
};

/// Values of subtrees in the memory of a device, and the kernels that fill the columns: the door of this room for
/// others. Thread-safe. Belongs to the data set, which it must not outlive; its destructor waits for its kernels.
class DeviceSubtrees final : public Residence {
 public:
  /// Of `data`, which are resident and have spare columns.
  DeviceSubtrees(std::shared_ptr<KernelStore> store, const Dataset::State& data);
  ~DeviceSubtrees() override;

  /// Whether programs of this queue may read the columns, which are filled in its order.
  bool belongsTo(const DeviceQueue& queue) const noexcept { return &store_->queue() == &queue; }
  SubtreeStats subtrees() const override;

  /// What the program of `source` reads, to be evaluated by `tier` on `data`, the data set of these subtrees; null if
  /// nothing pays. Computes first what it pays to keep now. In parallel on the calling thread's arena.
  std::shared_ptr<GraphFilter> open(const ProgramSource& source, const Dataset::State& data, Tier tier,
                                    const DeviceCosts& costs, unsigned threads);

 private:
  /// Puts the kernels on the stream that compute what it pays to keep now; where that fails, less is kept. In parallel
  /// on the calling thread's arena. `data` is the data set.
  void update(const Dataset::State& data, unsigned threads);

  std::vector<bool> write(const Dataset::State& data, std::span<const SubtreeWrite> writes, unsigned threads);

  std::shared_ptr<KernelStore> store_;
  std::shared_ptr<KeptSubtrees> kept_;
  const std::size_t column_bytes_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<DeviceRun>> runs_;  ///< that may not be done
};

}  // namespace srjit
