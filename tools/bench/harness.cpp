#include "tools/bench/harness.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "compiler/kernels/image_maker.h"
#include "runtime/cuda/context.h"
#include "tools/files/output.h"
#include "tools/machine.h"

namespace srjit {
namespace {

/// One row of targets.def.
struct Target {
  std::string_view scenario, figure;
  bool on_gpu, at_least;
  double value;
};

constexpr Target kTargets[] = {
#define SRJIT_TARGET(scenario, figure, on_gpu, at_least, value) {scenario, figure, on_gpu, at_least, value},
#include "tools/bench/targets.def"
#undef SRJIT_TARGET
};

/// What samples in seconds or per second are multiplied by.
double scaleOf(std::string_view unit) {
  constexpr std::pair<std::string_view, double> kPrefixes[] = {
      {"ms", 1e3}, {"us", 1e6}, {"ns", 1e9}, {"ps", 1e12}, {"T ", 1e-12}};
  for (const auto& [prefix, scale] : kPrefixes) {
    if (unit.starts_with(prefix)) return scale;
  }
  return 1;
}

/// The quantile `part` (0 to 1) of sorted values, by linear interpolation between adjacent values.
double quantileOf(std::span<const double> sorted, double part) {
  const double place = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  return std::lerp(sorted[below], sorted[std::min(below + 1, sorted.size() - 1)], place - std::floor(place));
}

void printLine(const std::string& line) {
  std::fputs((line + '\n').c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

double medianOf(std::vector<double> values) {
  std::ranges::sort(values);
  return quantileOf(values, 0.5);
}

Subject Subject::with(std::string_view more, const Json& more_facts) const {
  Subject subject{words, facts};
  if (!more.empty()) subject.words = words.empty() ? std::string(more) : fmt::format("{}, {}", words, more);
  subject.facts.update(more_facts);
  return subject;
}

bool Bench::mayBegin(const std::string& piece) const {
  if (left() > 0) return true;
  report->addNotRun(scenario, piece, fmt::format("the {:g} s were up", seconds));
  return false;
}

std::string Bench::cacheDirectory(const std::string& name) const {
  const std::filesystem::path directory = std::filesystem::path(scratch) / name;
  if (!warm.empty() && std::filesystem::exists(warm) && !std::filesystem::exists(directory)) {
    std::filesystem::copy(warm, directory, std::filesystem::copy_options::recursive);
  }
  return directory.string();
}

EngineOptions Bench::options(Math math) const {
  return {.device = device, .math = math, .cache_directory = cacheDirectory()};
}

std::vector<double> Bench::sample(std::size_t count, double limit, const std::function<double()>& body) const {
  if (quick) {
    count = std::min<std::size_t>(count, 3);
    limit /= 5;
  }
  const Stopwatch watch;
  std::vector<double> samples;
  do {
    samples.push_back(body());
  } while (samples.size() < count && watch.seconds() < limit && left() > 0);
  return samples;
}

void Bench::add(const Subject& subject, const char* metric, const char* unit, std::vector<double> samples,
                std::string note, bool extrapolated) const {
  for (double& sample : samples) sample *= scaleOf(unit);
  std::vector<double> sorted = samples;
  std::ranges::sort(sorted);
  const std::string name = fmt::format("{}: {}", subject.words, metric);
  const double value = quantileOf(sorted, 0.5);
  const auto* const target = std::ranges::find_if(kTargets, [&](const Target& row) {
    return row.scenario == scenario && row.figure == name && row.on_gpu == onGpu();
  });
  const bool has_target = target != std::end(kTargets);
  const bool more_is_better = has_target ? target->at_least : std::string_view(unit).ends_with("/s");
  Json row = {{"part", scenario},
              {"what", name},
              {"metric", metric},
              {"facts", subject.facts},
              {"value", value},
              {"unit", unit},
              {"better", more_is_better ? "more" : "less"},
              {"min", sorted.front()},
              {"quartile1", quantileOf(sorted, 0.25)},
              {"quartile3", quantileOf(sorted, 0.75)},
              {"max", sorted.back()},
              {"samples", samples.size()},
              {"values", samples}};
  std::string verdict;
  if (has_target) {
    const bool reached = target->at_least ? value >= target->value : value <= target->value;
    row["target"] = target->value;
    row["direction"] = target->at_least ? "at least" : "at most";
    row["reached"] = reached;
    verdict =
        fmt::format("{} {} {:.4g}", reached ? "reached" : "MISSED ", target->at_least ? ">=" : "<=", target->value);
  }
  if (extrapolated) row["extrapolated"] = true;
  if (!note.empty()) row["note"] = note;
  printLine(fmt::format("{:<14} {:<80} {:>9.4g} {:<18} {:<18} [{:.4g} .. {:.4g}, {} samples]", scenario, name, value,
                        unit, verdict, sorted.front(), sorted.back(), samples.size()));
  if (extrapolated) printLine(fmt::format("{:<14} (extrapolated)", ""));
  if (!note.empty()) printLine(fmt::format("{:<14} ({})", "", note));
  report->add(std::move(row));
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
  for (const char* const fact : {"device", "device_name", "driver", "processor", "host_cores", "commit", "date"}) {
    const auto found = machine_.find(fact);
    if (found == machine_.end() || found->is_null()) continue;
    if (!text.empty()) text += ", ";
    text += found->is_string() ? found->get<std::string>() : found->dump() + " host threads";
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
