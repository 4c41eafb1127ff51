// The report of a run, as a table and as JSON.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <thread>

#include <fmt/format.h>

#include "compiler/kernels/image_maker.h"
#include "runtime/cuda/context.h"
#include "tools/bench/harness.h"
#include "tools/files/output.h"
#include "tools/machine.h"

namespace srjit {
namespace {

constexpr Target kTargets[] = {
#define SRJIT_TARGET(scenario, figure, on_gpu, at_least, value) {scenario, figure, on_gpu, at_least, value},
#include "tools/bench/targets.def"
#undef SRJIT_TARGET
};

const Target* targetOf(const std::string& scenario, const std::string& name, bool on_gpu) {
  const auto* const found = std::ranges::find_if(kTargets, [&](const Target& target) {
    return target.scenario == scenario && target.figure == name && target.on_gpu == on_gpu;
  });
  return found == std::end(kTargets) ? nullptr : found;
}

void printLine(const std::string& line) {
  std::fputs((line + '\n').c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

double quantileOf(std::vector<double> values, double part) {
  std::ranges::sort(values);
  const double place = part * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  return std::lerp(values[below], values[std::min(below + 1, values.size() - 1)], place - std::floor(place));
}

double Figure::value() const { return medianOf(samples); }

void Report::add(const std::string& scenario, bool on_gpu, Figure figure) {
  const std::string name = figure.name();
  const Target* const target = targetOf(scenario, name, on_gpu);
  const double value = figure.value();
  const auto [least, most] = std::minmax_element(figure.samples.begin(), figure.samples.end());
  const bool more_is_better = target != nullptr ? target->at_least : figure.unit.ends_with("/s");
  Json row = {{"part", scenario},
              {"what", name},
              {"metric", figure.metric},
              {"facts", figure.subject.facts},
              {"value", value},
              {"unit", figure.unit},
              {"better", more_is_better ? "more" : "less"},
              {"min", *least},
              {"quartile1", quantileOf(figure.samples, 0.25)},
              {"quartile3", quantileOf(figure.samples, 0.75)},
              {"max", *most},
              {"samples", figure.samples.size()},
              {"values", figure.samples}};
  std::string verdict;
  if (target != nullptr) {
    const bool reached = target->at_least ? value >= target->value : value <= target->value;
    row["target"] = target->value;
    row["direction"] = target->at_least ? "at least" : "at most";
    row["reached"] = reached;
    verdict =
        fmt::format("{} {} {:.4g}", reached ? "reached" : "MISSED ", target->at_least ? ">=" : "<=", target->value);
  }
  if (figure.extrapolated) row["extrapolated"] = true;
  if (!figure.note.empty()) row["note"] = figure.note;
  printLine(fmt::format("{:<14} {:<80} {:>9.4g} {:<18} {:<18} [{:.4g} .. {:.4g}, {} samples]", scenario, name, value,
                        figure.unit, verdict, *least, *most, figure.samples.size()));
  if (figure.extrapolated) printLine(fmt::format("{:<14} (extrapolated)", ""));
  if (!figure.note.empty()) printLine(fmt::format("{:<14} ({})", "", figure.note));
  figures_.push_back(std::move(row));
}

void Report::addFault(const std::string& scenario, const std::string& message) {
  faults_.push_back({{"part", scenario}, {"message", message}});
  printLine(fmt::format("{:<14} {}: {}", "FAILED", scenario, message));
}

void Report::addNotRun(const std::string& scenario, const std::string& name, const std::string& reason) {
  Json row = {{"part", scenario}, {"name", name}, {"reason", reason}};
  if (std::ranges::find(not_run_, row) != not_run_.end()) return;
  not_run_.push_back(std::move(row));
  printLine(fmt::format("{:<14} {}: {}: {}", "not run", scenario, name, reason));
}

Json Report::json(bool complete) const {
  return {
      {"machine", machine_}, {"complete", complete}, {"faults", faults_}, {"not_run", not_run_}, {"figures", figures_}};
}

Status Report::save(bool complete) const {
  if (path_.empty()) return okStatus();
  auto file = OutputFile::create(path_);
  if (!file) return std::move(file).error();
  file->write(json(complete).dump(1, ' ', false, Json::error_handler_t::replace) + '\n');
  return file->publish();
}

std::string Report::heading() const {
  std::string text;
  for (const auto& [fact, format] : {std::pair("device", "{}"),
                                     {"device_name", "{}"},
                                     {"driver", "{}"},
                                     {"processor", "{}"},
                                     {"host_cores", "{} host threads"},
                                     {"commit", "{}"},
                                     {"date", "{}"}}) {
    const auto found = machine_.find(fact);
    if (found == machine_.end() || found->is_null()) continue;
    const std::string value = found->is_string() ? found->get<std::string>() : found->dump();
    text += (text.empty() ? "" : ", ") + fmt::format(fmt::runtime(format), value);
  }
  return text + '\n';
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
