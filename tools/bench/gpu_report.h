// The report of the GPU benchmark: figures with their targets, as a table and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ir/error.h"

namespace srjit {

/// The limit that a figure must keep.
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
  bool extrapolated = false;  ///< scaled from a smaller measurement

  double value() const;
  bool reached() const;
  /// Whether more is better: by the target or, without one, for rates ("T nodes/s").
  bool moreIsBetter() const;
};

/// The quantile `part` (0 to 1) of `values`, by linear interpolation between adjacent values. Precondition: `values` is
/// not empty.
double quantileOf(std::vector<double> values, double part);
inline double medianOf(std::vector<double> values) { return quantileOf(std::move(values), 0.5); }

/// Not thread-safe.
class GpuReport {
 public:
  /// `path` is where save() writes; empty for nowhere.
  GpuReport(nlohmann::ordered_json machine, std::string path) : machine_(std::move(machine)), path_(std::move(path)) {}

  void add(const std::string& part, Figure figure);
  /// Other measurements of a part.
  void attach(const std::string& part, nlohmann::ordered_json details);
  void addFault(const std::string& part, const std::string& message);
  bool hasFaults() const noexcept { return !faults_.empty(); }
  /// Records a measurement that this machine cannot do, or for which there was no time; not a fault.
  void addNotRun(const std::string& part, const std::string& name, const std::string& reason);

  /// Writes all results so far. The file is replaced atomically, so a killed run leaves the last complete one. Errors:
  /// kIo.
  Status save(bool complete) const;

  /// The machine in one line.
  std::string heading() const;
  /// Table rows of the figures added since the last call.
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

/// Device, driver, processor, date and build; `device` as Engine::options() has it. `commit` is the commit of the
/// build; if empty, the report has the library's version and the hash of its sources instead.
nlohmann::ordered_json describeMachine(const std::string& device, const std::string& commit);

}  // namespace srjit
