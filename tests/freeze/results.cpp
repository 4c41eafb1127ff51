// Prints digests of results and of machine code, which a change of structure must leave as they are: tests/freeze/
// record.sh has the rest of such a record and how two are compared. A digest covers kChunk adjacent expressions, so
// that two records tell which differ.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <llvm/ADT/StringExtras.h>
#include <llvm/Support/BLAKE3.h>

#include "runtime/engine.h"
#include "tests/generators/workload.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

constexpr std::size_t kExpressions = 40'000, kChunk = 2'000;
constexpr std::size_t kRows = 67;  // more than two groups of 32, and one that is not full

/// Expressions that a tier of a machine evaluates in each mode: all, or as many as it has time for.
struct Share {
  Tier tier;
  std::size_t expressions;
};

struct Machine {
  std::string_view name;
  std::vector<Share> shares;
};

// The model of a GPU executes its code instruction by instruction, and LLVM compiles a few expressions per millisecond.
const Machine kMachines[] = {
    {"cpu", {{Tier::kInterpret, kExpressions}, {Tier::kCompile, 400}}},
    {"model", {{Tier::kInterpret, 4'000}, {Tier::kDirect, 400}, {Tier::kCompile, 100}}},
    {"cuda:0", {{Tier::kInterpret, kExpressions}, {Tier::kDirect, kExpressions}, {Tier::kCompile, 400}}},
};

class Digest {
 public:
  void add(std::span<const double> values) {
    for (const double value : values) {
      // Which NaN an instruction gives is no result: see sameBits().
      add(std::isnan(value) ? std::uint64_t{0x7ff8'0000'0000'0000} : std::bit_cast<std::uint64_t>(value));
    }
  }
  void add(std::uint64_t number) {
    std::array<std::uint8_t, 8> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(number >> (8 * i));
    hash_.update(bytes);
  }
  void add(std::span<const Failure> failures) {
    add(failures.size());
    for (const Failure& failure : failures) add(failure.expression);
  }
  std::string text() {
    const auto bytes = hash_.result<16>();
    return llvm::toHex(llvm::ArrayRef<std::uint8_t>(bytes.data(), bytes.size()), true);
  }

 private:
  llvm::BLAKE3 hash_;
};

GeneratorOptions populationOf(std::uint64_t seed) {
  return {.seed = seed,
          .min_nodes = 1,
          .max_nodes = 40,
          .variables = 5,
          .parameters = 3,
          .parameter_probability = 0.2,
          .special_probability = 0.05};
}

/// `add` puts its results into a digest.
struct Evaluation {
  std::string_view name;
  bool is_derived;  ///< derivatives of one population take as long as values of several
  std::function<void(Digest&, const Engine&, const Program&, const Dataset&, const Workload&)> add;
};

template <class T>
T must(Result<T> result) {
  if (!result) {
    fmt::print(stderr, "freeze_results: {}\n", result.error().message);
    std::exit(1);
  }
  return std::move(result).value();
}

template <class T>
void addPredictions(Digest& digest, const Engine& engine, const Program& program, const Dataset& data,
                    const Workload& work) {
  std::vector<T> out(program.size() * data.rows());
  digest.add(must(engine.evaluate(program, data, work.parameters, std::span<T>(out))));
  digest.add(std::vector<double>(out.begin(), out.end()));
}

void addPredictionsOf(Digest& digest, const Engine& engine, const Program& program, const Dataset& data,
                      const Workload& work) {
  if (engine.options().precision == Precision::kF32) {
    addPredictions<float>(digest, engine, program, data, work);
  } else {
    addPredictions<double>(digest, engine, program, data, work);
  }
}

void addLosses(Digest& digest, const Losses& losses) {
  digest.add(losses.values);
  for (const auto rows : losses.valid_rows) digest.add(rows);
  digest.add(losses.failures);
}

Evaluation lossOf(std::string_view name, const LossOptions& options) {
  return {name, false,
          [options](Digest& digest, const Engine& engine, const Program& program, const Dataset& data,
                    const Workload& work) {
            addLosses(digest, must(engine.loss(program, data, work.parameters, options)));
          }};
}

const std::vector<Evaluation>& evaluations() {
  static const std::vector<Evaluation> all = {
      {"predictions", false, addPredictionsOf},
      lossOf("mse", {}),
      lossOf("mae of valid rows", {.kind = LossKind::kMae, .nan = NanPolicy::kSkip}),
      lossOf("scaled-mse", {.kind = LossKind::kScaledMse}),
      {"gradients of huber", true,
       [](Digest& digest, const Engine& engine, const Program& program, const Dataset& data, const Workload& work) {
         const GradientOptions options{.loss = {.kind = LossKind::kHuber, .nan = NanPolicy::kSkip}};
         const Gradients gradients = must(engine.gradient(program, data, work.parameters, options));
         addLosses(digest, gradients.losses);
         digest.add(gradients.derivatives);
       }},
      {"fits", true,
       [](Digest& digest, const Engine& engine, const Program& program, const Dataset& data, const Workload& work) {
         const Fits fits = must(engine.fit(program, data, work.parameters, {.iterations = 4}));
         addLosses(digest, fits.losses);
         digest.add(fits.parameters);
       }}};
  return all;
}

/// `model` is null for a device of this machine.
void record(const Machine& machine, FakeMachine* model, Precision precision, Math math, const Share& share) {
  EngineOptions options{.precision = precision, .math = math};
  options.device = model == nullptr ? std::string(machine.name) : "cuda:0";
  options.cache_directory = "";
  const Engine engine = must(model == nullptr ? Engine::create(options) : model->tryEngine(options));
  for (std::size_t first = 0; first < share.expressions; first += kChunk) {
    const std::size_t count = std::min(kChunk, share.expressions - first);
    const Workload work = Workload::random(populationOf(20261128 + first), count, kRows, Spread::kWide, precision);
    const Dataset data = must(engine.upload(work.view()));
    const Program program = engine.compile(work.expressions, {.tier = share.tier});
    for (const Evaluation& evaluation : evaluations()) {
      if (evaluation.is_derived && (first >= share.expressions / 4 || share.tier == Tier::kCompile)) continue;
      Digest digest;
      evaluation.add(digest, engine, program, data, work);
      fmt::print("{}  {} {} {} {} of {} from {}: {}\n", digest.text(), machine.name, nameOf(precision), nameOf(math),
                 nameOf(share.tier), count, first, evaluation.name);
    }
  }
}

}  // namespace
}  // namespace srjit

int main(int argc, char** argv) {
  using namespace srjit;
  const std::string_view wanted = argc == 2 ? argv[1] : "";
  for (const Machine& machine : kMachines) {
    if (machine.name != wanted) continue;
    std::optional<FakeMachine> model;
    if (machine.name == "model") model.emplace();
    for (const Precision precision : {Precision::kF32, Precision::kF64}) {
      for (const Math math : {Math::kStrict, Math::kPrecise, Math::kFast}) {
        for (const Share& share : machine.shares) {
          record(machine, model ? &*model : nullptr, precision, math, share);
        }
      }
    }
    return 0;
  }
  fmt::print(stderr, "usage: freeze_results cpu|model|cuda:0\n");
  return 2;
}
