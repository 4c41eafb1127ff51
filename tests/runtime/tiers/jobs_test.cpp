// Jobs that make code: how they end, and which caller gets the result.
#include "runtime/tiers/jobs.h"

#include <future>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

namespace srjit {
namespace {

using Code = JobQueue::Code;

Code newCode() { return std::make_shared<DeviceCode>(); }
Result<Code> make(const std::atomic<bool>&) { return newCode(); }
Result<Code> fail(const std::atomic<bool>&) { return Error{Errc::kCompile, "compile failure", {}}; }
Result<Code> waitForCancellation(const std::atomic<bool>& cancelled) {
  while (!cancelled) std::this_thread::yield();
  return newCode();
}

CodeJob::View afterItsEnd(const CodeJob& job) {
  while (job.view().state == CodeState::kRunning) std::this_thread::yield();
  return job.view();
}

struct Jobs {
  tbb::task_arena arena{2};
  JobQueue queue{2};
  std::shared_ptr<CodeJob> job = std::make_shared<CodeJob>();
};

TEST(Jobs, CodeIsMadeOnce) {
  Jobs jobs;
  EXPECT_EQ(jobs.job->view().state, CodeState::kOpen);
  const Result<Code> first = jobs.queue.join(jobs.job, jobs.arena, make);
  ASSERT_TRUE(first);
  EXPECT_EQ(jobs.job->view().state, CodeState::kReady);
  EXPECT_EQ(jobs.job->view().code, *first);
  EXPECT_EQ(*jobs.queue.join(jobs.job, jobs.arena, fail), *first);
  jobs.queue.start(jobs.job, fail);
  EXPECT_EQ(afterItsEnd(*jobs.job).code, *first);
}

TEST(Jobs, ACancelledJobCanBeStartedAgain) {
  Jobs jobs;
  jobs.queue.start(jobs.job, waitForCancellation);
  EXPECT_EQ(jobs.job->view().state, CodeState::kRunning);
  jobs.job->cancel();
  const CodeJob::View cancelled = afterItsEnd(*jobs.job);
  EXPECT_EQ(cancelled.state, CodeState::kOpen);
  EXPECT_EQ(cancelled.code, nullptr) << "what a cancelled job makes is dropped";
  ASSERT_TRUE(cancelled.error);
  EXPECT_EQ(cancelled.error->code, Errc::kCancelled);
  jobs.queue.start(jobs.job, make);
  const CodeJob::View again = afterItsEnd(*jobs.job);
  EXPECT_EQ(again.state, CodeState::kReady);
  EXPECT_FALSE(again.error);
}

TEST(Jobs, ADeadlineEndsAWait) {
  Jobs jobs;
  std::atomic<bool> may_end = false;
  jobs.queue.start(jobs.job, [&](const std::atomic<bool>&) {
    while (!may_end) std::this_thread::yield();
    return Result<Code>(newCode());
  });
  try {
    static_cast<void>(jobs.queue.join(jobs.job, jobs.arena, fail, Deadline(0.001)));
    ADD_FAILURE() << "the job cannot have ended";
  } catch (const ErrorException& late) {
    EXPECT_EQ(late.error().code, Errc::kLimit);
  }
  EXPECT_FALSE(jobs.job->isCancelled()) << "others may want what it makes";
  may_end = true;
  EXPECT_EQ(afterItsEnd(*jobs.job).state, CodeState::kReady);
  EXPECT_TRUE(jobs.queue.join(jobs.job, jobs.arena, fail, Deadline(1000)));
}

TEST(Jobs, ADeadlineCancelsWhatTheCallerMakes) {
  Jobs jobs;
  const Result<Code> made = jobs.queue.join(jobs.job, jobs.arena, waitForCancellation, Deadline(0.001));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Errc::kCancelled);
  EXPECT_EQ(jobs.job->view().state, CodeState::kOpen);
  EXPECT_TRUE(jobs.queue.join(jobs.job, jobs.arena, make, Deadline(1000)));
}

TEST(Jobs, AJobThatEndedAtADeadlineIsOpen) {
  Jobs jobs;
  const auto late = [](const std::atomic<bool>&) -> Result<Code> { throw ErrorException(tooManySeconds(1)); };
  const Result<Code> made = jobs.queue.join(jobs.job, jobs.arena, late);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Errc::kLimit);
  EXPECT_EQ(jobs.job->view().state, CodeState::kOpen);
  jobs.queue.start(jobs.job, make);
  EXPECT_EQ(afterItsEnd(*jobs.job).state, CodeState::kReady) << "others have more time";
}

TEST(Jobs, WhatACancelledJobThrowsIsDropped) {
  Jobs jobs;
  const auto throws = [](const std::atomic<bool>& cancelled) -> Result<Code> {
    static_cast<void>(waitForCancellation(cancelled));
    throw std::runtime_error("stopped");
  };
  const Result<Code> made = jobs.queue.join(jobs.job, jobs.arena, throws, Deadline(0.001));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Errc::kCancelled);
  EXPECT_EQ(jobs.job->view().state, CodeState::kOpen);
}

TEST(Jobs, ShutDownCancelsAndWaits) {
  Jobs jobs;
  std::atomic<bool> ended = false, posted = false;
  jobs.queue.start(jobs.job, [&](const std::atomic<bool>& cancelled) {
    auto code = waitForCancellation(cancelled);
    jobs.queue.post([&] { posted = true; });
    ended = true;
    return code;
  });
  EXPECT_FALSE(jobs.queue.isShutDown());
  jobs.queue.shutDown();
  EXPECT_TRUE(jobs.queue.isShutDown());
  EXPECT_TRUE(ended);
  EXPECT_TRUE(posted) << "what a job posts is waited for, too";
  EXPECT_EQ(jobs.job->view().state, CodeState::kOpen);
  jobs.queue.shutDown();
}

TEST(Jobs, ShutdownLeavesJobsToOtherQueues) {
  Jobs jobs;
  std::optional<JobQueue> other(2);
  other->start(jobs.job, waitForCancellation);
  other.reset();
  const Result<Code> made = jobs.queue.join(jobs.job, jobs.arena, make);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(jobs.job->view().state, CodeState::kReady);
}

TEST(Jobs, AnExceptionEndsAJobWithAnError) {
  Jobs jobs;
  const auto throws = [](const std::atomic<bool>&) -> Result<Code> { throw std::runtime_error("lost"); };
  jobs.queue.start(jobs.job, throws);
  const CodeJob::View failed = afterItsEnd(*jobs.job);
  EXPECT_EQ(failed.state, CodeState::kFailed);
  ASSERT_TRUE(failed.error);
  EXPECT_EQ(failed.error->message, "lost");
  const Result<Code> joined = jobs.queue.join(jobs.job, jobs.arena, throws);
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().message, "lost");
}

TEST(Jobs, OnlyAWaitRetriesAFailedJob) {
  Jobs jobs;
  EXPECT_FALSE(jobs.queue.join(jobs.job, jobs.arena, fail));
  EXPECT_EQ(jobs.job->view().state, CodeState::kFailed);
  jobs.queue.start(jobs.job, make);
  EXPECT_EQ(jobs.job->view().state, CodeState::kFailed) << "the background does not try again";
  EXPECT_TRUE(jobs.queue.join(jobs.job, jobs.arena, make));
}

TEST(Jobs, TwoWaitersGetOneResult) {
  Jobs jobs;
  std::promise<void> released;
  const std::shared_future<void> release = released.get_future().share();
  jobs.queue.start(jobs.job, [release](const std::atomic<bool>&) -> Result<Code> {
    release.wait();
    return newCode();
  });
  std::atomic<int> made_by_waiters = 0;
  std::vector<std::future<Result<Code>>> waiters;
  for (int i = 0; i < 2; ++i) {
    waiters.push_back(std::async(std::launch::async, [&] {
      return jobs.queue.join(jobs.job, jobs.arena, [&](const std::atomic<bool>&) -> Result<Code> {
        ++made_by_waiters;
        return newCode();
      });
    }));
  }
  released.set_value();
  const Result<Code> first = waiters[0].get(), second = waiters[1].get();
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(made_by_waiters, 0);
}

// A waiter whose own attempt fails gets its own error, also if another waiter succeeds meanwhile.
TEST(Jobs, EveryWaiterGetsCodeOrAnError) {
  Jobs jobs;
  std::atomic<int> attempts = 0;
  std::vector<std::future<Result<Code>>> waiters;
  for (int i = 0; i < 8; ++i) {
    waiters.push_back(std::async(std::launch::async, [&] {
      return jobs.queue.join(jobs.job, jobs.arena, [&](const std::atomic<bool>& cancelled) {
        return ++attempts < 5 ? fail(cancelled) : make(cancelled);
      });
    }));
  }
  int failed = 0;
  for (auto& waiter : waiters) {
    const Result<Code> result = waiter.get();
    if (!result) {
      ++failed;
    } else {
      EXPECT_NE(*result, nullptr);
    }
  }
  EXPECT_EQ(failed, 4);
  EXPECT_EQ(attempts, 5);
}

}  // namespace
}  // namespace srjit
