#include "runtime/subtrees/columns.h"

#include <algorithm>

#include "runtime/code/makers.h"
#include "runtime/platform/guarded.h"

namespace srjit {

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
  return KeptSubtrees::open(kept_, tier, costs, source.expressions.size(), threads);
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
