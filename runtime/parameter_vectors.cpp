// Evaluations with many vectors of parameters at once.
#include <memory>
#include <utility>

#include "runtime/engine_tasks.h"

namespace srjit {
namespace {

std::vector<Failure> repeatedFailures(std::span<const Failure> failures, std::size_t expressions, std::size_t times) {
  std::vector<Failure> all;
  for (std::size_t t = 0; t < times; ++t) {
    for (const Failure& failure : failures) all.push_back({t * expressions + failure.expression, failure.error});
  }
  return all;
}

Program repeat(Engine::State& engine, const Program::State& program, std::size_t times, const Deadline& deadline) {
  const ProgramSource& given = *program.source;
  const std::size_t count = given.expressions.size();
  auto source = std::make_shared<ProgramSource>(given.emptyLike());
  engine.executor->execute(
      [&] { source->setSelected(given, times * count, [count](std::size_t i) { return i % count; }); });
  source->invalid = repeatedFailures(given.invalid, count, times);
  const auto state = programLike(program, std::move(source));
  state->data_serial = program.data_serial;
  if (state->made) {
    makeCode(engine, *state, {}, deadline);
  } else {
    state->failures = repeatedFailures(program.failures, count, times);
  }
  return Program(state);
}

}  // namespace

Result<Program> programOfVectors(Engine::State& engine, const Program& program, const Dataset& data,
                                 std::span<const double> parameters, const Deadline& deadline) {
  const std::size_t one = program.parameterOffset(program.size());
  if (one == 0 || parameters.size() <= one || parameters.size() % one != 0) return program;
  if (Status own = engine.checkProcess(); !own) return std::move(own).error();
  if (Status valid = checkTask({program, data, parameters.first(one), nullptr, {}}, engine.options); !valid) {
    return std::move(valid).error();
  }
  const std::size_t times = parameters.size() / one;
  if (Status few = engine.checkCallNodes(program.state().source->tokens, times); !few) return std::move(few).error();
  return program.state().repeated.get(times, deadline,
                                      [&] { return repeat(engine, program.state(), times, deadline); });
}

}  // namespace srjit
