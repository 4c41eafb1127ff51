// The benchmark: one harness, and a table of scenarios. `sr-jit bench` starts it (sr-jit-bench).
//
// Tables, which hold what differs between scenarios:
//   scenarios.def  name, time limit, what it measures; the function bench<Id>(const Bench&) is in scenarios/
//   targets.def    limits of figures, by scenario and name
//   designs/       published evaluators that are measured in the same run (designs/baseline.h)
//
// Types: a scenario gets a Bench, the options of the run with the scenario's deadline, and gives samples to its Report
// as figures. A figure is one metric of a Subject; samples of times are in seconds, of rates per second.
// Data and populations are in work.h; a failed measurement throws BenchFailure (designs/baseline.h) or CudaFailure.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/engine.h"
#include "runtime/platform/clock.h"
#include "tools/bench/designs/baseline.h"

namespace srjit {

using Json = nlohmann::ordered_json;

/// What a figure is about: words for the table, and the same as facts for programs that read the JSON.
struct Subject {
  std::string words;
  Json facts = Json::object();

  /// This subject with more words, if any, after a comma, and more facts.
  Subject with(std::string_view more, const Json& more_facts = Json::object()) const;
};

/// Precondition: `values` is not empty.
double medianOf(std::vector<double> values);

/// The figures of a run, which save() writes as JSON. Not thread-safe.
class Report {
 public:
  /// `path` is where save() writes; empty for nowhere.
  Report(Json machine, std::string path) : machine_(std::move(machine)), path_(std::move(path)) {}

  void add(Json figure) { figures_.push_back(std::move(figure)); }
  void addFault(const std::string& scenario, const std::string& message);
  bool hasFaults() const noexcept { return !faults_.empty(); }
  /// A measurement that this machine cannot do, or that had no time; not a fault. Reported once.
  void addNotRun(const std::string& scenario, const std::string& name, const std::string& reason);

  Json json(bool complete) const;
  /// Replaces the file at once, so a killed run leaves the last complete one. Errors: kIo.
  Status save(bool complete) const;
  /// The machine in one line.
  std::string heading() const;

 private:
  Json machine_;
  std::string path_;
  Json figures_ = Json::array(), faults_ = Json::array(), not_run_ = Json::array();
};

/// Device, driver, processor, date and build; `device` as Engine::options() has it. `commit` is the commit of the
/// build; if empty, the report has the library's version and the hash of its sources instead.
Json describeMachine(const std::string& device, const std::string& commit);

/// What a scenario gets. Copies with other options may be made.
struct Bench {
  std::string scenario;
  std::string device = {};   ///< "cpu" or "cuda:N"
  std::string scratch = {};  ///< a directory for this scenario only
  std::string warm = {};     ///< a cache directory with the kernels that a machine makes once; empty: none
  bool quick = false;        ///< small sizes
  double seconds = 0;        ///< time limit
  Stopwatch started = {};
  Report* report = nullptr;
  bool losses = true, predictions = true;  ///< results to measure
  bool designs = true;                     ///< whether to measure published designs
  std::string data_file = {};              ///< of thesis-1 to -3; empty: generated
  std::string export_folder = {};          ///< where `gradients` writes its fits; empty: nowhere

  double left() const { return seconds - started.seconds(); }
  bool onGpu() const { return device != "cpu"; }
  /// Device ordinal of the GPU; 0 on a processor.
  unsigned ordinal() const { return onGpu() ? static_cast<unsigned>(std::stoul(device.substr(5))) : 0; }
  /// Whether there is time to start a piece; if not, the report records it as not run.
  bool mayBegin(const std::string& piece) const;

  /// A cache directory in the scratch directory, initialised as a copy of the warm one: it has no kernels of
  /// expressions except those that this scenario compiled under this name.
  std::string cacheDirectory(const std::string& name = "cache") const;
  /// Options of an engine on the device, with cacheDirectory().
  EngineOptions options(Math math = Math::kFast) const;
  Engine engine(Math math = Math::kFast) const { return must(Engine::create(options(math))); }

  /// Calls `body`, which returns a sample, at most `count` times in at most `limit` seconds, but at least once; a quick
  /// run takes at most 3 samples in a fifth of the time.
  std::vector<double> sample(std::size_t count, double limit, const std::function<double()>& body) const;
  /// Prints a figure, the median of samples of one metric, and gives it to the report. There is at least one sample, in
  /// seconds or per second; `unit` begins with the prefix that scales them: "ms", "us/expression", "T nodes/s".
  /// `extrapolated`: scaled from fewer expressions or steps.
  void add(const Subject& subject, const char* metric, const char* unit, std::vector<double> samples,
           std::string note = {}, bool extrapolated = false) const;
};

#define SRJIT_SCENARIO(id, name, seconds, data, doc) void bench##id(const Bench& bench);
#include "tools/bench/scenarios.def"
#undef SRJIT_SCENARIO

}  // namespace srjit
