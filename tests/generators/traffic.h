// Threads that call one engine in every way at once. Each result is compared with that of a single thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdio>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/cache/kernels.h"
#include "runtime/platform/clock.h"
#include "tests/generators/alone.h"
#include "tests/generators/environment.h"
#include "tests/generators/workload.h"

namespace srjit {

struct TrafficOptions {
  std::function<Engine()> make_engine = {};  ///< each call gives another engine of the same options
  std::string cache_directory = {};          ///< of these engines
  std::vector<Workload> work = {};           ///< with targets and weights
  std::size_t threads = 64;
};

/// $SRJIT_TRAFFIC_SECONDS, or 2.
inline double secondsOfTraffic() { return static_cast<double>(numberInEnvironment("SRJIT_TRAFFIC_SECONDS", 2)); }

/// A failure of any call, or other bits than those of a single thread, is a failure of the test, and ends the traffic.
class Traffic {
 public:
  explicit Traffic(TrafficOptions options) : options_(std::move(options)), engine_(options_.make_engine()) {
    for (const Workload& w : options_.work) alone_.push_back(Alone::of(engine_, w));
  }

  /// Takes at least `seconds`, and until every thread has made one call. Prints how many calls there were of each kind.
  void run(double seconds) {
    const Stopwatch watch;
    const FailureFlag failed;
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < options_.threads; ++t) {
      threads.emplace_back([this, t, seconds, &watch, &failed] {
        Random random(t);
        std::size_t action = t;  // every action has a thread that begins with it
        do {
          const Action& next = kActions[action % kActions.size()];
          SCOPED_TRACE(next.name);
          (this->*next.run)(random, alone_[random.below(alone_.size())]);
          ++calls_[action % kActions.size()];
          action = random.below(kActions.size());
        } while (watch.seconds() < seconds && !failed.isSet());
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::printf("traffic: %zu threads for %.1f s:", options_.threads, watch.seconds());
    for (std::size_t i = 0; i < kActions.size(); ++i) {
      std::printf("%s %s %llu", i == 0 ? "" : ",", kActions[i].name, static_cast<unsigned long long>(calls_[i].load()));
    }
    std::printf("\n");
  }

 private:
  struct Action {
    const char* name;
    void (Traffic::*run)(Random&, const Alone&);
  };
  static constexpr std::size_t kActionCount = 12;
  static const std::array<Action, kActionCount> kActions;

  Program programOf(Random& random, const Alone& alone) const {
    return engine_.compile(alone.work->expressions, {.tier = kTiers[random.below(std::size(kTiers))]});
  }
  template <class Value>
  static void expectDone(const Result<Value>& done) {
    EXPECT_TRUE(done) << done.error().message;
  }

  void predictions(Random& random, const Alone& alone) {
    expectSameBits(predict(engine_, programOf(random, alone), alone.data, alone.work->parameters), alone.predictions,
                   alone.work->rows(), "predictions");
  }
  void losses(Random& random, const Alone& alone) {
    const auto data = engine_.upload(alone.work->view());
    ASSERT_TRUE(data) << data.error().message;
    compare(engine_.loss(programOf(random, alone), *data, alone.work->parameters), alone.losses);
  }
  void sharedProgram(Random&, const Alone& alone) {
    compare(engine_.loss(alone.program, alone.data, alone.work->parameters), alone.losses);
    EXPECT_FALSE(alone.program.status().error);
  }
  void inFlight(Random& random, const Alone& alone) {
    const Program program = programOf(random, alone);
    std::vector<Pending<Losses>> pending;
    for (int i = 0; i < 3; ++i) {
      auto submitted = engine_.submitLoss(program, alone.data, alone.work->parameters);
      ASSERT_TRUE(submitted) << submitted.error().message;
      pending.push_back(std::move(*submitted));
    }
    for (std::size_t i = pending.size(); i-- > 0;) compare(std::move(pending[i]).result(), alone.losses);
  }
  void dropped(Random& random, const Alone& alone) {
    const Program program = programOf(random, alone);
    std::vector<double> out(alone.predictions.size());
    std::vector<float> out_f32(out.size());
    const auto losses = engine_.submitLoss(program, alone.data, alone.work->parameters);
    EXPECT_TRUE(losses);
    const bool is_f64 = engine_.options().precision == Precision::kF64;
    const auto predictions =
        is_f64 ? engine_.submitEvaluate(program, alone.data, alone.work->parameters, std::span(out))
               : engine_.submitEvaluate(program, alone.data, alone.work->parameters, std::span(out_f32));
    EXPECT_TRUE(predictions);
  }
  void stoppedFit(Random& random, const Alone& alone) {
    std::stop_source stop;
    FitOptions options = Alone::fitOptions();
    options.stop = stop.get_token();
    auto fits = engine_.submitFit(programOf(random, alone), alone.data, alone.work->parameters, options);
    ASSERT_TRUE(fits) << fits.error().message;
    stop.request_stop();
    if (random.below(2) == 0) return;
    EXPECT_TRUE(std::move(*fits).result());
  }
  void population(Random&, const Alone& alone) {
    compare(engine_.loss(alone.tokens.view(), alone.data, alone.work->parameters), alone.losses);
  }
  void gradients(Random& random, const Alone& alone) {
    const auto got = engine_.gradient(programOf(random, alone), alone.data, alone.work->parameters, Alone::kGradient);
    ASSERT_TRUE(got) << got.error().message;
    expectSameGradients(*got, alone.gradients, "gradients");
  }
  void fits(Random& random, const Alone& alone) {
    compare(engine_.fit(programOf(random, alone), alone.data, alone.work->parameters, Alone::fitOptions()), alone.fits);
  }
  void weights(Random& random, const Alone& alone) {
    const auto weighted = engine_.withWeights(alone.data, ColumnView(alone.work->weights));
    ASSERT_TRUE(weighted) << weighted.error().message;
    compare(engine_.loss(programOf(random, alone), *weighted, alone.work->parameters), alone.losses);
    EXPECT_TRUE(engine_.sample(alone.data, 1 + random.below(alone.data.rowGroups()), random.next()));
  }
  void otherEngine(Random& random, const Alone& alone) {
    const Engine other = options_.make_engine();
    EXPECT_EQ(other.notices(), engine_.notices());
    const auto data = other.upload(alone.work->view());
    ASSERT_TRUE(data) << data.error().message;
    const Program program = other.compile(alone.work->expressions, {.tier = kTiers[random.below(std::size(kTiers))]});
    compare(other.loss(program, *data, alone.work->parameters), alone.losses);
  }
  void cache(Random& random, const Alone&) {
    static_cast<void>(engine_.cacheStats());
    const auto cache = KernelCache::open({.directory = options_.cache_directory});
    switch (random.below(3)) {
      case 0:
        expectDone(cache->clear());
        break;
      case 1:
        expectDone(cache->verify());
        break;
      default:
        expectDone(cache->list());
    }
  }

  const TrafficOptions options_;
  const Engine engine_;
  std::vector<Alone> alone_;
  std::array<std::atomic<std::uint64_t>, kActionCount> calls_ = {};
};

inline const std::array<Traffic::Action, Traffic::kActionCount> Traffic::kActions = {
    {{"predictions", &Traffic::predictions},
     {"losses", &Traffic::losses},
     {"one program", &Traffic::sharedProgram},
     {"in flight", &Traffic::inFlight},
     {"dropped", &Traffic::dropped},
     {"stopped fits", &Traffic::stoppedFit},
     {"populations", &Traffic::population},
     {"gradients", &Traffic::gradients},
     {"fits", &Traffic::fits},
     {"weights", &Traffic::weights},
     {"other engines", &Traffic::otherEngine},
     {"cache", &Traffic::cache}}};

}  // namespace srjit
