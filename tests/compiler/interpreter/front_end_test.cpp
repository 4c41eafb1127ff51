// The kernels that encode populations: their PTX, and what a worker writes.
#include <algorithm>
#include <numeric>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/interpreter/encoder.h"
#include "compiler/interpreter/front_end/worker.h"
#include "compiler/interpreter/handler_table.h"
#include "compiler/interpreter/kernel.h"
#include "compiler/kernels/assembler.h"
#include "compiler/nvptx/module.h"
#include "compiler/nvptx/options.h"
#include "passes/expression_optimizer.h"
#include "tests/compiler/interpreter/taken_memory.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

using ::testing::HasSubstr;

#define SRJIT_NEEDS_FRONT_END() \
  if (frontEndBitcode().empty()) GTEST_SKIP() << "no clang++-19 where this was built"

Result<std::string> frontEndPtxFor(std::string_view arch) {
  DeviceOptions options;
  options.arch = arch;
  return frontEndPtx(options);
}

TEST(FrontEndPtx, HasBothKernelsAndNeedsNothingElse) {
  SRJIT_NEEDS_FRONT_END();
  for (const std::string arch : {"sm_75", "sm_90"}) {
    const Result<std::string> ptx = frontEndPtxFor(arch);
    ASSERT_TRUE(ptx.ok()) << ptx.error().message;
    EXPECT_THAT(*ptx, HasSubstr(".target " + arch));
    EXPECT_THAT(*ptx, HasSubstr(std::string(".visible .entry ") + kEncodeKernel + "("));
    EXPECT_THAT(*ptx, HasSubstr(std::string(".visible .entry ") + kLinkKernel + "("));
    EXPECT_THAT(*ptx, testing::Not(HasSubstr(".extern"))) << arch << ": a function that no one defines";
    std::size_t entries = 0;
    for (std::size_t at = ptx->find(".entry"); at != std::string::npos; at = ptx->find(".entry", at + 1)) ++entries;
    EXPECT_EQ(entries, 2U);
  }
}

/// Without the numbers of calls, which LLVM counts over all modules of a process.
std::string withoutCallNumbers(const std::string& ptx) {
  std::string kept;
  std::istringstream lines(ptx);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("callseq") == std::string::npos) kept += line + "\n";
  }
  return kept;
}

TEST(FrontEndPtx, DependsOnTheArchitectureAlone) {
  SRJIT_NEEDS_FRONT_END();
  DeviceOptions options;
  options.precision = Precision::kF64;
  options.math = Math::kFast;
  EXPECT_TRUE(withoutCallNumbers(frontEndPtx(options).value()) ==
              withoutCallNumbers(frontEndPtxFor(DeviceOptions().arch).value()));
}

TEST(FrontEndPtx, RefusesAnUnknownArchitecture) {
  SRJIT_NEEDS_FRONT_END();
  const Result<std::string> ptx = frontEndPtxFor("sm_1");
  ASSERT_FALSE(ptx.ok());
  EXPECT_EQ(ptx.error().code, Errc::kInvalid);
  EXPECT_THAT(ptx.error().message, HasSubstr("unknown architecture 'sm_1'"));
}

TEST(FrontEndPtx, Assembles) {
  SRJIT_NEEDS_FRONT_END();
  if (assemblerName().empty()) GTEST_SKIP() << "no CUDA toolkit on this machine";
  const Result<KernelImage> cubin = assemble(frontEndPtxFor("sm_90").value(), "sm_90");
  ASSERT_TRUE(cubin.ok()) << cubin.error().message;
  std::vector<std::string> names;
  for (const KernelFacts& kernel : cubin->kernels) names.push_back(kernel.name);
  EXPECT_THAT(names, testing::IsSupersetOf({kEncodeKernel, kLinkKernel}));
}

TEST(DeviceModuleBitcode, IsCheckedWhenItIsRead) {
  for (const std::string_view bytes : {"", "this is no bitcode", "BC\xc0\xde and no more"}) {
    const Result<std::string> ptx = ptxOf([&]() -> Result<DeviceModule> {
      Result<DeviceModule> module = DeviceModule::create({});
      if (Status read = module->readBitcode(bytes, {}, "Oz"); !read) return std::move(read).error();
      return module;
    });
    ASSERT_FALSE(ptx.ok()) << bytes;
    EXPECT_EQ(ptx.error().code, Errc::kCompile);
    EXPECT_THAT(ptx.error().message, testing::StartsWith("unreadable bitcode: "));
  }
}

constexpr std::uint32_t kTestedFirstSlot = 1000, kTestedMaxSlots = 8, kTestedVariables = 200;

/// A population on the host in the place of one on a device, and the memory of its programs.
struct HostPopulation {
  HostPopulation(std::span<const Expression> expressions, Precision precision, Math math, const HandlerTable& table) {
    first_codes.push_back(0);
    first_constants.push_back(0);
    for (const Expression& expression : expressions) {
      for (const Token& token : expression.tokens()) {
        codes.push_back(codeOf(token));
        if (token.kind == Token::Kind::kConstant) constants.push_back(token.value);
      }
      first_codes.push_back(static_cast<std::uint32_t>(codes.size()));
      first_constants.push_back(static_cast<std::uint32_t>(constants.size()));
    }
    const UploadedPopulation population{codes.data(), constants.data(), first_codes.data(), first_constants.data(),
                                        static_cast<std::uint32_t>(expressions.size())};
    sizes.assign(expressions.size(), {77, 77, 77, 77});
    tokens.assign(arguments.programs.firstToken(population, population.expressions), kUnwritten);
    parameters.resize(arguments.programs.firstParameter(population, population.expressions));
    arguments = {.population = population,
                 .programs = {sizes.data(), tokens.data(), parameters.data()},
                 .operators = operators.data(),
                 .variables = variables.data(),
                 .memory = nullptr,
                 .precision = precision,
                 .math = math,
                 .first_slot = kTestedFirstSlot,
                 .max_slots = kTestedMaxSlots,
                 .few_slots = kTestedMaxSlots,
                 .rules = rulesFor(ruleModeOf(math, precision)),
                 .handlers = table.numbers()};
  }

  void encodeAll() {
    DeviceWorker worker(arguments);
    for (std::uint32_t e = 0; e < arguments.population.expressions; ++e) worker.encode(e);
  }
  std::span<const DeviceToken> tokensOf(std::uint32_t e) const {
    return std::span(tokens).subspan(arguments.programs.firstToken(arguments.population, e), sizes[e].tokens);
  }
  std::span<const ParameterSource> parametersOf(std::uint32_t e) const {
    return std::span(parameters)
        .subspan(arguments.programs.firstParameter(arguments.population, e), sizes[e].parameters);
  }

  static constexpr DeviceToken kUnwritten{0xdeadbeef, 0xdeadbeef};
  std::vector<std::int32_t> codes;
  std::vector<double> constants;
  std::vector<std::uint32_t> first_codes, first_constants;
  std::vector<EncodedSize> sizes;
  std::vector<DeviceToken> tokens;
  std::vector<ParameterSource> parameters;
  std::vector<std::uint32_t> operators = std::vector<std::uint32_t>(kOpCount);
  std::vector<std::uint32_t> variables = std::vector<std::uint32_t>(kTestedVariables);
  EncodeArguments arguments{};
};

bool sameTokens(std::span<const DeviceToken> a, std::span<const DeviceToken> b) {
  return std::ranges::equal(a, b,
                            [](DeviceToken x, DeviceToken y) { return x.code == y.code && x.argument == y.argument; });
}

HandlerTable tableOfAll(Precision precision, Math math) {
  return HandlerTable({precision, math, allOperators(), 8, 5});
}

std::vector<Expression> shortExpressions(std::size_t count, std::uint64_t seed) {
  return ExpressionGenerator({.seed = seed,
                              .min_nodes = 1,
                              .max_nodes = kMostCodesOnDevice + 4,
                              .variables = 7,
                              .parameters = 4,
                              .constant_probability = 0.25,
                              .parameter_probability = 0.2,
                              .special_probability = 0.2})
      .batch(count);
}

class DeviceWorkerModes : public testing::TestWithParam<std::tuple<Precision, Math>> {};

INSTANTIATE_TEST_SUITE_P(, DeviceWorkerModes,
                         testing::Combine(testing::Values(Precision::kF32, Precision::kF64),
                                          testing::Values(Math::kStrict, Math::kPrecise, Math::kFast)));

TEST_P(DeviceWorkerModes, WritesWhatTheEncoderWrites) {
  const auto [precision, math] = GetParam();
  const std::vector<Expression> expressions = shortExpressions(2000, 3);
  const HandlerTable table = tableOfAll(precision, math);
  HostPopulation host(expressions, precision, math, table);
  host.encodeAll();

  Encoder encoder(table.numbers());
  ExpressionOptimizer optimizer(precision, math);
  Bytecode code;
  std::vector<std::uint32_t> operators(kOpCount), variables(kTestedVariables);
  std::size_t left = 0, with_slots = 0;
  const Population population(expressions);
  for (std::uint32_t e = 0; e < expressions.size(); ++e) {
    SCOPED_TRACE(print(expressions[e], Language::kInfix));
    optimizer.run(population[e], 0);
    const ExpressionGraph graph = optimizer.graph();
    EncodeOptions options;
    options.staged_columns = kTestedFirstSlot;
    options.max_slots = kTestedMaxSlots;
    code = {};
    const EncodeFault fault = encoder.encode(graph, std::array{e}, options, code);
    const EncodedSize& size = host.sizes[e];
    if (!fault.isNone() || population[e].size() > kMostCodesOnDevice ||
        code.tokens.size() > roomForTokens(population[e].size())) {
      EXPECT_EQ(size.tokens, 0U);
      ++left;
      continue;
    }
    ASSERT_TRUE(sameTokens(host.tokensOf(e), code.tokens));
    EXPECT_EQ(size.nodes, graph.members.size());
    EXPECT_EQ(size.slots, code.slots);
    if (code.slots > 0) ++with_slots;
    ASSERT_EQ(size.parameters, code.parameters.size());
    EXPECT_EQ(size.patches, std::ranges::count_if(host.parametersOf(e),
                                                  [](const ParameterSource& source) { return !source.isLiteral(); }));
    for (std::size_t p = 0; p < code.parameters.size(); ++p) {
      const Node& node = graph.dag.node(code.parameters[p]);
      const ParameterSource& source = host.parametersOf(e)[p];
      if (node.kind == Token::Kind::kConstant) {
        EXPECT_TRUE(source.isLiteral());
        EXPECT_TRUE(sameBits(source.literal, node.value));
      } else {
        EXPECT_FALSE(source.isLiteral());
        EXPECT_EQ(source.expression, 0U);
        EXPECT_EQ(source.index, graph.dag.parameters()[node.index].index);
      }
    }
    for (const NodeId id : graph.members) {
      const Node& node = graph.dag.node(id);
      if (node.isOperator()) operators[static_cast<std::size_t>(node.op)] = 1;
      if (node.kind == Token::Kind::kVariable) variables[node.index] = 1;
    }
  }
  EXPECT_EQ(host.operators, operators);
  EXPECT_EQ(host.variables, variables);
  EXPECT_LT(left, expressions.size() / 5);
  EXPECT_GT(with_slots, 0U);
}

TEST(DeviceWorkers, DoNotDependOnWhatWasEncodedBefore) {
  const std::vector<Expression> expressions = shortExpressions(300, 4);
  const HandlerTable table = tableOfAll(Precision::kF32, Math::kFast);
  HostPopulation one(expressions, Precision::kF32, Math::kFast, table);
  HostPopulation many(expressions, Precision::kF32, Math::kFast, table);
  one.encodeAll();
  constexpr std::uint32_t kWorkers = 7;
  for (std::uint32_t w = kWorkers; w-- > 0;) {
    DeviceWorker worker(many.arguments);
    for (std::uint32_t e = w; e < expressions.size(); e += kWorkers) worker.encode(e);
  }
  ASSERT_TRUE(sameTokens(one.tokens, many.tokens)) << "also what is not written";
  EXPECT_EQ(one.operators, many.operators);
  EXPECT_EQ(one.variables, many.variables);
  for (std::size_t e = 0; e < expressions.size(); ++e) EXPECT_EQ(one.sizes[e].parameters, many.sizes[e].parameters);
}

TEST(DeviceWorkers, LongExpressionsAreLeft) {
  std::string text = "x0";
  while (infix(text).tokens().size() < kMostCodesOnDevice - 1) text += "+x1";
  const std::vector<Expression> expressions = {infix("-(" + text + ")"), infix(text + "+x1"),
                                               infix("--(" + text + "+x1)"), infix("x1")};
  ASSERT_EQ(expressions[0].tokens().size(), kMostCodesOnDevice);
  ASSERT_EQ(expressions[1].tokens().size(), kMostCodesOnDevice + 1);
  const HandlerTable table = tableOfAll(Precision::kF32, Math::kPrecise);
  HostPopulation host(expressions, Precision::kF32, Math::kPrecise, table);
  host.encodeAll();
  EXPECT_GT(host.sizes[0].tokens, 0U);
  EXPECT_GT(host.sizes[3].tokens, 0U);
  for (const std::uint32_t e : {1U, 2U}) {
    EXPECT_EQ(host.sizes[e].tokens, 0U);
    EXPECT_EQ(host.sizes[e].nodes, 0U);
    EXPECT_EQ(host.sizes[e].parameters, 0U);
    EXPECT_EQ(host.sizes[e].patches, 0U);
    EXPECT_EQ(host.sizes[e].slots, 0U);
    const DeviceToken first = host.tokens[host.arguments.programs.firstToken(host.arguments.population, e)];
    EXPECT_EQ(first.code, HostPopulation::kUnwritten.code);
  }
}

/// The most memory that a worker takes for 60 of the longest expressions that it encodes, of these operators.
std::size_t mostMemoryOf(const std::vector<Op>& ops, Precision precision, Math math, std::uint64_t seeds) {
  const HandlerTable table = tableOfAll(precision, math);
  std::size_t most = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const std::vector<Expression> expressions =
        ExpressionGenerator({.seed = seed,
                             .min_nodes = static_cast<int>(seed % 3 == 0 ? kMostCodesOnDevice / 2 : kMostCodesOnDevice),
                             .max_nodes = static_cast<int>(kMostCodesOnDevice),
                             .variables = seed % 2 == 0 ? 7 : static_cast<int>(kTestedVariables),
                             .parameters = 4,
                             .ops = ops,
                             .constant_probability = 0.25,
                             .parameter_probability = 0.2,
                             .special_probability = 0.1})
            .batch(60);
    HostPopulation host(expressions, precision, math, table);
    const TakenMemory memory;
    host.encodeAll();
    most = std::max(most, kWorkerAlignment + memory.bytes());
  }
  return most;
}

// So that a worker does not end before its last expression. Some sets of few operators need more, as powers below
// square roots in Math::kFast: tests/gpu/device_encoding_test.cpp.
TEST_P(DeviceWorkerModes, HaveMemoryForTheLongestExpressions) {
  if (!TakenMemory::isCounted()) GTEST_SKIP() << "a sanitizer has operator new";
  const auto [precision, math] = GetParam();
  const std::size_t of_all = mostMemoryOf({}, precision, math, 300);
  EXPECT_LE(of_all, kWorkerBytes);
  EXPECT_GT(of_all, kWorkerBytes / 2) << "more expressions could be encoded on a device";
  const std::vector<Op> arithmetic = {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv};
  const std::vector<Op> cubes = {Op::kCube, Op::kCube, Op::kCube, Op::kSub};
  const std::vector<Op> usual = {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv, Op::kSin,
                                 Op::kExp, Op::kLog, Op::kPow, Op::kSqrt};
  for (const std::vector<Op>& ops : {arithmetic, cubes, usual}) {
    EXPECT_LE(mostMemoryOf(ops, precision, math, 100), kWorkerBytes);
  }
}

// A table without the operator, and too few slots.
TEST(DeviceWorkers, WhatTheInterpreterHasNoProgramForIsLeft) {
  const std::vector<Expression> expressions = {infix("x0+x1"), infix("sin(x0)+1"), infix("exp(x1)*(x0+exp(x1))"),
                                               infix("x1*x0")};
  const HandlerTable table({Precision::kF64, Math::kStrict, {Op::kAdd, Op::kMul, Op::kExp}, 4, 5});
  HostPopulation host(expressions, Precision::kF64, Math::kStrict, table);
  host.encodeAll();
  EXPECT_GT(host.sizes[0].tokens, 0U);
  EXPECT_EQ(host.sizes[1].tokens, 0U);
  EXPECT_EQ(host.sizes[2].slots, 1U);
  EXPECT_GT(host.sizes[3].tokens, 0U);
  EXPECT_EQ(host.operators[static_cast<std::size_t>(Op::kSin)], 0U) << "it is the host's to name";
  const unsigned tokens = host.sizes[2].tokens;
  host.arguments.few_slots = 0;
  host.encodeAll();
  EXPECT_GT(host.sizes[0].tokens, 0U);
  EXPECT_EQ(host.sizes[2].tokens, 0U) << "the host has programs of many slots launched apart";
  host.arguments.max_slots = 0;
  host.encodeAll();
  EXPECT_GT(host.sizes[0].tokens, 0U);
  EXPECT_EQ(host.sizes[2].slots, 0U) << "the shared value is computed twice";
  EXPECT_GT(host.sizes[2].tokens, tokens);
  EXPECT_GT(host.sizes[3].tokens, 0U);
}

TEST(LinkProgram, WritesTheNumbersOfTheFamilyAndItsColumns) {
  const std::vector<Expression> expressions = shortExpressions(200, 6);
  const HandlerTable table = tableOfAll(Precision::kF32, Math::kPrecise);
  HostPopulation host(expressions, Precision::kF32, Math::kPrecise, table);
  host.encodeAll();
  // Numbers that a mistake would not hit.
  std::vector<std::uint16_t> handlers(table.handlers().size());
  std::iota(handlers.begin(), handlers.end(), std::uint16_t{0});
  std::ranges::reverse(handlers);
  const std::vector<std::uint32_t> staged_as = {5, 3, 4, 2, 6, 0, 1};
  constexpr std::uint32_t kStaged = 40, kFirstParameter = 17, kGap = 3;
  std::vector<ProgramPlace> places;
  std::uint32_t tokens = 0, parameters = kFirstParameter;
  for (const EncodedSize& size : host.sizes) {
    places.push_back({tokens, parameters});
    tokens += size.tokens + kGap;
    parameters += size.parameters;
  }
  std::vector<DeviceToken> linked(tokens, HostPopulation::kUnwritten);
  std::vector<ParameterSource> sources(parameters, {.index = 99, .literal = 123});
  const LinkArguments arguments{.population = host.arguments.population,
                                .programs = host.arguments.programs,
                                .links = {handlers, staged_as, kStaged, kTestedFirstSlot},
                                .places = places.data(),
                                .tokens = linked.data(),
                                .parameters = sources.data()};
  const auto columnOf = [&](std::uint32_t column) {
    return column < kTestedFirstSlot ? staged_as[column] : column - kTestedFirstSlot + kStaged;
  };
  for (std::uint32_t e = 0; e < expressions.size(); ++e) linkProgram(arguments, e);
  for (std::uint32_t e = 0; e < expressions.size(); ++e) {
    const std::span<const DeviceToken> from = host.tokensOf(e);
    for (std::size_t t = 0; t < from.size(); ++t) {
      const DeviceToken token = from[t], got = linked[places[e].token + t];
      EXPECT_EQ(got.code & DeviceToken::kHandlerMask, handlers[token.code & DeviceToken::kHandlerMask]);
      EXPECT_EQ(got.code >> DeviceToken::kColumnShift & DeviceToken::kColumnMask,
                columnOf(token.code >> DeviceToken::kColumnShift & DeviceToken::kColumnMask));
      const std::uint32_t kind = token.code >> DeviceToken::kArgumentShift;
      EXPECT_EQ(got.code >> DeviceToken::kArgumentShift, kind);
      EXPECT_EQ(got.argument, kind == DeviceToken::kParameter ? token.argument + places[e].parameter
                              : kind == DeviceToken::kColumn  ? columnOf(token.argument)
                                                              : token.argument);
    }
    for (std::uint32_t gap = 0; gap < kGap; ++gap) {
      EXPECT_EQ(linked[places[e].token + from.size() + gap].code, HostPopulation::kUnwritten.code);
    }
    for (std::size_t p = 0; p < host.sizes[e].parameters; ++p) {
      const ParameterSource &want = host.parametersOf(e)[p], &got = sources[places[e].parameter + p];
      EXPECT_EQ(got.expression, want.expression);
      EXPECT_EQ(got.index, want.index);
      EXPECT_TRUE(sameBits(got.literal, want.literal));
    }
  }
  for (std::uint32_t p = 0; p < kFirstParameter; ++p) EXPECT_EQ(sources[p].index, 99U);
}

}  // namespace
}  // namespace srjit
