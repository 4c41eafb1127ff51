#include "tools/bench/gpu_report.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <span>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "compiler/kernels/identity.h"
#include "runtime/cuda/context.h"
#include "tools/files/output.h"
#include "tools/machine.h"

namespace srjit {

using Json = nlohmann::ordered_json;

double quantileOf(std::vector<double> values, double part) {
  std::ranges::sort(values);
  const double place = part * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  return std::lerp(values[below], values[std::min(below + 1, values.size() - 1)], place - std::floor(place));
}

double Figure::value() const { return medianOf(samples); }

bool Figure::reached() const {
  if (!target) return true;
  return target->kind == Target::Kind::kAtLeast ? value() >= target->value : value() <= target->value;
}

bool Figure::moreIsBetter() const { return target ? target->kind == Target::Kind::kAtLeast : unit.ends_with("/s"); }

void GpuReport::add(const std::string& part, Figure figure) { figures_.emplace_back(part, std::move(figure)); }

void GpuReport::attach(const std::string& part, Json details) { details_[part] = std::move(details); }

void GpuReport::addFault(const std::string& part, const std::string& message) {
  faults_.push_back({{"part", part}, {"message", message}});
}

void GpuReport::addNotRun(const std::string& part, const std::string& name, const std::string& reason) {
  Json row = {{"part", part}, {"name", name}, {"reason", reason}};
  if (std::ranges::find(not_run_, row) == not_run_.end()) not_run_.push_back(std::move(row));
}

Status GpuReport::save(bool complete) const {
  if (path_.empty()) return okStatus();
  Json figures = Json::array();
  for (const auto& [part, figure] : figures_) {
    const auto [least, most] = std::minmax_element(figure.samples.begin(), figure.samples.end());
    Json row = {{"part", part},
                {"what", figure.what},
                {"value", figure.value()},
                {"unit", figure.unit},
                {"better", figure.moreIsBetter() ? "more" : "less"},
                {"min", *least},
                {"quartile1", quantileOf(figure.samples, 0.25)},
                {"quartile3", quantileOf(figure.samples, 0.75)},
                {"max", *most},
                {"samples", figure.samples.size()}};
    if (figure.extrapolated) row["extrapolated"] = true;
    if (figure.target) {
      row["target"] = figure.target->value;
      row["direction"] = figure.target->kind == Target::Kind::kAtLeast ? "at least" : "at most";
      row["reached"] = figure.reached();
    }
    if (!figure.note.empty()) row["note"] = figure.note;
    figures.push_back(std::move(row));
  }
  const Json all = {{"machine", machine_}, {"complete", complete}, {"faults", faults_},
                    {"not_run", not_run_}, {"figures", figures},   {"details", details_}};
  auto file = OutputFile::create(path_);
  if (!file) return std::move(file).error();
  file->write(all.dump(1, ' ', false, Json::error_handler_t::replace) + '\n');
  return file->publish();
}

std::string GpuReport::heading() const {
  std::string text;
  const auto add = [&](const char* fact, const char* format) {
    const auto found = machine_.find(fact);
    if (found == machine_.end() || found->is_null()) return;
    const std::string value = found->is_string() ? found->get<std::string>() : found->dump();
    text += (text.empty() ? "" : ", ") + fmt::format(fmt::runtime(format), value);
  };
  add("device", "{}");
  add("device_name", "{}");
  add("driver", "{}");
  add("processor", "{}");
  add("host_cores", "{} host threads");
  add("commit", "{}");
  add("date", "{}");
  return text + '\n';
}

std::string GpuReport::newRows() {
  const auto added = std::span(figures_).subspan(std::exchange(shown_figures_, figures_.size()));
  std::size_t width = 0;
  for (const auto& [part, figure] : added) width = std::max(width, figure.what.size());
  std::string text;
  for (const auto& [part, figure] : added) {
    std::string target;
    if (figure.target) {
      const char* const sign = figure.target->kind == Target::Kind::kAtLeast ? ">=" : "<=";
      target = fmt::format("{} {} {:.4g}", figure.reached() ? "reached" : "MISSED ", sign, figure.target->value);
    }
    const auto [least, most] = std::minmax_element(figure.samples.begin(), figure.samples.end());
    text += fmt::format("{:<14} {:<{}} {:>9.4g} {:<18} {:<18} [{:.4g} .. {:.4g}, {} samples]\n", part, figure.what,
                        width, figure.value(), figure.unit, target, *least, *most, figure.samples.size());
    if (figure.extrapolated) text += fmt::format("{:<14} (extrapolated)\n", "");
    if (!figure.note.empty()) text += fmt::format("{:<14} ({})\n", "", figure.note);
  }
  const auto add = [&](const char* word, const Json& row, const std::string& message) {
    text += fmt::format("{:<14} {}: {}\n", word, row["part"].get<std::string>(), message);
  };
  while (shown_not_run_ < not_run_.size()) {
    const Json& row = not_run_[shown_not_run_];
    std::string names;
    for (; shown_not_run_ < not_run_.size(); ++shown_not_run_) {
      const Json& next = not_run_[shown_not_run_];
      if (next["part"] != row["part"] || next["reason"] != row["reason"]) break;
      names += (names.empty() ? "" : ", ") + next["name"].get<std::string>();
    }
    add("not run", row, names + ": " + row["reason"].get<std::string>());
  }
  for (; shown_faults_ < faults_.size(); ++shown_faults_) {
    add("FAILED", faults_[shown_faults_], faults_[shown_faults_]["message"].get<std::string>());
  }
  return text;
}

Json describeMachine(const std::string& device, const std::string& commit) {
  char date[32] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
  // "sr-jit VERSION HASH; ...": the rest describes tools.
  const std::string identity = compilerIdentity(), build = identity.substr(0, identity.find(';'));
  Json machine = {{"date", date},
                  {"commit", commit.empty() ? build : commit},
                  {"build", build},
                  {"device", device},
                  {"host_cores", std::thread::hardware_concurrency()}};
  for (const Finding& finding : inspectMachine()) {
    if (!finding.found) continue;
    machine["found"][finding.name] = finding.what;
    if (finding.name == "processor") machine["processor"] = finding.what.substr(0, finding.what.find(" ("));
  }
  const auto driver = loadDriver();
  if (!driver || !device.starts_with("cuda:")) return machine;
  const auto devices = listDevices(**driver);
  if (!devices) return machine;
  for (const DeviceLimits& limits : *devices) {
    if (device != fmt::format("cuda:{}", limits.ordinal)) continue;
    machine["device_name"] = limits.name;
    machine["capability"] = limits.capability;
    machine["multiprocessors"] = limits.multiprocessors;
    machine["memory_bytes"] = limits.memory_bytes;
    machine["driver"] = "CUDA " + cudaVersionText(limits.driver_version);
  }
  return machine;
}

}  // namespace srjit
