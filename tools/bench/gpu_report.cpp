#include "tools/bench/gpu_report.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <thread>

#include <fmt/format.h>

#include "runtime/assembler.h"
#include "runtime/cuda_context.h"
#include "tools/machine.h"
#include "tools/output_file.h"

namespace srjit {

using Json = nlohmann::ordered_json;

double quantileOf(std::vector<double> values, double part) {
  const auto place = static_cast<std::size_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(place), values.end());
  return values[place];
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
  const Json all = {
      {"machine", machine_}, {"complete", complete}, {"faults", faults_}, {"figures", figures}, {"details", details_}};
  auto file = OutputFile::create(path_);
  if (!file) return std::move(file).error();
  file->write(all.dump(1, ' ', false, Json::error_handler_t::replace) + '\n');
  return file->publish();
}

std::string GpuReport::table() const {
  std::string text;
  for (const auto& [part, figure] : figures_) {
    std::string target;
    if (figure.target) {
      const char* const sign = figure.target->kind == Target::Kind::kAtLeast ? ">=" : "<=";
      target = fmt::format("{} {} {:.4g}", figure.reached() ? "reached" : "MISSED ", sign, figure.target->value);
    }
    const auto [least, most] = std::minmax_element(figure.samples.begin(), figure.samples.end());
    text += fmt::format("{:<10} {:<74} {:>9.4g} {:<18} {:<18} [{:.4g} .. {:.4g}, {} samples]\n", part, figure.what,
                        figure.value(), figure.unit, target, *least, *most, figure.samples.size());
    if (figure.extrapolated) text += fmt::format("{:<10} (extrapolated)\n", "");
    if (!figure.note.empty()) text += fmt::format("{:<10} ({})\n", "", figure.note);
  }
  for (const Json& fault : faults_) {
    text += fmt::format("FAILED     {}: {}\n", fault["part"].get<std::string>(), fault["message"].get<std::string>());
  }
  return text;
}

Json describeMachine(const std::string& device, const std::string& commit) {
  char date[32] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
  Json machine = {{"date", date},
                  {"commit", commit.empty() ? Json() : Json(commit)},
                  {"device", device},
                  {"host_cores", std::thread::hardware_concurrency()}};
  for (const Finding& finding : inspectMachine()) {
    if (finding.found) machine["found"][finding.name] = finding.what;
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
