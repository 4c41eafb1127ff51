#include "runtime/subtrees/kept.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compiler/direct/emitter.h"
#include "runtime/code/makers.h"
#include "runtime/evaluation/ranges.h"
#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

// The number of subtrees that are counted of a graph: those that cost most. Few others would save more than a column
// costs.
constexpr std::size_t kCountedPerGraph = 64;
// Expressions that are stored per column, as candidates.
constexpr std::size_t kWantedPerColumn = 4;
// More generations than this are not expected, however many there were.
constexpr std::uint32_t kMostGenerations = 16;
// A subtree is dropped after this many programs without it: several populations may alternate on one data set.
constexpr std::uint64_t kRemembered = 4;

std::size_t rootsPerKernel(Tier tier) {
  return tier == Tier::kDirect ? kDirectRoots : tier == Tier::kCompile ? kExpressionsPerKernel : 1;
}

}  // namespace

struct KeptSubtrees::Candidate {
  SubtreeKey key;
  Expression expression;
  double computing, reads, making;  // as SubtreeUse
  double instructions;              // that reading it spares where it is used once
  double generations;               // that are expected
  double freshness;                 // 1 if the last program had it, half as much for each one since
  NodeId node = 0;                  // in the graph of all candidates
  bool chosen = false;

  double saves(double value_seconds) const { return freshness * (computing - reads * value_seconds); }
  double net(double value_seconds) const {
    return keepingSaves({computing, reads, making}, value_seconds, generations);
  }
};

KeptSubtrees::KeptSubtrees(Precision precision, Math math, std::uint32_t first_column, std::size_t columns,
                           std::size_t rows)
    : weights_(codeWeights(precision, math)),
      precision_(precision),
      value_seconds_(kReadSeconds * bytesOf(precision) / sizeof(float)),
      rows_(rows),
      slots_(std::min(columns, kMostSpareColumns)) {
  for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].column = first_column + static_cast<std::uint32_t>(i);
}

bool KeptSubtrees::isWorthwhile(Tier tier, const DeviceCosts& costs, std::size_t tokens) const noexcept {
  return costOf(costs, tier) * static_cast<double>(tokens) * static_cast<double>(rows_) > kLeastSubtreeSeconds;
}

std::vector<KeptSubtrees::Candidate> KeptSubtrees::candidates() const {
  std::vector<Candidate> found;
  for (const auto& [key, seen] : seen_) {
    const auto holds = [&](const Slot& slot) { return slot.key == key && !slot.isFree(); };
    if (!seen.expression || seen.generations < 2 || std::ranges::any_of(slots_, holds)) continue;
    const double freshness = freshnessOf(seen.last);
    Candidate candidate{.key = key,
                        .expression = *seen.expression,
                        .computing = seen.use.computing,
                        .reads = seen.use.reads,
                        .making = seen.use.making,
                        .instructions = 0,
                        .generations = freshness * std::min(seen.generations, kMostGenerations),
                        .freshness = freshness};
    if (candidate.net(value_seconds_) > 0) found.push_back(std::move(candidate));
  }
  // The result must not depend on the order of a hash table.
  std::ranges::sort(found, [](const Candidate& a, const Candidate& b) {
    return a.computing != b.computing ? a.computing > b.computing : a.key.high < b.key.high;
  });
  return found;
}

namespace {

/// Which nodes contain node `id`, and which it contains. It is both.
std::pair<std::vector<bool>, std::vector<bool>> relativesOf(const Dag& dag, NodeId id) {
  std::vector<bool> contains(dag.size()), inside(dag.size());
  contains[id] = inside[id] = true;
  for (NodeId node = id + 1; node-- > 0;) {
    if (!inside[node]) continue;
    for (const NodeId operand : dag.node(node).inputs()) inside[operand] = true;
  }
  for (NodeId node = id + 1; node < dag.size(); ++node) {
    for (const NodeId operand : dag.node(node).inputs()) {
      if (contains[operand]) contains[node] = true;
    }
  }
  return {std::move(contains), std::move(inside)};
}

}  // namespace

double KeptSubtrees::freshnessOf(std::uint64_t generation) const {
  return std::exp2(-static_cast<double>(generation_ - std::min(generation, generation_)));
}

double KeptSubtrees::worthOf(const Slot& slot) const {
  return slot.value == nullptr ? 0 : slot.saves * freshnessOf(slot.last_read);
}

// Free ones first, then those that no program reads, by what they save.
std::vector<std::size_t> KeptSubtrees::freeSlots() const {
  std::vector<std::size_t> free;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].writing && (slots_[i].value == nullptr || slots_[i].value.use_count() == 1)) free.push_back(i);
  }
  std::ranges::stable_sort(free, {},
                           [this](std::size_t i) { return std::pair(slots_[i].value != nullptr, worthOf(slots_[i])); });
  return free;
}

std::vector<SubtreeWrite> KeptSubtrees::choose() {
  const std::lock_guard lock(mutex_);
  std::vector<SubtreeWrite> writes;
  std::vector<Candidate> all = candidates();
  const std::vector<std::size_t> slots = freeSlots();
  if (all.empty() || slots.empty()) return writes;
  std::vector<Expression> expressions;
  for (const Candidate& candidate : all) expressions.push_back(candidate.expression);
  const Dag dag = Dag::fromExpressions(expressions, precision_);
  GraphSubtrees graph(dag, weights_, 1);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].node = dag.roots()[i];
    all[i].instructions = graph.instructionsOf(all[i].node);
  }
  double total = 0;
  for (const std::size_t slot : slots) {
    const auto open = [&](const Candidate& c) { return c.chosen ? -1 : c.net(value_seconds_); };
    Candidate& best = *std::ranges::max_element(all, {}, open);
    if (open(best) <= 0 || best.saves(value_seconds_) <= worthOf(slots_[slot])) break;
    best.chosen = true;
    total += best.net(value_seconds_);
    writes.push_back({slot, slots_[slot].column, best.key, best.expression, best.saves(value_seconds_)});
    // Parts of it are computed less often from now on, and what contains it costs less.
    const auto [contains, inside] = relativesOf(dag, best.node);
    const double each = best.instructions > 0 ? best.computing / best.instructions : 0;
    for (Candidate& other : all) {
      if (other.chosen || other.node == best.node || other.instructions <= 0) continue;
      if (inside[other.node]) other.computing = std::max(0.0, other.computing - each * other.instructions);
      if (contains[other.node]) {
        const double left = std::max(0.0, other.instructions - best.instructions);
        other.computing *= left / other.instructions;
        other.instructions = left;
      }
    }
  }
  // Columns that are read already cause the graphs to be rewritten in any case.
  double read = 0;
  for (const Slot& slot : slots_) read += worthOf(slot);
  for (const SubtreeWrite& write : writes) read += write.saves;
  const auto rows = static_cast<double>(rows_);
  if (total * rows < kLeastSubtreeSeconds || !rewritingPays(read * rows, seconds_, nodes_, threads_)) return {};
  for (const SubtreeWrite& write : writes) {
    Slot& slot = slots_[write.slot];
    if (slot.value != nullptr) ++replaced_;
    slot.value = nullptr;
    slot.key = write.key;
    slot.writing = true;
  }
  return writes;
}

void KeptSubtrees::publish(std::span<const SubtreeWrite> writes, const std::vector<bool>& done) {
  const std::lock_guard lock(mutex_);
  for (const SubtreeWrite& write : writes) slots_[write.slot].writing = false;
  for (std::size_t i = 0; i < done.size(); ++i) {
    if (!done[i]) continue;
    Slot& slot = slots_[writes[i].slot];
    slot.value = std::make_shared<const std::uint32_t>(slot.column);
    slot.saves = writes[i].saves;
    slot.last_read = generation_;
    ++computed_;
  }
}

// The counts of a program whose graphs were made.
void KeptSubtrees::take(ProgramSubtrees& program) {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    const auto saved = program.saved_.find(slot.key);
    if (slot.value == nullptr || saved == program.saved_.end()) continue;
    slot.saves = saved->second;
    slot.last_read = std::max(slot.last_read, program.generation_);
    ++reads_;
  }
  seconds_ = program.seconds_ * static_cast<double>(rows_);
  nodes_ = static_cast<double>(program.nodes_);
  threads_ = program.threads_;
  for (const auto& [key, use] : program.sightings_) {
    Seen& seen = seen_[key];
    if (seen.last != program.generation_) {
      ++seen.generations;
      seen.last = program.generation_;
      seen.use = {};
    }
    seen.use.computing += use.computing;
    seen.use.making = use.making;
    seen.use.reads =
        program.staged_ ? subtreeReads(Tier::kInterpret, 0, program.expressions_) : seen.use.reads + use.reads;
  }
  for (auto& [key, expression] : program.found_) {
    const auto seen = seen_.find(key);
    if (seen != seen_.end() && expression) seen->second.expression = std::move(expression);
  }
  std::erase_if(seen_, [&](const auto& entry) { return entry.second.last + kRemembered < generation_; });
  findWanted();
}

void KeptSubtrees::findWanted() {
  std::vector<std::pair<double, SubtreeKey>> best;
  for (const auto& [key, seen] : seen_) {
    const double saves = keepingSaves(seen.use, value_seconds_, kMostGenerations);
    if (saves > 0 && !seen.expression) best.emplace_back(saves, key);
  }
  const std::size_t count = std::min(best.size(), kWantedPerColumn * slots_.size());
  std::ranges::partial_sort(best, best.begin() + static_cast<std::ptrdiff_t>(count), std::greater(),
                            [](const auto& entry) { return std::pair(entry.first, entry.second.high); });
  auto wanted = std::make_shared<Keys>();
  for (std::size_t i = 0; i < count; ++i) wanted->insert(best[i].second);
  wanted_ = std::move(wanted);
}

SubtreeStats KeptSubtrees::stats() const {
  const std::lock_guard lock(mutex_);
  SubtreeStats stats{.capacity = slots_.size(), .computed = computed_, .replaced = replaced_, .reads = reads_};
  stats.kept =
      static_cast<std::size_t>(std::ranges::count_if(slots_, [](const Slot& s) { return s.value != nullptr; }));
  return stats;
}

struct ProgramSubtrees::Rates {
  Tier tier;
  double instruction;   // seconds per instruction and row
  double making;        // the same of the interpreter
  double value;         // seconds to load one
  double staged_reads;  // loads of a column for only the programs of this graph, if the interpreter stages it

  double saves(const SubtreeUse& use) const { return use.computing - use.reads * value; }
  SubtreeUse use(const GraphSubtrees& graph, NodeId id, double instructions) const {
    const double kernels = graph.kernels(id);
    return {.computing = kernels * instructions * instruction,
            .reads = tier == Tier::kInterpret ? staged_reads : subtreeReads(tier, kernels, 0),
            .making = 0};
  }
  SubtreeUse use(GraphSubtrees& graph, NodeId id) const { return use(graph, id, graph.ownInstructions(id)); }
};

ProgramSubtrees::ProgramSubtrees(std::shared_ptr<KeptSubtrees> kept, Tier tier, const DeviceCosts& costs,
                                 std::size_t expressions, unsigned threads)
    : kept_(std::move(kept)),
      tier_(tier),
      costs_(costs),
      expressions_(static_cast<double>(expressions)),
      threads_(threads) {
  const std::lock_guard lock(kept_->mutex_);
  generation_ = ++kept_->generation_;
  wanted_ = kept_->wanted_;
  for (const KeptSubtrees::Slot& slot : kept_->slots_) {
    if (slot.value != nullptr) values_.emplace(slot.key, slot.value);
  }
}

Dag ProgramSubtrees::pass(Dag dag, Tier tier, std::size_t tokens) {
  if (values_.empty() && !counting_) return dag;
  if (tier_ != Tier::kAuto) tier = tier_;
  GraphSubtrees graph(dag, kept_->weights_, rootsPerKernel(tier));
  if (graph.instructions() == 0) return dag;
  const double instruction = costOf(costs_, tier) * static_cast<double>(tokens) / graph.instructions();
  const Rates rates{.tier = tier,
                    .instruction = instruction,
                    .making = instruction * costs_.interpret / costOf(costs_, tier),
                    .value = kept_->value_seconds_,
                    .staged_reads = subtreeReads(Tier::kInterpret, 0, static_cast<double>(dag.roots().size()))};
  const double seconds = instruction * graph.instructions();
  const std::vector<std::uint32_t> columns = readWhatPays(dag, graph, rates);
  if (counting_) {
    countOthers(dag, graph, rates);
    const std::lock_guard lock(mutex_);
    nodes_ += dag.size();
    seconds_ += seconds;
  }
  if (columns.empty()) return dag;
  const std::size_t before = dag.size();
  Dag reading = withColumns(std::move(dag), columns);
  if (counting_) {
    const std::lock_guard lock(mutex_);
    spared_nodes_ += before - reading.size();
  }
  return reading;
}

// The column that replaces each node, or kComputed; empty if no node is replaced.
std::vector<std::uint32_t> ProgramSubtrees::readWhatPays(const Dag& dag, GraphSubtrees& graph, const Rates& rates) {
  std::vector<std::uint32_t> columns;
  if (values_.empty()) return columns;
  std::vector<NodeId> chosen;
  double total = 0;
  for (NodeId id = 0; id < dag.size(); ++id) {
    if (dag.node(id).kind != Token::Kind::kOp || graph.key(id).isNone()) continue;
    const auto found = values_.find(graph.key(id));
    if (found == values_.end()) continue;
    const double saves = rates.saves(rates.use(graph, id));
    if (saves <= 0) continue;
    chosen.push_back(id);
    total += saves;
  }
  const auto rows = static_cast<double>(kept_->rows_);
  const double seconds = rates.instruction * graph.instructions() * rows;
  if (!rewritingPays(total * rows, seconds, static_cast<double>(dag.size()), threads_)) return columns;
  for (const NodeId id : chosen) graph.read(id);
  graph.count();
  // A subtree that only other chosen ones contain is not needed.
  std::erase_if(chosen, [&](NodeId id) { return graph.kernels(id) == 0; });
  columns.resize(dag.size(), kComputed);
  for (const NodeId id : chosen) columns[id] = *values_.find(graph.key(id))->second;
  if (!counting_) return columns;
  const std::lock_guard lock(mutex_);
  for (const NodeId id : chosen) saved_[graph.key(id)] += std::max(0.0, rates.saves(rates.use(graph, id)));
  return columns;
}

void ProgramSubtrees::countOthers(const Dag& dag, GraphSubtrees& graph, const Rates& rates) {
  struct Counted {
    NodeId id;
    SubtreeUse use;
  };
  std::vector<Counted> counted;
  for (NodeId id = 0; id < dag.size(); ++id) {
    const bool possible = dag.node(id).kind == Token::Kind::kOp && !graph.key(id).isNone() && !graph.isRead(id) &&
                          graph.kernels(id) > 0 && graph.tokens(id) <= kMaxSubtreeTokens;
    if (!possible) continue;
    // An upper bound of the saving, which is quick to compute.
    const SubtreeUse most = rates.use(graph, id, graph.treeInstructions(id));
    if (rates.saves(most) > 0) counted.push_back({id, most});
  }
  if (counted.size() > kCountedPerGraph) {
    const auto last = counted.begin() + static_cast<std::ptrdiff_t>(kCountedPerGraph);
    std::ranges::nth_element(counted, last, std::greater(), [&](const Counted& c) { return rates.saves(c.use); });
    counted.erase(last, counted.end());
  }
  for (Counted& c : counted) {
    c.use = rates.use(graph, c.id);
    c.use.making = graph.instructionsOf(c.id) * rates.making;
  }
  std::erase_if(counted, [&](const Counted& c) { return rates.saves(c.use) <= 0; });
  const auto isFirstToReach = [&](const SubtreeKey& key) {
    const std::lock_guard lock(mutex_);
    return found_.try_emplace(key).second;
  };
  for (const Counted& c : counted) {
    if (!wanted_->contains(graph.key(c.id)) || !isFirstToReach(graph.key(c.id))) continue;
    auto expression = dag.subtree(c.id, kMaxSubtreeTokens);
    const std::lock_guard lock(mutex_);
    if (expression) found_[graph.key(c.id)] = std::move(*expression);
  }
  const std::lock_guard lock(mutex_);
  staged_ = rates.tier == Tier::kInterpret;
  for (const Counted& c : counted) sightings_.emplace_back(graph.key(c.id), c.use);
}

void ProgramSubtrees::close(ProgramInfo& info) {
  kept_->take(*this);
  counting_ = false;
  std::erase_if(values_, [&](const auto& entry) { return !saved_.contains(entry.first); });
  sightings_ = {};
  found_.clear();
  wanted_.reset();
  info.subtrees_read = values_.size();
  info.nodes_spared = spared_nodes_;
}

DeviceSubtrees::DeviceSubtrees(std::shared_ptr<KernelStore> store, const Dataset::State& data)
    : store_(std::move(store)),
      kept_(std::make_shared<KeptSubtrees>(data.precision, store_->math(), deviceDataOf(data).firstSpareColumn(),
                                           deviceDataOf(data).spareColumns(), data.rows)),
      column_bytes_(data.column_stride * static_cast<std::size_t>(bytesOf(data.precision))) {}

SubtreeStats DeviceSubtrees::subtrees() const {
  SubtreeStats stats = kept_->stats();
  stats.bytes = stats.capacity * column_bytes_;
  return stats;
}

DeviceSubtrees::~DeviceSubtrees() {
  // The device may be lost; then nothing is in use.
  (void)guarded([&]() -> Status {
    const CurrentContext current(*store_->queue().cuda);
    for (const auto& run : runs_) run->wait();
    return okStatus();
  });
}

std::shared_ptr<GraphFilter> DeviceSubtrees::open(const ProgramSource& source, const Dataset::State& data, Tier tier,
                                                  const DeviceCosts& costs, unsigned threads) {
  if (source.variables > data.columns) return nullptr;
  if (source.variables + kMostSpareColumns > stagedColumnLimit(store_->queue().cuda->limits(), source.precision))
    return nullptr;
  if (!kept_->isWorthwhile(tier, costs, source.tokens)) return nullptr;
  update(data, threads);
  return std::make_shared<ProgramSubtrees>(kept_, tier, costs, source.expressions.size(), threads);
}

void DeviceSubtrees::update(const Dataset::State& data, unsigned threads) {
  const std::vector<SubtreeWrite> writes = kept_->choose();
  if (writes.empty()) return;
  std::vector<bool> done;
  // Programs compute subtrees that are not kept.
  (void)guarded([&]() -> Status {
    done = write(data, writes, threads);
    return okStatus();
  });
  kept_->publish(writes, done);
}

// Programs of the interpreter; the output of each is the number of its column.
std::vector<bool> DeviceSubtrees::write(const Dataset::State& data, std::span<const SubtreeWrite> writes,
                                        unsigned threads) {
  const CurrentContext current(*store_->queue().cuda);
  const std::uint32_t last = std::ranges::max(writes, {}, &SubtreeWrite::column).column;
  const Math math = store_->math();
  ProgramSource source{
      .precision = data.precision, .math = math, .pipeline = Pipeline::parse("hoist, schedule", math).value()};
  const Expression unused = Expression::create({Token::variable(0)}).value();
  std::vector<Expression> of_column(last + 1, unused);
  std::vector<std::uint32_t> chosen;
  for (const SubtreeWrite& write : writes) {
    of_column[write.column] = write.expression;
    chosen.push_back(write.column);
  }
  source.set(of_column);
  std::ranges::sort(chosen);
  auto code = std::make_shared<const DeviceCode>(
      encodeForDevice(*store_, {.source = source, .range = chosen, .threads = threads}));
  std::vector<bool> done(writes.size(), code->interpreter.has_value());
  if (!code->interpreter) return done;
  for (const Failure& failure : code->failures) {
    for (std::size_t i = 0; i < writes.size(); ++i) done[i] = done[i] && writes[i].column != failure.expression;
  }
  RunPlan plan{store_, code, data.serial, KernelKind{.loss = {}, .strided_columns = false}, last + 1};
  plan.into_columns = true;
  auto run = DeviceRun::create(std::move(plan), data, SIZE_MAX);
  if (!run) return std::vector<bool>(writes.size());
  const std::lock_guard lock(mutex_);
  std::erase_if(runs_, [](const auto& earlier) { return earlier->ready(); });
  runs_.push_back(std::move(*run));
  runs_.back()->submitColumns(data);
  return done;
}

}  // namespace srjit
