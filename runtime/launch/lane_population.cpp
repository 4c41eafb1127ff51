#include "runtime/launch/lane_population.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include "ir/token_codes.h"
#include "runtime/code/device_arrays.h"

namespace srjit {
namespace {

/// Copies the codes of a block with the numbers of staged columns, and the numbers with those of parameters.
template <class T>
void stageBlock(const PopulationView& population, const PopulationSurvey& survey, std::span<const double> parameters,
                std::span<const std::int32_t> staged_as, std::size_t block, std::int32_t* codes, T* values) {
  const std::size_t first = block * PopulationSurvey::kBlock;
  const std::size_t last = std::min(first + PopulationSurvey::kBlock, population.size());
  std::size_t parameter = survey.first_parameters[block];
  for (std::size_t e = first; e < last; ++e) {
    const auto end = static_cast<std::size_t>(population.offsets[e + 1]);
    for (auto t = static_cast<std::size_t>(population.offsets[e]); t < end; ++t) {
      const std::int32_t code = population.codes[t];
      codes[t] = code;
      if (code == kConstantCode) {
        if (!population.constants.empty()) values[t] = static_cast<T>(population.constants[t]);
      } else if (isParameterCode(code)) {
        // Expressions that are not valid have none.
        const std::size_t number = parameter + indexOfCode(code);
        values[t] = number < parameters.size() ? static_cast<T>(parameters[number]) : T{0};
      } else if (code < 0 && indexOfCode(code) < staged_as.size()) {
        codes[t] = staged_as[indexOfCode(code)];
      }
    }
    parameter += survey.parameter_counts[e];
  }
}

}  // namespace

LaneFlight::Layout LaneFlight::layOut(std::size_t expressions, std::size_t tokens, Precision precision) {
  ArrayLayout layout;
  Layout of{};
  of.codes = layout.add<std::int32_t>(tokens);
  of.values = layout.add<std::byte>(tokens * static_cast<std::size_t>(bytesOf(precision)));
  of.offsets = layout.add<std::int64_t>(expressions + 1);
  of.sent = layout.bytes();
  of.losses = layout.add<double>(expressions);
  of.valid_rows = layout.add<std::int64_t>(expressions);
  of.faults = layout.add<DeviceFault>(expressions);
  of.all = layout.bytes();
  return of;
}

std::size_t LaneFlight::bytes(const PopulationView& population, Precision precision) {
  return layOut(population.size(), population.codes.size(), precision).all;
}

LaneFlight::LaneFlight(std::shared_ptr<KernelStore> store, std::size_t expressions, std::size_t tokens)
    : store_(std::move(store)),
      queue_(store_->queue()),
      count_(expressions),
      tokens_(tokens),
      at_(layOut(expressions, tokens, store_->precision())),
      done_(queue_.cuda) {}

Result<std::unique_ptr<LaneFlight>> LaneFlight::start(std::shared_ptr<KernelStore> store, const Dataset& data,
                                                      const PopulationView& population, const PopulationSurvey& survey,
                                                      std::span<const double> parameters, const LossOptions& loss,
                                                      std::size_t bytes) {
  std::unique_ptr<LaneFlight> flight(new LaneFlight(store, population.size(), population.codes.size()));
  flight->left_ = survey.left;
  DeviceLossOptions options;
  options.operators = survey.operators;
  options.expressions = population.size();
  options.most_tokens = survey.most_tokens;
  options.loss = loss;
  options.bytes = bytes;
  auto work = DeviceLoss::Work::create(std::move(store), data, options, survey.columns);
  if (!work) return std::move(work).error();
  flight->work_ = std::move(*work);
  flight->stage(population, survey, parameters);
  flight->submit(population);
  // Fresh memory takes longer than the writing, so it is touched while the device computes.
  flight->losses_.values.resize(flight->count_);
  flight->losses_.valid_rows.resize(flight->count_);
  return flight;
}

LaneFlight::~LaneFlight() {
  if (in_flight_ && !queue_.cuda->isForked()) {
    const CurrentContext current(*queue_.cuda, std::nothrow);
    queue_.stream->settle();
  }
  if (work_ != nullptr) work_->setDone();
}

void LaneFlight::stage(const PopulationView& population, const PopulationSurvey& survey,
                       std::span<const double> parameters) {
  staging_ = queue_.pinned.take(at_.all);
  auto* const bytes = static_cast<std::byte*>(staging_->data());
  std::vector<std::int32_t> staged_as;
  for (const std::uint32_t column : survey.columns) {
    while (staged_as.size() < column) staged_as.push_back(variableCode(static_cast<std::uint32_t>(staged_as.size())));
    staged_as.push_back(0);
  }
  for (std::size_t i = 0; i < survey.columns.size(); ++i) {
    staged_as[survey.columns[i]] = variableCode(static_cast<std::uint32_t>(i));
  }
  auto* const codes = at<std::int32_t>(bytes, at_.codes);
  const bool is_f32 = store_->precision() == Precision::kF32;
  tbb::parallel_for(std::size_t{0}, survey.first_parameters.size() - 1, [&](std::size_t block) {
    if (is_f32) {
      stageBlock(population, survey, parameters, staged_as, block, codes, at<float>(bytes, at_.values));
    } else {
      stageBlock(population, survey, parameters, staged_as, block, codes, at<double>(bytes, at_.values));
    }
  });
  std::ranges::copy(population.offsets, at<std::int64_t>(bytes, at_.offsets));
}

void LaneFlight::submit(const PopulationView& population) {
  auto* const bytes = static_cast<std::byte*>(staging_->data());
  const Stream& stream = *queue_.stream;
  const QueueLock lock(queue_);
  memory_ = DeviceBuffer(queue_.stream, at_.all);
  in_flight_ = true;
  const CUdeviceptr memory = memory_.address();
  stream.copyToDevice(memory, bytes, at_.sent);
  work_
      ->put({.codes = memory + at_.codes,
             .values = memory + at_.values,
             .tokens = tokens_,
             .expressions = count_,
             .offsets = memory + at_.offsets,
             .values_type = store_->precision(),
             .notation = population.notation},
            {.losses = memory + at_.losses,
             .valid_rows = memory + at_.valid_rows,
             .faults = memory + at_.faults,
             .type = Precision::kF64},
            std::bit_cast<std::uint64_t>(stream.get()))
      .value();
  stream.copyToHost(bytes + at_.sent, memory + at_.sent, at_.all - at_.sent);
  stream.record(done_);
}

void LaneFlight::wait() {
  if (!in_flight_) return;
  const CurrentContext current(*queue_.cuda);
  waitBriefly(done_);
  in_flight_ = false;
}

Result<Losses> LaneFlight::finish() {
  wait();
  auto* const bytes = static_cast<std::byte*>(staging_->data());
  const std::span losses(at<const double>(bytes, at_.losses), count_);
  const std::span valid_rows(at<const std::uint64_t>(bytes, at_.valid_rows), count_);
  const std::span faults(at<const DeviceFault>(bytes, at_.faults), count_);
  Losses all = std::move(losses_);
  std::ranges::copy(losses, all.values.begin());
  std::ranges::copy(valid_rows, all.valid_rows.begin());
  auto left = left_.begin();
  for (std::size_t e = 0; e < count_; ++e) {
    if (left != left_.end() && *left == e) {
      ++left;
    } else if (faults[e] != DeviceFault::kNone) {
      all.valid_rows[e] = 0;
      all.failures.push_back({e, {Errc::kUnsupported, fmt::format("{}; compile() takes it", textOf(faults[e])), {}}});
    }
  }
  return all;
}

}  // namespace srjit
