#include "runtime/code/interpreted/encode.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "runtime/code/costs.h"
#include "runtime/code/interpreted/chunk_encoder.h"
#include "runtime/code/interpreted/device_encoding.h"
#include "runtime/code/interpreted/program_linker.h"
#include "runtime/code/interpreted/sections.h"
#include "runtime/platform/clock.h"
#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

/// Divides a population into what the device and the host encode, so that both end at about the same time, and joins
/// what they yield.
class ProgramEncoder {
 public:
  explicit ProgramEncoder(const CodeRequest& request)
      : request_(request),
        source_(request.source),
        limits_(request.queue.cuda->limits(), source_.precision),
        sections_(findSections(request, limits_)),
        host_(request, sections_, limits_),
        chosen_(request.chosen) {}

  DeviceCode run(bool uses_device) {
    const Stopwatch encoding;
    if (uses_device) startDevice();
    const Stopwatch host_share;
    host_.encode(chosen_, 0);
    if (device_) takeFromDevice(host_share.seconds());
    stageColumns();
    refuseWideSections();
    code_.report.seconds_passes = encoding.seconds();
    const Stopwatch linking;
    linkPrograms(request_, sections_, host_.chunks(), device_ ? &*device_ : nullptr, code_);
    code_.report.seconds_codegen = linking.seconds();
    std::ranges::stable_sort(code_.failures, {}, &Failure::expression);
    host_.finish();
    return std::move(code_);
  }

 private:
  // With more variables there may be several sections; and workers have memory for a number per variable up to the
  // largest.
  void startDevice() {
    std::shared_ptr<const FrontEnd> front_end = request_.store.frontEnd();
    if (front_end == nullptr || source_.variables > limits_.columns || request_.filter != nullptr ||
        chosen_.size() != source_.expressions.size()) {
      return;
    }
    const double share = request_.store.deviceShare().of(shareByCosts());
    const std::size_t blocks = ceilDivide(chosen_.size(), Population::kBlock);
    const auto of_device = static_cast<std::size_t>(share * static_cast<double>(blocks));
    const std::size_t count = Population::kBlock * std::clamp(of_device, std::size_t{1}, blocks - 1);
    const CurrentContext current(*request_.queue.cuda);
    device_.emplace(request_, count, std::move(front_end), static_cast<std::uint32_t>(limits_.slots));
    takeChosen(chosen_.subspan(count));
  }

  double shareByCosts() const { return shareOfDevice(request_.threads, request_.queue.cuda->limits().multiprocessors); }

  // What the device left is encoded behind the host's share, which took `seconds`.
  void takeFromDevice(double seconds) {
    const std::size_t share = chosen_.size();
    {
      const CurrentContext current(*request_.queue.cuda);
      device_->finish();
      // Without these times the next shares are as before.
      (void)guarded([&] {
        request_.store.deviceShare().record(shareByCosts(), {source_.expressions.size() - share, device_->seconds()},
                                            {share, seconds});
        return okStatus();
      });
    }
    takeChosen(device_->left());
    host_.encode(chosen_, share);
    code_.report.on_device = device_->programs();
  }

  // For the host, beside those that were taken before.
  void takeChosen(std::span<const std::uint32_t> more) {
    beside_device_.insert(beside_device_.end(), more.begin(), more.end());
    chosen_ = beside_device_;
    sections_[0].last = chosen_.size();
  }

  // What all workers need: the columns of sections, and the family of the operators.
  void stageColumns() {
    std::vector<std::pair<std::size_t, const EncodedFacts*>> workers;  // each with its section
    for (const EncodedChunk& chunk : host_.chunks()) workers.emplace_back(chunk.section, &chunk);
    if (device_) workers.emplace_back(0, &device_->facts());
    // Tokens that name no column have column 0 there, so it has a place even if no program needs it. Columns of a
    // filter may be among the variables.
    std::size_t variables = 1;
    for (const auto& [section, facts] : workers) variables = std::max(variables, facts->variables.size());
    std::vector<std::vector<bool>> uses(sections_.size(), std::vector<bool>(variables));
    std::vector<bool> used_ops(kOpCount);
    for (const auto& [section, facts] : workers) {
      code_.report.tokens += facts->tokens;
      code_.report.nodes += facts->nodes;
      code_.report.recurring += facts->recurring;
      for (std::size_t op = 0; op < kOpCount; ++op) used_ops[op] = used_ops[op] || facts->operators[op] != 0;
      for (std::size_t v = 0; v < facts->variables.size(); ++v) {
        if (facts->variables[v] != 0) uses[section][v] = true;
      }
    }
    for (std::size_t s = 0; s < sections_.size(); ++s) sections_[s].stage(uses[s]);
    OpFamily family = OpFamily::kArithmetic;
    for (std::size_t op = 0; op < kOpCount; ++op) {
      if (used_ops[op]) family = std::max(family, familyOf(static_cast<Op>(op)));
    }
    code_.interpreter.emplace().family = family;
  }

  void refuseWideSections() {
    for (EncodedChunk& chunk : host_.chunks()) {
      const std::size_t wanted = sections_[chunk.section].columns.size();
      if (wanted <= limits_.columns) continue;
      const Error refusal{
          Errc::kUnsupported,
          fmt::format("{} columns, but the interpreter takes at most {} on this device", wanted, limits_.columns),
          {}};
      std::vector<Failure> failures;
      for (std::size_t i = chunk.first; i < chunk.last; ++i) failures.push_back({chosen_[i], refusal});
      chunk.refuse(std::move(failures));
    }
  }

  const CodeRequest& request_;
  const ProgramSource& source_;
  const InterpreterLimits limits_;
  std::vector<SectionDraft> sections_;
  ChunkEncoder host_;
  std::span<const std::uint32_t> chosen_;     ///< that the host encodes: all, or those beside the device
  std::vector<std::uint32_t> beside_device_;  ///< the host's share, then what the device left
  std::optional<DeviceEncoding> device_;
  DeviceCode code_;
};

}  // namespace

std::size_t stagedColumnLimit(const DeviceLimits& limits, Precision precision) {
  return InterpreterLimits(limits, precision).columns;
}

bool isEncodedOnDevice(const ProgramSource& source) {
  return !source.derivation && !source.pipeline && isEncodedOnDevice(source.expressions.size(), source.tokens);
}

bool isEncodedOnDevice(std::size_t expressions, std::size_t tokens) {
  return expressions >= kLeastEncodedOnDevice && tokens < kLeastTokensToFind * expressions;
}

std::size_t mostPartsForDevice(std::size_t expressions) {
  constexpr std::size_t kLeastOfPart = kLeastEncodedOnDevice + kLeastEncodedOnDevice / 4;
  return std::max(expressions / kLeastOfPart, std::size_t{1});
}

// A population takes more of the device's memory if the device encodes it, so the host may still encode it.
DeviceCode encodeForDevice(const CodeRequest& request) {
  if (isEncodedOnDevice(request.source)) {
    try {
      return ProgramEncoder(request).run(true);
    } catch (const CudaFailure& failure) {
      if (failure.code() != CUDA_ERROR_OUT_OF_MEMORY) throw;
    }
  }
  return ProgramEncoder(request).run(false);
}

}  // namespace srjit
