// Every kind of kernel on few rows, for compute-sanitizer: memcheck, racecheck and initcheck.
#include "tests/gpu/adopted.h"

#include "ir/ops.h"

namespace srjit {
namespace {

constexpr LossOptions kLosses[] = {{LossKind::kMse, NanPolicy::kPropagate}, {LossKind::kMae, NanPolicy::kSkip}};

class KernelsSanitize : public GpuInMode {
 protected:
  bool isGpu() const { return engine().options().device != "cpu"; }

  /// Runs both tiers on few rows, including odd numbers, and on more than one chunk of streamed rows.
  void run(const GeneratorOptions& generator, std::size_t count, Memory memory) const {
    const Engine engine = this->engine(memory);
    for (const Tier tier : {Tier::kInterpret, Tier::kCompile}) {
      std::optional<Program> program;
      for (const std::size_t rows : {1, 131, 4099}) {
        Workload w = Workload::random(generator, count, rows, Spread::kSpecial, mode().precision);
        if (!program) program = engine.compile(w.expressions, {.tier = tier});
        for (const LossOptions& loss : kLosses) {
          if (loss.nan == NanPolicy::kSkip) w.weights = quarterWeights(rows);
          const Dataset data = engine.upload(w.view()).value();
          const Losses first = lossesOf(engine, *program, data, w.parameters, loss);
          expectSameLosses(first, lossesOf(engine, *program, data, w.parameters, loss), "again");
          const std::vector<double> values = predict(engine, *program, data, w.parameters);
          expectSameBits(predict(engine, *program, data, w.parameters), values, rows, "again");
        }
      }
    }
  }
};

TEST_P(KernelsSanitize, Arithmetic) { run(generatorOf(51, 30, exactOps()), 40, Memory::kPlenty); }

TEST_P(KernelsSanitize, Streamed) { run(generatorOf(52, 12, exactOps()), 10, Memory::kStreamed); }

// Deep expressions use the interpreter's slots.
TEST_P(KernelsSanitize, Deep) {
  GeneratorOptions generator = generatorOf(53, 200, {Op::kAdd, Op::kSub, Op::kMul});
  generator.min_nodes = 200;
  run(generator, 6, Memory::kPlenty);
}

TEST_P(KernelsSanitize, LibraryFunctions) {
  if (mode().precision == Precision::kF64) GTEST_SKIP() << "their kernels in double take the assembler too long";
  run(generatorOf(54, 8, {Op::kAdd, Op::kMul, Op::kDiv, Op::kPow, Op::kLog, Op::kExp, Op::kSqrt, Op::kSin}), 10,
      Memory::kPlenty);
}

TEST_P(KernelsSanitize, AdoptedRows) {
  if (!isGpu()) GTEST_SKIP() << "the processor has no device memory";
  const Engine engine = this->engine();
  constexpr std::size_t kRows = 131;
  const Workload w = Workload::random(generatorOf(55, 20, exactOps()), 20, kRows, Spread::kSpecial, mode().precision);
  const Program program = engine.compile(w.expressions, {.tier = Tier::kInterpret});
  const Losses expected = lossesOf(engine, program, engine.upload(w.view()).value(), w.parameters, {});
  ForeignMemory memory;
  DeviceDataView view{.columns = memory.put(w.columns, Layout::rowMajor(5), mode().precision)};
  view.target = memory.put({&w.target, 1}, Layout::rowMajor(1), mode().precision);
  const Dataset adopted = engine.adopt(view).value();
  expectSameLosses(expected, lossesOf(engine, program, adopted, w.parameters, {}), "adopted");
}

INSTANTIATE_TEST_SUITE_P(Modes, KernelsSanitize,
                         testing::Values(Mode{Precision::kF32, Math::kFast}, Mode{Precision::kF64, Math::kPrecise}),
                         modeName);

}  // namespace
}  // namespace srjit
