// What the benchmark of the GPU found out: figures with their targets, as a table and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ir/error.h"

namespace srjit {

/// What a figure has to reach.
struct Target {
  enum class Kind { kAtLeast, kAtMost };
  Kind kind;
  double value;
};
inline Target atLeast(double value) { return {Target::Kind::kAtLeast, value}; }
inline Target atMost(double value) { return {Target::Kind::kAtMost, value}; }

/// One row of the table; its value is the median of the samples, of which there is at least one.
struct Figure {
  std::string what;
  std::string unit;
  std::vector<double> samples;
  std::optional<Target> target = {};
  std::string note = {};
  bool extrapolated = false;  ///< less was measured than the figure says, and scaled

  double value() const;
  bool reached() const;
  /// Whether more is better: as the target says, else of rates ("T nodes/s").
  bool moreIsBetter() const;
};

/// The value that `part` (0 to 1) of the values are below, by linear interpolation between the two beside it.
/// `values` is not empty.
double quantileOf(std::vector<double> values, double part);
inline double medianOf(std::vector<double> values) { return quantileOf(std::move(values), 0.5); }

/// Not thread-safe.
class GpuReport {
 public:
  /// `path` is where save() writes; empty for nowhere.
  GpuReport(nlohmann::ordered_json machine, std::string path) : machine_(std::move(machine)), path_(std::move(path)) {}

  void add(const std::string& part, Figure figure);
  /// Whatever else a part has measured.
  void attach(const std::string& part, nlohmann::ordered_json details);
  void addFault(const std::string& part, const std::string& message);
  bool hasFaults() const noexcept { return !faults_.empty(); }
  /// What a part could not measure on this machine, or had no time for; no fault.
  void addNotRun(const std::string& part, const std::string& name, const std::string& reason);

  /// Writes all that is there; the file is replaced at once, so that a kill leaves the last complete one. Errors: kIo.
  Status save(bool complete) const;

  /// The machine in one line.
  std::string heading() const;
  /// The table's rows of what was added since the last call.
  std::string newRows();

 private:
  nlohmann::ordered_json machine_;
  std::string path_;
  std::vector<std::pair<std::string, Figure>> figures_;
  nlohmann::ordered_json details_ = nlohmann::ordered_json::object();
  nlohmann::ordered_json faults_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json not_run_ = nlohmann::ordered_json::array();
  std::size_t shown_figures_ = 0, shown_faults_ = 0, shown_not_run_ = 0;
};

/// Device, driver, processor, date and build; `device` as Engine::options() has it. `commit` is what was built, if that
/// is known; otherwise the library's version and the hash of its sources stand there.
nlohmann::ordered_json describeMachine(const std::string& device, const std::string& commit);

}  // namespace srjit
