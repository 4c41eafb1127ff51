#include "runtime/code/calibration.h"

#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "runtime/platform/guarded.h"

namespace srjit {
namespace {

// A measurement moves a cost by this part of the way, so that one unusual evaluation does not decide.
constexpr double kWeight = 0.25;

// The disk is written when a cost has changed by this factor.
constexpr double kWorthWriting = 1.1;

constexpr std::pair<const char*, double DeviceCosts::*> kFields[] = {{"interpret", &DeviceCosts::interpret},
                                                                     {"direct", &DeviceCosts::direct},
                                                                     {"compiled", &DeviceCosts::compiled},
                                                                     {"write", &DeviceCosts::write},
                                                                     {"compile", &DeviceCosts::compile}};

bool isCost(double value) { return std::isfinite(value) && value > 0; }

}  // namespace

Calibration::Calibration(std::shared_ptr<KernelCache> cache, std::string name, const DeviceCosts& typical, Post post)
    : cache_(std::move(cache)), name_("costs of " + std::move(name)), post_(std::move(post)), costs_(typical) {
  const std::string stored = cache_->readFact(name_).value_or("");
  for (const auto& [key, cost] : kFields) {
    const llvm::StringRef text = llvm::StringRef(stored).split(fmt::format(R"("{}":)", key)).second.ltrim();
    double value = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
    const bool is_whole = error == std::errc() && end != text.end() && (*end == ',' || *end == '}');
    if (is_whole && isCost(value)) written_.*cost = costs_.*cost = value;
  }
}

DeviceCosts Calibration::costs() const {
  const std::lock_guard lock(mutex_);
  return costs_;
}

void Calibration::add(double DeviceCosts::* field, double value) {
  if (!isCost(value)) return;
  {
    const std::lock_guard lock(mutex_);
    costs_.*field = std::pow(costs_.*field, 1 - kWeight) * std::pow(value, kWeight);
    const double change = costs_.*field / written_.*field;
    if (change >= kWorthWriting || change <= 1 / kWorthWriting) has_changed_ = true;
  }
  writeInBackground();
}

// Another process may hold the lock of the file, so no thread that evaluates writes. Where the task cannot be queued,
// the next change is written with this one.
void Calibration::writeInBackground() {
  if (!post_ || !has_changed_ || is_writing_.exchange(true)) return;
  const Status queued = guarded([this] {
    post_([this] {
      Status written = okStatus();
      do {
        written = guarded([this] { return write(), okStatus(); });
        is_writing_ = false;
      } while (written && has_changed_ && !is_writing_.exchange(true));
    });
    return okStatus();
  });
  if (!queued) is_writing_ = false;
}

void Calibration::write() {
  const std::lock_guard writing(writing_mutex_);
  std::string fact;
  {
    const std::lock_guard lock(mutex_);
    if (!has_changed_) return;
    for (const auto& [key, cost] : kFields) {
      fact += fmt::format(R"({}"{}":{})", fact.empty() ? "{" : ",", key, costs_.*cost);
    }
    fact += '}';
    has_changed_ = false;  // not before, since memory may fail
    written_ = costs_;
  }
  cache_->writeFact(name_, fact);
}

void Calibration::addRun(double DeviceCosts::* tier, double node_rows, double seconds) {
  if (node_rows >= kLeastMeasured) add(tier, seconds / node_rows);
}

void Calibration::addMaking(double DeviceCosts::* making, double nodes, double core_seconds) {
  if (nodes > 0) add(making, core_seconds / nodes);
}

}  // namespace srjit
