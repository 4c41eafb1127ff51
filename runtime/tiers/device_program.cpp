#include "runtime/tiers/device_program.h"

#include <algorithm>
#include <limits>

#include "runtime/code/makers.h"
#include "runtime/platform/trace.h"

namespace srjit {
namespace {

constexpr double kNotRecorded = std::numeric_limits<double>::infinity();

}  // namespace

DeviceProgram::DeviceProgram(Tier tier, double expected_evaluations)
    : tier_(tier), expected_evaluations_(expected_evaluations) {
  seconds_per_row_.fill(kNotRecorded);
}

DeviceProgram::~DeviceProgram() {
  for (const Jobs& jobs : jobs_) {
    for (const auto& [kind, job] : jobs) job->cancel();
  }
  life_.reset();
  for (const auto& idle : idle_) {
    if (const auto runs = idle.lock()) runs->dropOrphans();
  }
}

std::shared_ptr<const DeviceCode> DeviceProgram::interpreted() const {
  const std::lock_guard lock(mutex_);
  return interpreted_;
}

void DeviceProgram::setInterpreted(std::shared_ptr<const DeviceCode> code) {
  const std::lock_guard lock(mutex_);
  if (interpreted_ != nullptr) return;
  interpreted_ = std::move(code);
  for (const Failure& failure : interpreted_->failures) {
    if (isRefusal(failure)) refused_.push_back(static_cast<std::uint32_t>(failure.expression));
  }
}

std::vector<std::uint32_t> DeviceProgram::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

bool DeviceProgram::interpreterRefuses() const {
  const std::lock_guard lock(mutex_);
  return !refused_.empty();
}

std::shared_ptr<CodeJob> DeviceProgram::job(const KernelKind& kernels, CodeKind code) {
  const std::lock_guard lock(mutex_);
  Jobs& jobs = jobs_[static_cast<std::size_t>(code)];
  auto found = std::find_if(jobs.begin(), jobs.end(), [&](const auto& entry) { return entry.first == kernels; });
  if (found == jobs.end()) {
    jobs.emplace_back(kernels, std::make_shared<CodeJob>());
  } else {
    std::rotate(found, found + 1, jobs.end());
  }
  return jobs.back().second;
}

ProgramStatus DeviceProgram::status() const {
  ProgramStatus status;
  std::shared_ptr<CodeJob> refused, direct, compiled;
  {
    const std::lock_guard lock(mutex_);
    status.evaluations = evaluations_;
    status.served = served_;
    status.device_seconds = device_seconds_;
    const auto lastOf = [&](CodeKind kind) {
      const Jobs& jobs = jobs_[static_cast<std::size_t>(kind)];
      return jobs.empty() ? nullptr : jobs.back().second;
    };
    if (direct_refusal_) {
      status.error = direct_refusal_;
    } else {
      direct = lastOf(CodeKind::kDirect);
    }
    refused = lastOf(CodeKind::kCompiledRefused);
    compiled = lastOf(CodeKind::kCompiled);
  }
  const auto add = [&](const std::shared_ptr<CodeJob>& job, Tier tier) {
    if (job == nullptr) return;
    const CodeJob::View view = job->view();
    status.compiling = status.compiling || view.state == CodeState::kRunning;
    if (view.error) status.error = view.error;
    if (view.code == nullptr) return;
    const DeviceCode& code = *view.code;
    const ServedExpressions covered = code.served();
    status.tier = tier;
    status.seconds_compiling = view.seconds;
    status.seconds_reading = code.status.seconds_reading;
    status.seconds_loading = code.status.seconds_loading;
    status.compiled = covered.compiled + covered.direct;
    if (code.status.error) status.error = code.status.error;
    if (tier_ == Tier::kDirect && code.direct_gaps) status.error = code.direct_gaps;
  };
  // Later calls overwrite earlier ones: compiled code serves before direct code. Code of refused expressions serves
  // beside the interpreter.
  add(refused, Tier::kInterpret);
  add(direct, Tier::kDirect);
  add(compiled, Tier::kCompile);
  return status;
}

double DeviceProgram::countEvaluation() {
  const std::lock_guard lock(mutex_);
  const auto done = static_cast<double>(evaluations_++);
  return std::max(expected_evaluations_ - done, done);
}

void DeviceProgram::setServed(const ServedExpressions& served, std::string_view device) {
  {
    const std::lock_guard lock(mutex_);
    if (served_ == served) return;
    served_ = served;
  }
  if (!isTracing()) return;
  const TraceNumber numbers[] = {{"interpreted", static_cast<double>(served.interpreted)},
                                 {"direct", static_cast<double>(served.direct)},
                                 {"compiled", static_cast<double>(served.compiled)}};
  trace({.kind = TraceKind::kTier, .what = "served by", .device = device, .numbers = numbers});
}

void DeviceProgram::setDeviceSeconds(double seconds) {
  const std::lock_guard lock(mutex_);
  device_seconds_ = seconds;
}

void DeviceProgram::recordSecondsPerRow(CodeKind code, double seconds) {
  const std::lock_guard lock(mutex_);
  double& least = seconds_per_row_[static_cast<std::size_t>(code)];
  least = std::min(least, seconds);
}

bool DeviceProgram::directWasSlower() const {
  const std::lock_guard lock(mutex_);
  const double direct = seconds_per_row_[static_cast<std::size_t>(CodeKind::kDirect)];
  return direct < kNotRecorded && direct > seconds_per_row_[static_cast<std::size_t>(CodeKind::kInterpreted)];
}

void DeviceProgram::setDirectRefusal(std::optional<Error> why) {
  const std::lock_guard lock(mutex_);
  direct_refusal_ = std::move(why);
}

void DeviceProgram::keepRun(const std::shared_ptr<IdleRuns>& idle, std::unique_ptr<DeviceRun> run) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(idle_, [](const auto& other) { return other.expired(); });
    const auto isSame = [&](const auto& other) { return other.lock() == idle; };
    if (std::none_of(idle_.begin(), idle_.end(), isSame)) idle_.push_back(idle);
  }
  idle->keep(std::move(run), life_);
}

}  // namespace srjit
