#include "runtime/tiers/device_program.h"

#include <algorithm>

#include "runtime/gpu/encode.h"

namespace srjit {

RunningJob::RunningJob(std::shared_ptr<CompileJob> job) noexcept : job_(std::move(job)) {
  job_->error.reset();
  job_->cancelled = false;
  job_->running = true;
}

RunningJob::~RunningJob() {
  const std::lock_guard lock(job_->mutex);
  if (job_->code == nullptr && !job_->error && !job_->missing) job_->error = Error{Errc::kMachine, "out of memory", {}};
  job_->running = false;
  job_->finished.notify_all();
}

DeviceProgram::~DeviceProgram() {
  for (const Jobs& jobs : jobs_) {
    for (const auto& [kind, job] : jobs) job->cancelled = true;
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

std::shared_ptr<CompileJob> DeviceProgram::job(const KernelKind& kind, Making making) {
  const std::lock_guard lock(mutex_);
  Jobs& jobs = jobs_[static_cast<std::size_t>(making)];
  auto found = std::find_if(jobs.begin(), jobs.end(), [&](const auto& entry) { return entry.first == kind; });
  if (found == jobs.end()) {
    jobs.emplace_back(kind, std::make_shared<CompileJob>());
  } else {
    std::rotate(found, found + 1, jobs.end());
  }
  return jobs.back().second;
}

ProgramStatus DeviceProgram::status() const {
  ProgramStatus status;
  std::shared_ptr<CompileJob> refused, direct, compiled;
  {
    const std::lock_guard lock(mutex_);
    status.evaluations = evaluations_;
    status.served = served_;
    status.device_seconds = device_seconds_;
    const auto lastOf = [&](Making making) {
      const Jobs& jobs = jobs_[static_cast<std::size_t>(making)];
      return jobs.empty() ? nullptr : jobs.back().second;
    };
    if (direct_refusal_) {
      status.error = direct_refusal_;
    } else {
      direct = lastOf(Making::kDirect);
    }
    refused = lastOf(Making::kCompiledRefused);
    compiled = lastOf(Making::kCompiled);
  }
  // The better code is the later one.
  const auto add = [&](const std::shared_ptr<CompileJob>& job, Tier tier) {
    if (job == nullptr) return;
    const std::lock_guard lock(job->mutex);
    status.compiling = status.compiling || job->running;
    if (job->error) status.error = job->error;
    if (job->code == nullptr) return;
    const DeviceCode& code = *job->code;
    status.tier = tier;
    status.seconds_compiling = job->seconds;
    status.seconds_reading = code.seconds_reading;
    status.seconds_loading = code.seconds_loading;
    status.compiled = code.compiled.size() + (code.direct ? code.direct->expressions : 0);
    if (code.trouble) status.error = code.trouble;
  };
  // Beside the interpreter, which serves the others.
  add(refused, Tier::kInterpret);
  add(direct, Tier::kDirect);
  add(compiled, Tier::kCompile);
  return status;
}

double DeviceProgram::countEvaluation() {
  const std::lock_guard lock(mutex_);
  const auto done = static_cast<double>(evaluations_++);
  return std::max(expected_passes_ - done, done);
}

void DeviceProgram::setServed(const ServedExpressions& served) {
  const std::lock_guard lock(mutex_);
  served_ = served;
}

void DeviceProgram::setDeviceSeconds(double seconds) {
  const std::lock_guard lock(mutex_);
  device_seconds_ = seconds;
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
