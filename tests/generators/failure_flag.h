// Whether a test has failed, for threads that fail at the same time.
#pragma once

#include <atomic>

#include <gtest/gtest.h>

namespace srjit {

/// Set by a failure of any thread since it was made. testing::Test::HasFailure() may not be asked while other threads
/// fail.
class FailureFlag {
 public:
  FailureFlag() { testing::UnitTest::GetInstance()->listeners().Append(listener_); }
  ~FailureFlag() { delete testing::UnitTest::GetInstance()->listeners().Release(listener_); }
  FailureFlag(const FailureFlag&) = delete;
  FailureFlag& operator=(const FailureFlag&) = delete;
  bool isSet() const { return listener_->failed; }

 private:
  struct Listener : testing::EmptyTestEventListener {
    void OnTestPartResult(const testing::TestPartResult& result) override { failed = failed || result.failed(); }
    std::atomic<bool> failed = false;
  };
  Listener* const listener_ = new Listener;  // the list of listeners owns it
};

}  // namespace srjit
