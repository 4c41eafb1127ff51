#include "tests/gpu_model/front_end/models.h"

#include "compiler/interpreter/front_end/arguments.h"
#include "compiler/interpreter/front_end/worker.h"
#include "tests/gpu_model/memory.h"

namespace srjit {
namespace {

template <class Arguments>
Arguments argumentsOf(const ModelLaunch& launch) {
  requireOfModel(launch.block == std::array<unsigned, 3>{kEncodeThreads, 1, 1}, "a block of {} threads",
                 launch.block[0]);
  return structOf<Arguments>(launch);
}

/// Device addresses as the host's.
class Translator {
 public:
  explicit Translator(ModelMemory& memory) : memory_(memory) {}

  template <class T>
  void operator()(T*& address, std::size_t count) const {
    translate(memory_, address, count);
  }
  template <class T>
  void operator()(std::span<const T>& array) const {
    translate(memory_, array);
  }
  void operator()(UploadedPopulation& population) const {
    const std::size_t count = population.expressions;
    (*this)(population.first_codes, count + 1);
    (*this)(population.first_constants, count + 1);
    (*this)(population.codes, population.first_codes[count]);
    (*this)(population.constants, population.first_constants[count]);
  }
  void operator()(EncodedPrograms& programs, const UploadedPopulation& of) const {
    const std::uint32_t count = of.expressions;
    (*this)(programs.sizes, count);
    (*this)(programs.tokens, programs.firstToken(of, count));
    (*this)(programs.parameters, programs.firstParameter(of, count));
  }

 private:
  ModelMemory& memory_;
};

class EncodeModel final : public KernelModel {
 public:
  using KernelModel::KernelModel;

  std::vector<std::size_t> parameterBytes() const override { return {sizeof(EncodeArguments)}; }

  void run(const ModelLaunch& launch, ModelMemory& memory) const override {
    auto arguments = argumentsOf<EncodeArguments>(launch);
    const Translator translate(memory);
    translate(arguments.population);
    translate(arguments.programs, arguments.population);
    std::uint32_t variables = 0;
    for (const std::int32_t code :
         std::span(arguments.population.codes, arguments.population.first_codes[arguments.population.expressions])) {
      if (code < 0 && !isParameterCode(code)) variables = std::max(variables, indexOfCode(code) + 1);
    }
    translate(arguments.operators, kOpCount);
    translate(arguments.variables, variables);
    translate(arguments.memory, std::size_t{launch.grid[0]} * launch.block[0] * kWorkerBytes);
    translate(arguments.rules.ops);
    translate(arguments.rules.variants);
    translate(arguments.rules.checks);
    translate(arguments.rules.steps);
    translate(arguments.handlers.ops);
    translate(arguments.handlers.plans);
    translate(arguments.handlers.plain);
    translate(arguments.handlers.applies);
    DeviceWorker worker(arguments);
    for (std::uint32_t e = 0; e < arguments.population.expressions; ++e) worker.encode(e);
  }
};

class LinkModel final : public KernelModel {
 public:
  using KernelModel::KernelModel;

  std::vector<std::size_t> parameterBytes() const override { return {sizeof(LinkArguments)}; }

  void run(const ModelLaunch& launch, ModelMemory& memory) const override {
    auto arguments = argumentsOf<LinkArguments>(launch);
    const std::uint32_t count = arguments.population.expressions;
    requireOfModel(std::size_t{launch.grid[0]} * launch.block[0] >= count, "{} blocks for {} programs", launch.grid[0],
                   count);
    const Translator translate(memory);
    translate(arguments.population);
    translate(arguments.programs, arguments.population);
    translate(arguments.places, count);
    std::size_t tokens = 0, parameters = 0;
    for (const EncodedSize size : std::span(arguments.programs.sizes, count)) {
      tokens += size.tokens;
      parameters += size.parameters;
    }
    translate(arguments.tokens, tokens);
    translate(arguments.parameters, parameters);
    translate(arguments.links.handlers);
    translate(arguments.links.staged_as);
    for (std::uint32_t e = 0; e < count; ++e) linkProgram(arguments, e);
  }
};

}  // namespace

std::unique_ptr<KernelModel> makeEncodeModel(KernelFacts facts) {
  return std::make_unique<EncodeModel>(std::move(facts));
}
std::unique_ptr<KernelModel> makeLinkModel(KernelFacts facts) { return std::make_unique<LinkModel>(std::move(facts)); }

}  // namespace srjit
