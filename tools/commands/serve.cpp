#include "tools/commands/requests.h"

#include <chrono>
#include <cmath>
#include <iostream>
#include <new>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "ir/token_errors.h"
#include "runtime/loss_text.h"
#include "runtime/platform/deadline.h"
#include "runtime/population_arrays.h"
#include "tools/commands.h"
#include "tools/evaluation.h"
#include "tools/json.h"
#include "tools/report.h"
#include "tools/search/interface/options.h"
#include "tools/search/report.h"

namespace srjit {
namespace {

/// Writes a line, and whether it could be written.
bool write(const std::string& line) {
  std::cout << line << '\n' << std::flush;
  return std::cout.good();
}

/// Reads a line without its end, and keeps at most `max_bytes` of it, unless that is 0; false at the end of the
/// input. `is_cut`: it has more.
bool readLine(std::string& line, std::uint64_t max_bytes, bool& is_cut) {
  line.clear();
  is_cut = false;
  int byte = std::cin.get();
  if (byte == std::istream::traits_type::eof()) return false;
  for (; byte != std::istream::traits_type::eof() && byte != '\n'; byte = std::cin.get()) {
    is_cut = max_bytes != 0 && line.size() == max_bytes;
    if (!is_cut) line += static_cast<char>(byte);
  }
  return true;
}

ExitStatus runServe(const EvaluationOptions& options) {
  if (options.data == "-") {
    throw CLI::ValidationError("--data", "standard input has the requests, so data cannot come from there");
  }
  const std::uint64_t max_bytes = options.expressions.limits.max_bytes;
  const LoadedData loaded = loadData(options);
  const DataView table = viewOf(loaded.roles);
  const RequestServer server{loaded.engine, loaded.data, table.names, options.simplify, table};
  // A client need not guess when the data are read.
  if (!write(describeServer(server))) return kDone;  // runMain() reports the loss
  std::string line;
  bool is_cut = false;
  while (readLine(line, max_bytes, is_cut)) {
    if (!is_cut && line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (!write(is_cut ? refuseRequest(max_bytes) : answerRequest(server, line))) break;
  }
  return kDone;
}

Json errorJson(const Error& error) {
  Json json = {{"code", nameOf(error.code)}, {"message", error.message}};
  if (error.where) {
    json["where"] = {{"line", error.where->line}, {"column", error.where->column}, {"length", error.where->length}};
  }
  return json;
}

Json failuresJson(std::span<const Failure> failures) {
  Json list = Json::array();
  for (const Failure& failure : failures) {
    Json entry = {{"expression", failure.expression}};
    entry.update(errorJson(failure.error));
    list.push_back(std::move(entry));
  }
  return list;
}

/// The member `name` of a request, or `otherwise`. Throws kInvalid for one of another type.
template <class T>
T memberOf(const Json& request, const char* name, T otherwise) {
  const auto found = request.find(name);
  if (found == request.end() || found->is_null()) return otherwise;
  try {
    return found->get<T>();
  } catch (const Json::exception&) {
    refuse("'{}' is of the wrong type", name);
  }
}

/// Throws kInvalid for a value that is no integer, or not in the range of T.
template <class T>
T integerOf(const Json& json, const char* name) {
  const bool is_large = json.is_number_unsigned() && !std::in_range<T>(json.get<std::uint64_t>());
  if (!json.is_number_integer() || is_large || !std::in_range<T>(json.get<std::int64_t>())) {
    refuse("'{}' has {}, expected integers of {} bits", name, json.dump(), 8 * sizeof(T));
  }
  return json.get<T>();
}
template <class T>
std::vector<T> integersOf(const Json& request, const char* name) {
  const auto found = request.find(name);
  if (found == request.end() || !found->is_array()) refuse("'{}' is no list of integers", name);
  std::vector<T> integers;
  for (const Json& json : *found) integers.push_back(integerOf<T>(json, name));
  return integers;
}

template <class T, std::size_t kCount>
T choiceOf(const Json& request, const char* name, const T (&choices)[kCount], T otherwise) {
  const auto word = memberOf<std::string>(request, name, nameOf(otherwise));
  std::string words;
  for (const T choice : choices) {
    if (word == nameOf(choice)) return choice;
    words += (words.empty() ? "" : ", ") + std::string(nameOf(choice));
  }
  refuse("'{}' is {}, expected one of {}", name, Json(word).dump(), words);
}

Language languageOf(const Json& request) {
  const auto word = memberOf<std::string>(request, "language", "infix");
  if (const auto language = findLanguage(word)) return *language;
  refuse("'language' is {}, expected one of infix, postfix, prefix, json", Json(word).dump());
}

PopulationArrays readExpressionsOf(const Json& request, const RequestServer& server) {
  const std::size_t max_nodes = server.engine.options().limits.max_nodes;
  if (request.contains("expressions")) {
    return PopulationArrays::parse(memberOf<std::vector<std::string>>(request, "expressions", {}), languageOf(request),
                                   server.columns, max_nodes);
  }
  const auto population = request.find("population");
  if (population == request.end() || !population->is_object()) {
    refuse("expected 'expressions', a list of texts, or 'population', an object of token arrays");
  }
  const auto codes = integersOf<std::int32_t>(*population, "codes");
  const auto constants = memberOf<std::vector<double>>(*population, "constants", {});
  const auto offsets = integersOf<std::int64_t>(*population, "offsets");
  const auto notation = memberOf<std::string>(*population, "notation", "postfix");
  if (notation != "postfix" && notation != "prefix") refuse("'notation' is neither postfix nor prefix");
  const PopulationView view{codes, constants, offsets, notation == "prefix" ? Notation::kPrefix : Notation::kPostfix};
  checkArrays(view).value();
  return PopulationArrays::copy(view, max_nodes);
}

/// The expressions of a request: texts, or token arrays. Throws kLimit for more nodes than a request may have.
PopulationArrays expressionsOf(const Json& request, const RequestServer& server) {
  PopulationArrays expressions = readExpressionsOf(request, server);
  checkCallNodes(expressions.codes.size(), 1, server.engine.options().limits.max_call_nodes).value();
  return expressions;
}

/// Numbers in a row, or lists of such numbers, one behind another. parseJson() bounds how deep it recurses.
void appendNumbers(const Json& json, const char* name, std::vector<double>& numbers) {
  if (json.is_number()) {
    numbers.push_back(json.get<double>());
    return;
  }
  if (!json.is_array()) refuse("'{}' is neither a list of numbers nor a list of such lists", name);
  for (const Json& part : json) appendNumbers(part, name, numbers);
}
std::vector<double> numbersOf(const Json& request, const char* name) {
  std::vector<double> numbers;
  if (const auto found = request.find(name); found != request.end()) appendNumbers(*found, name, numbers);
  return numbers;
}

/// How many vectors of all parameters these are; what does not fit is the engine's to refuse.
std::size_t vectorsOf(const Program& program, std::span<const double> parameters) {
  const std::size_t one = program.parameterOffset(program.size());
  return one > 0 && parameters.size() > one && parameters.size() % one == 0 ? parameters.size() / one : 1;
}

LossOptions lossOf(const Json& request) {
  LossOptions loss = parseLoss(memberOf<std::string>(request, "loss", "mse")).value();
  loss.nan = choiceOf(request, "nan", kNanPolicies, NanPolicy::kPropagate);
  return loss;
}

/// A list with null for NaN and infinities: JSON has neither.
Json numbersJson(std::span<const double> numbers) {
  Json list = Json::array();
  for (const double number : numbers) list.push_back(std::isfinite(number) ? Json(number) : Json());
  return list;
}

Json validRowsJson(std::span<const std::uint64_t> rows) {
  Json list = Json::array();
  for (const std::uint64_t count : rows) list.push_back(count == Losses::kNotCounted ? Json() : Json(count));
  return list;
}

/// One list per expression, and again for every vector, of numbers in the layout of the parameters.
Json byExpression(const Program& program, std::span<const double> numbers) {
  Json list = Json::array();
  const std::size_t one = program.parameterOffset(program.size());
  for (std::size_t vector = 0; vector < vectorsOf(program, numbers); ++vector) {
    for (std::size_t e = 0; e < program.size(); ++e) {
      const std::size_t first = vector * one + program.parameterOffset(e);
      list.push_back(numbersJson(numbers.subspan(first, program.parameterOffset(e + 1) - program.parameterOffset(e))));
    }
  }
  return list;
}

/// A request that is being answered.
struct Answering {
  const RequestServer& server;
  Deadline deadline;

  explicit Answering(const RequestServer& by) : server(by), deadline(by.engine.options().limits.max_seconds) {}

  /// The engine, for a call that has the rest of the request's time. Throws kLimit if there is none.
  Engine engine() const {
    if (!deadline.end()) return server.engine;
    deadline.check();
    Limits limits = server.engine.options().limits;
    limits.max_seconds = std::chrono::duration<double>(*deadline.end() - Deadline::Clock::now()).count();
    deadline.check();
    return server.engine.withLimits(limits).value();
  }
};

Program compile(const Answering& answering, const PopulationArrays& expressions) {
  const RequestServer& server = answering.server;
  return answering.engine()
      .compile(expressions.view(), {.simplify = server.simplify, .expected_rows = server.data.rows()})
      .value();
}

Json lossesJson(const Losses& losses, const PopulationArrays& expressions) {
  return {{"losses", numbersJson(losses.values)},
          {"valid_rows", validRowsJson(losses.valid_rows)},
          {"failures", failuresJson(expressions.explained(losses.failures))}};
}

Json answerInfo(const Answering& answering, const Json&) {
  const RequestServer& server = answering.server;
  const EngineOptions& options = server.engine.options();
  return {{"version", SRJIT_VERSION},
          {"device", options.device},
          {"precision", nameOf(options.precision)},
          {"math", nameOf(options.math)},
          {"rows", server.data.rows()},
          {"columns", std::vector<std::string>(server.columns.names().begin(), server.columns.names().end())},
          {"notices", server.engine.notices()}};
}

Json answerLoss(const Answering& answering, const Json& request) {
  const RequestServer& server = answering.server;
  const PopulationArrays expressions = expressionsOf(request, server);
  const std::vector<double> parameters = numbersOf(request, "parameters");
  const Losses losses =
      parameters.empty()
          ? answering.engine().loss(expressions.view(), server.data, {}, lossOf(request)).value()
          : answering.engine().loss(compile(answering, expressions), server.data, parameters, lossOf(request)).value();
  return lossesJson(losses, expressions);
}

Json answerGradient(const Answering& answering, const Json& request) {
  const RequestServer& server = answering.server;
  const PopulationArrays expressions = expressionsOf(request, server);
  const Program program = compile(answering, expressions);
  const Gradients gradients =
      answering.engine()
          .gradient(program, server.data, numbersOf(request, "parameters"), {.loss = lossOf(request)})
          .value();
  Json json = lossesJson(gradients.losses, expressions);
  json["derivatives"] = byExpression(program, gradients.derivatives);
  return json;
}

Json answerPredict(const Answering& answering, const Json& request) {
  const RequestServer& server = answering.server;
  const PopulationArrays expressions = expressionsOf(request, server);
  const Program program = compile(answering, expressions);
  const std::vector<double> parameters = numbersOf(request, "parameters");
  const std::size_t rows = server.data.rows(), vectors = vectorsOf(program, parameters);
  // Before there is memory for as many results.
  checkCallNodes(expressions.codes.size(), vectors, server.engine.options().limits.max_call_nodes).value();
  const Engine engine = answering.engine();
  return withZeroOf(server.engine.options().precision, [&]<class T>(T) -> Json {
    const std::size_t outputs = program.size() * vectors;
    std::vector<T> out;
    if (outputs > out.max_size() / rows) throw std::bad_alloc();
    out.resize(outputs * rows);
    const auto failures = engine.evaluate(program, server.data, parameters, std::span<T>(out)).value();
    const std::vector<double> wide(out.begin(), out.end());
    Json values = Json::array();
    for (std::size_t o = 0; o < outputs; ++o) {
      answering.deadline.check();
      values.push_back(numbersJson(std::span(wide).subspan(o * rows, rows)));
    }
    return {{"values", std::move(values)}, {"failures", failuresJson(expressions.explained(failures))}};
  });
}

Json answerFit(const Answering& answering, const Json& request) {
  const RequestServer& server = answering.server;
  const PopulationArrays expressions = expressionsOf(request, server);
  const Program program = compile(answering, expressions);
  std::vector<double> starts = numbersOf(request, "starts");
  if (starts.empty()) starts.assign(program.parameterOffset(program.size()), 1.0);
  FitOptions options{.loss = lossOf(request)};
  if (request.contains("iterations")) options.iterations = integerOf<unsigned>(request["iterations"], "iterations");
  const Fits fits = answering.engine().fit(program, server.data, starts, options).value();
  Json json = {{"parameters", byExpression(program, fits.parameters)},
               {"standard_errors", byExpression(program, fits.standard_errors)},
               {"iterations", fits.iterations},
               {"status", Json::array()}};
  for (const FitStatus status : fits.statuses) json["status"].push_back(nameOf(status));
  json.update(lossesJson(fits.losses, expressions));
  return json;
}

Json answerSimplify(const Answering& answering, const Json& request) {
  const RequestServer& server = answering.server;
  const PopulationArrays expressions =
      expressionsOf(request, server).simplified(choiceOf(request, "math", kMathModes, Math::kFast), answering.deadline);
  Json texts = Json::array();
  for (std::size_t e = 0; e < expressions.size(); ++e) {
    answering.deadline.check();
    const Result<Expression> expression = expressions.expression(e);
    texts.push_back(expression ? Json(print(*expression, languageOf(request), server.columns)) : Json());
  }
  return {{"expressions", std::move(texts)}, {"failures", failuresJson(expressions.failures)}};
}

Json answerSearch(const Answering& answering, const Json& request) {
  const RequestServer& server = answering.server;
  const auto words = memberOf<std::string>(request, "options", "");
  search::SearchOptions options = search::parseSearchOptions(words, false).value();
  options.selecting_engine = server.engine.withLimits({}).value();
  options.stop = [&] { return answering.deadline.isOver(); };
  const search::SearchResult found = search::search(server.table, options).value();
  return {{"front", search::frontJson(found.state.front, server.columns, nullptr, found.grammar)},
          {"seconds", found.state.seconds},
          {"generations", found.state.generations},
          {"candidates", found.state.candidates},
          {"end", nameOf(found.end)},
          {"notices", found.notices}};
}

struct RequestKind {
  const char* name;
  Json (*answer)(const Answering& answering, const Json& request);
};
constexpr RequestKind kRequests[] = {{"info", answerInfo},         {"loss", answerLoss}, {"predict", answerPredict},
                                     {"gradient", answerGradient}, {"fit", answerFit},   {"simplify", answerSimplify},
                                     {"search", answerSearch}};

Json resultsOf(const Answering& answering, const Json& request) {
  if (!request.is_object()) refuse("a request is an object");
  const auto wanted = memberOf<std::string>(request, "op", "");
  std::string names;
  for (const RequestKind& kind : kRequests) {
    if (wanted == kind.name) return kind.answer(answering, request);
    names += (names.empty() ? "" : ", ") + std::string(kind.name);
  }
  refuse("'op' is {}, expected one of {}", Json(wanted).dump(), names);
}

/// An object with the request's id, if it has one.
Json jsonAnswer(const RequestServer& server, const std::string& line) {
  Json answer = Json::object();
  const Answering answering(server);
  try {
    const Json request = parseJson(line).value();
    if (request.is_object() && request.contains("id")) answer["id"] = request["id"];
    answer.update(resultsOf(answering, request));
  } catch (const ErrorException& problem) {
    // A call had the rest of the time.
    const bool is_late = problem.error().code == Errc::kLimit && answering.deadline.isOver();
    answer["error"] = errorJson(is_late ? tooManySeconds(server.engine.options().limits.max_seconds) : problem.error());
  } catch (const std::bad_alloc&) {
    answer["error"] = errorJson({Errc::kMachine, "out of memory", {}});
  }
  return answer;
}

/// Bytes that are not UTF-8 become U+FFFD.
std::string lineOf(const Json& answer) { return answer.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

Runner defineServe(CLI::App& app) {
  auto options = std::make_shared<EvaluationOptions>();
  addDataOptions(app, *options);
  addSimplifyOption(app, options->simplify);
  Limits& limits = options->engine.limits;
  addLimit(app, "--max-nodes", limits.max_nodes, "refuse expressions of more nodes (tokens)");
  addLimit(app, "--max-call-nodes", limits.max_call_nodes, "refuse requests of more nodes in all expressions");
  addLimit(app, "--max-bytes", options->expressions.limits.max_bytes, "refuse longer requests, and data of more bytes");
  addSeconds(
      app, [&limits](double seconds) { limits.max_seconds = seconds; },
      "answer a request that takes longer with an error");
  app.footer(
      "Reads requests from standard input and writes answers to standard output, one JSON object a line, until the\n"
      "input ends. docs/serve.md has the requests.\n"
      "Example:\n"
      "  echo '{\"op\": \"loss\", \"expressions\": [\"x0*2\"]}' | sr-jit serve --data table.csv --target y");
  return [options] { return runServe(*options); };
}

std::string describeServer(const RequestServer& server) { return lineOf(answerInfo(Answering(server), {})); }

std::string answerRequest(const RequestServer& server, const std::string& line) {
  return lineOf(jsonAnswer(server, line));
}

std::string refuseRequest(std::uint64_t max_bytes) {
  const Error error{
      Errc::kLimit, fmt::format("a request of more than {} bytes; a larger --max-bytes allows it", max_bytes), {}};
  return lineOf({{"error", errorJson(error)}});
}

}  // namespace srjit
