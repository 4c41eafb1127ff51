// An identity pass that can block code generation.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include <gtest/gtest.h>

#include "passes/pass.h"

namespace srjit {

/// Thread-safe.
class HeldPass {
 public:
  HeldPass() {
    const auto run = [state = state_](const Dag& dag, const PassContext&) -> Dag {
      std::unique_lock lock(state->mutex);
      ++state->runs;
      ++state->held;
      state->changed.notify_all();
      state->changed.wait(lock, [&] { return !state->holding; });
      --state->held;
      return dag;
    };
    EXPECT_TRUE(registerPass({name_, run, Exactness::kExact, "a pass of a test"}).ok());
  }
  ~HeldPass() { release(); }
  HeldPass(const HeldPass&) = delete;
  HeldPass& operator=(const HeldPass&) = delete;

  Pipeline pipeline(Math math) const { return Pipeline::parse("standard," + name_ + ",schedule", math).value(); }

  /// Runs from now on wait until release().
  void hold() {
    const std::scoped_lock lock(state_->mutex);
    state_->holding = true;
  }
  void release() {
    const std::scoped_lock lock(state_->mutex);
    state_->holding = false;
    state_->changed.notify_all();
  }
  /// Until a run is waiting.
  void waitUntilHeld() {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->holding && state_->held > 0; });
  }
  /// Runs so far.
  std::size_t runs() const {
    const std::scoped_lock lock(state_->mutex);
    return state_->runs;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t runs = 0, held = 0;
    bool holding = false;
  };
  inline static std::atomic<unsigned> made = 0;  // passes stay registered, so each has a name of its own
  const std::string name_ = "held-" + std::to_string(made++);
  std::shared_ptr<State> state_ = std::make_shared<State>();  ///< the registered pass lives longer
};

}  // namespace srjit
