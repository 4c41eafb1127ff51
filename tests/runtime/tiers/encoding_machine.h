// Engines on a model of a GPU that encode populations there, and such populations.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "runtime/code/interpreted/device_encoding.h"
#include "tests/generators/token_arrays.h"
#include "tests/gpu_model/slow_machine.h"

namespace srjit {

inline constexpr std::size_t kEncoded = kLeastEncodedOnDevice + 7;

/// x0 + p0*x0 + sin(x1) + ...
inline Expression longSum(std::size_t terms) {
  std::string text = "x0";
  for (std::size_t i = 1; i < terms; ++i) text += i % 2 == 0 ? " + sin(x1)" : " + p0*x0";
  return infix(text);
}

inline void drawParameters(Workload& w, Precision precision) {
  std::size_t parameters = 0;
  for (const Expression& expression : w.expressions) parameters += expression.parameterCount();
  Random random(3);
  w.parameters = randomColumns(random, 1, parameters, Spread::kTame, precision)[0];
}

/// Short expressions, and some long ones, which the device leaves to the host.
/// Few rows, since tokens do not depend on them, and the model of a GPU takes its time.
inline Workload populationOf(std::size_t count, Precision precision = Precision::kF32, std::size_t rows = 4) {
  GeneratorOptions options = *findPopulation("small", 5);
  options.special_probability = 0.1;
  Workload w = Workload::random(options, count, rows, Spread::kSpecial, precision);
  for (std::size_t e = 0; e < count; e += 1000) w.expressions[e] = longSum(30 + e % 7);
  drawParameters(w, precision);
  return w;
}

/// Its engines get the kernels that encode populations only after allow(), so that there are programs by the host to
/// compare with.
struct EncodingMachine : FakeMachine {
  explicit EncodingMachine(FakeOptions options = {}) : FakeMachine(std::move(options)) {
    images->before = [this](const FakeImageMaker::Request& request) -> Status {
      if (request.kind != "front end") return okStatus();
      allowed.wait(false);
      return fails ? Status(Error{Errc::kCompile, "no front end today", {}}) : okStatus();
    };
  }
  ~EncodingMachine() { allow(); }
  void allow() {
    allowed = true;
    allowed.notify_all();
  }
  std::size_t launchesOf(std::string_view kernel) const {
    const std::vector<FakeCall> calls = driver.calls();
    return static_cast<std::size_t>(std::ranges::count_if(
        calls, [&](const FakeCall& call) { return call.entry == "cuLaunchKernel" && call.detail == kernel; }));
  }

  std::atomic<bool> allowed = false, fails = false;
};

/// The result of `compile`, by the device: the kernels for that are made in the background of the second.
template <class Compile>
Program encodedBy(const Compile& compile) {
  std::optional<Program> program;
  waitUntil([&] {
    program = compile();
    return program->info().encoded_on_device > 0;
  });
  return *program;
}
inline Program encodedOnDevice(const Engine& engine, std::span<const Expression> expressions) {
  return encodedBy([&] { return engine.compile(expressions, {.tier = Tier::kInterpret}); });
}

/// One engine with a population, encoded by the host and then by the device.
struct Encoding {
  explicit Encoding(FakeOptions options = {}) : machine_(std::move(options)) {}
  Program compile() const { return engine_.compile(w_.expressions, {.tier = Tier::kInterpret}); }
  Program compileOnDevice() {
    machine_.allow();
    return encodedOnDevice(engine_, w_.expressions);
  }

  EncodingMachine machine_;
  const Workload w_ = populationOf(kEncoded);
  const Engine engine_ = machine_.engine();
  const Dataset data_ = engine_.upload(w_.view()).value();
  const Program on_host_ = compile();
  const Program on_device_ = compileOnDevice();
};

}  // namespace srjit
