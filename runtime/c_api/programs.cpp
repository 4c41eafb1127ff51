#include <algorithm>

#include "ir/ops.h"
#include "ir/text.h"
#include "runtime/c_api/handles.h"

namespace srjit::c_api {

namespace {

static_assert(kLanguages[SRJIT_TEXT_INFIX] == Language::kInfix &&
              kLanguages[SRJIT_TEXT_POSTFIX] == Language::kPostfix &&
              kLanguages[SRJIT_TEXT_PREFIX] == Language::kPrefix && kLanguages[SRJIT_TEXT_JSON] == Language::kJson);
static_assert(SRJIT_CONSTANT == kConstantCode && SRJIT_VARIABLE == variableCode(0) &&
              SRJIT_PARAMETER == kFirstParameterCode);

/// New tokens, and a list of those that failed, for the caller; both or neither.
template <class Make>
std::int32_t giveTokens(srjit_tokens** tokens, srjit_failures** failures, srjit_error* error, const Make& make) {
  if (failures != nullptr) *failures = nullptr;
  std::unique_ptr<srjit_failures> list;
  const std::int32_t status = answerWith(tokens, "tokens", error, [&] {
    srjit_tokens made = make();
    if (failures != nullptr) list.reset(failuresFor(made.arrays.failures, {}));
    return made;
  });
  if (status == SRJIT_OK && failures != nullptr) *failures = list.release();
  return status;
}

Result<Expression> expressionOf(const PopulationView& population, std::uint64_t e) {
  if (e >= population.size()) {
    refuse(Errc::kInvalid, fmt::format("expression {} of {}", e, population.size()));
  }
  Population::Block block;
  if (Status valid = block.add(population, e); !valid) return valid.error();
  return block[0].expression();
}

srjit_population viewOf(const srjit_tokens& tokens) {
  return {sizeof(srjit_population),
          tokens.arrays.size(),
          tokens.arrays.codes.data(),
          tokens.arrays.constants.data(),
          tokens.arrays.offsets.data(),
          SRJIT_POSTFIX,
          0};
}

srjit_program compile(const srjit_engine* engine, const srjit_population* population,
                      const srjit_compile_options* options) {
  const srjit_engine& of = required(engine, "engine");
  Program program = of.engine.compile(populationOf(population), compileOptionsOf(of, options)).value();
  const std::size_t expressions = program.size();
  return {std::move(program), {expressions}};
}

}  // namespace

Notation notationOf(std::int32_t notation) {
  constexpr Notation kNotations[] = {Notation::kPostfix, Notation::kPrefix};
  return choiceOf(kNotations, notation, "notation");
}

PopulationView populationOf(const srjit_population* given) {
  const srjit_population population = fromCaller(&required(given, "population"), "population");
  PopulationView view;
  view.notation = notationOf(population.notation);
  checkReserved(static_cast<std::uint32_t>(population.reserved), "population");
  if (population.expressions == 0) return view;
  if (population.expressions >= PTRDIFF_MAX / sizeof(std::int64_t)) {
    refuse(Errc::kInvalid, fmt::format("there are {} expressions", population.expressions));
  }
  const std::int64_t* const offsets = &required(population.offsets, "offsets");
  view.offsets = {offsets, static_cast<std::size_t>(population.expressions) + 1};
  const std::int64_t tokens = view.offsets.back();
  if (tokens < 0) refuse(Errc::kInvalid, fmt::format("the last offset is {}", tokens));
  view.codes = arrayOf(population.codes, static_cast<std::uint64_t>(tokens), "codes");
  if (population.constants != nullptr) view.constants = {population.constants, view.codes.size()};
  return view;
}

extern "C" {

uint64_t srjit_op_count(void) { return allOps().size(); }

int32_t srjit_op_get(uint64_t i, srjit_op* op, srjit_error* error) {
  return answer(error, [&] {
    if (i >= allOps().size()) refuse(Errc::kInvalid, fmt::format("operator {} of {}", i, allOps().size()));
    const OpInfo& info = allOps()[i];
    // Both are string literals.
    describeTo(op, "op", [&](srjit_op& to) {
      to.name = info.name.data();
      to.text = info.text.data();
      to.code = codeOf(static_cast<Op>(i));
      to.arity = info.arity;
    });
  });
}

int32_t srjit_parse(const char* const* texts, uint64_t count, int32_t language, const char* const* names,
                    uint64_t columns, srjit_tokens** tokens, srjit_failures** failures, srjit_error* error) {
  return giveTokens(tokens, failures, error, [&] {
    const std::span all = arrayOf(texts, count, "texts");
    const Language form = choiceOf(kLanguages, language, "language");
    const ColumnNames known = namesOf(names, columns);
    std::vector<std::string> list;
    for (const char* const text : all) list.emplace_back(&required(text, "a text"));
    return srjit_tokens{PopulationArrays::parse(list, form, known)};
  });
}

int32_t srjit_simplify(const srjit_population* population, int32_t math, srjit_tokens** tokens,
                       srjit_failures** failures, srjit_error* error) {
  return giveTokens(tokens, failures, error, [&] {
    const PopulationView view = populationOf(population);
    const Math mode = mathOf(math);
    checkArrays(view).value();
    return srjit_tokens{PopulationArrays::copy(view).simplified(mode)};
  });
}

int32_t srjit_tokens_get(const srjit_tokens* tokens, srjit_population* population, srjit_error* error) {
  return answer(error, [&] {
    const srjit_population view = viewOf(required(tokens, "tokens"));
    describeTo(population, "population", [&](srjit_population& to) { to = view; });
  });
}

void srjit_tokens_free(srjit_tokens* tokens) { delete tokens; }

int32_t srjit_print(const srjit_population* population, uint64_t expression, int32_t language, const char* const* names,
                    uint64_t columns, char* text, uint64_t capacity, uint64_t* length, srjit_error* error) {
  return answer(error, [&] {
    const PopulationView view = populationOf(population);
    checkArrays(view).value();
    const std::string printed = print(expressionOf(view, expression).value(),
                                      choiceOf(kLanguages, language, "language"), namesOf(names, columns));
    const std::span<char> to = arrayOf(text, capacity, "text");
    if (length != nullptr) *length = printed.size();
    if (to.empty()) return;
    const std::size_t written = std::min<std::size_t>(printed.size(), to.size() - 1);
    std::copy_n(printed.data(), written, to.data());
    to[written] = '\0';
  });
}

int32_t srjit_compile(const srjit_engine* engine, const srjit_population* population,
                      const srjit_compile_options* options, srjit_program** program, srjit_error* error) {
  return answerWith(program, "program", error, [&] { return compile(engine, population, options); });
}

int32_t srjit_compile_tokens(const srjit_engine* engine, const srjit_tokens* tokens,
                             const srjit_compile_options* options, srjit_program** program, srjit_error* error) {
  return answerWith(program, "program", error, [&] {
    const srjit_population view = viewOf(required(tokens, "tokens"));
    srjit_program compiled = compile(engine, &view, options);
    if (const auto& failures = tokens->arrays.failures; !failures.empty()) {
      compiled.origin.texts = std::make_shared<const std::vector<Failure>>(failures);
    }
    return compiled;
  });
}

void srjit_program_free(srjit_program* program) { delete program; }

int32_t srjit_program_failures(const srjit_program* program, srjit_failures** failures, srjit_error* error) {
  return answer(error, [&] {
    required(failures, "failures") = nullptr;
    const Program& of = required(program, "program").program;
    *failures = failuresFor({of.failures().begin(), of.failures().end()}, program->origin);
  });
}

int32_t srjit_program_parameter_offsets(const srjit_program* program, uint64_t* offsets, uint64_t count,
                                        srjit_error* error) {
  return answer(error, [&] {
    const Program& of = required(program, "program").program;
    if (count != of.size() + 1) {
      refuse(Errc::kInvalid, fmt::format("count is {}, expected {}", count, of.size() + 1));
    }
    const std::span<std::uint64_t> to = arrayOf(offsets, count, "offsets");
    for (std::size_t e = 0; e < to.size(); ++e) to[e] = of.parameterOffset(e);
  });
}

int32_t srjit_program_draw_starts(const srjit_program* program, const double* given, uint64_t parameter_count,
                                  uint64_t count, uint64_t seed, double* starts, srjit_error* error) {
  return answer(error, [&] {
    const Program& of = required(program, "program").program;
    const auto drawn = of.drawStarts(arrayOf(given, parameter_count, "given"), count, seed).value();
    std::ranges::copy(drawn, arrayOf(starts, drawn.size(), "starts").begin());
  });
}

int32_t srjit_program_get_info(const srjit_program* program, srjit_program_info* info, srjit_error* error) {
  return answer(error, [&] {
    const Program& of = required(program, "program").program;
    const struct {
      const ProgramInfo& info;
      const ProgramStatus status;
    } now{of.info(), of.status()};
    describeTo(info, "info", [&](srjit_program_info& to) {
      to.expressions = of.size();
      to.parameters = of.parameterOffset(of.size());
      to.tier = codeOf(now.status.tier);
      to.requested_tier = codeOf(now.info.tier);
#define SRJIT_PROGRAM_COUNTER(name, member, of_several) to.name = now.member;
#include "runtime/platform/counters.def"
    });
  });
}

int32_t srjit_program_status(const srjit_program* program, srjit_error* error) {
  return answer(error, [&] {
    const ProgramStatus status = required(program, "program").program.status();
    if (status.error) throw ErrorException(*status.error);
  });
}

}  // extern "C"

}  // namespace srjit::c_api
