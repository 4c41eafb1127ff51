#include "runtime/device_program.h"

#include <algorithm>

namespace srjit {

DeviceProgram::DeviceProgram(Tier tier, double expected_passes, std::shared_ptr<const DeviceCode> interpreted)
    : tier_(tier), expected_passes_(expected_passes), interpreted_(std::move(interpreted)) {
  for (const Failure& failure : interpreted_->failures) {
    if (isRefusal(failure)) refused_.push_back(static_cast<std::uint32_t>(failure.expression));
  }
}

DeviceProgram::~DeviceProgram() {
  for (const Jobs* const jobs : {&jobs_, &jobs_of_refused_}) {
    for (const auto& [kind, job] : *jobs) job->cancelled = true;
  }
  life_.reset();
  for (const auto& idle : idle_) {
    if (const auto runs = idle.lock()) runs->dropOrphans();
  }
}

std::shared_ptr<CompileJob> DeviceProgram::job(const KernelKind& kind, Scope scope) {
  const std::lock_guard lock(mutex_);
  Jobs& jobs = scope == Scope::kAll ? jobs_ : jobs_of_refused_;
  auto found = std::find_if(jobs.begin(), jobs.end(), [&](const auto& entry) { return entry.first == kind; });
  if (found == jobs.end()) {
    jobs.emplace_back(kind, std::make_shared<CompileJob>());
  } else {
    std::rotate(found, found + 1, jobs.end());
  }
  return jobs.back().second;
}

ProgramStatus DeviceProgram::status() const {
  std::shared_ptr<CompileJob> job;
  ProgramStatus status;
  {
    const std::lock_guard lock(mutex_);
    status.evaluations = evaluations_;
    status.device_seconds = device_seconds_;
    if (!jobs_.empty()) job = jobs_.back().second;
  }
  if (job == nullptr) return status;
  const std::lock_guard lock(job->mutex);
  status.compiling = job->running;
  status.seconds_compiling = job->seconds;
  status.error = job->error;
  if (job->code != nullptr) {
    status.tier = Tier::kCompile;
    status.compiled = job->code->compiled.size();
    if (!status.error) status.error = job->code->trouble;
  }
  return status;
}

double DeviceProgram::countEvaluation() {
  const std::lock_guard lock(mutex_);
  const auto done = static_cast<double>(evaluations_++);
  return std::max(expected_passes_ - done, done);
}

void DeviceProgram::setDeviceSeconds(double seconds) {
  const std::lock_guard lock(mutex_);
  device_seconds_ = seconds;
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
