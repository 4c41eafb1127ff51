#include "tools/bench/harness.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

namespace srjit {
namespace {

/// What samples in seconds or per second are multiplied by.
double scaleOf(std::string_view unit) {
  constexpr std::pair<std::string_view, double> kPrefixes[] = {
      {"ms", 1e3}, {"us", 1e6}, {"ns", 1e9}, {"ps", 1e12}, {"T ", 1e-12}};
  for (const auto& [prefix, scale] : kPrefixes) {
    if (unit.starts_with(prefix)) return scale;
  }
  return 1;
}

}  // namespace

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
  report->add(scenario, onGpu(), {subject, metric, unit, std::move(samples), std::move(note), extrapolated});
}

}  // namespace srjit
