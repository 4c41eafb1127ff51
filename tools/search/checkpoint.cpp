#include "tools/search/checkpoint.h"

#include <cmath>
#include <concepts>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ir/text.h"
#include "runtime/platform/guarded.h"

namespace srjit::search {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "sr-jit search 4";

std::string postfixOf(std::span<const Token> tree) {
  return print(Expression::create({tree.begin(), tree.end()}).value(), Language::kPostfix);
}

Json jsonOf(const Individual& individual) {
  return {{"tree", postfixOf(individual.tree)},
          {"complexity", individual.complexity},
          {"loss", individual.loss},
          {"shape", individual.shape},
          {"whole", individual.whole}};
}

/// JSON has no infinity: a number that is not finite is null there, and infinite when it is read.
Json jsonOf(std::span<const double> numbers) {
  Json array = Json::array();
  for (const double number : numbers) array.push_back(number);
  return array;
}

double numberFrom(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::infinity() : json.get<double>();
}

/// For any unsigned integer. Of another number, the JSON library's conversion may have no defined result.
struct IntegerFrom {
  const Json& json;

  template <std::unsigned_integral T>
  operator T() const {
    if (!json.is_number_unsigned()) throw Error{Errc::kInvalid, json.dump() + " is no count", {}};
    return json.get<T>();
  }
};

std::vector<double> numbersFrom(const Json& json) {
  std::vector<double> numbers;
  for (const Json& number : json) numbers.push_back(numberFrom(number));
  return numbers;
}

Json jsonOf(const Island& island) {
  Json population = Json::array();
  for (const Individual& individual : island.population) population.push_back(jsonOf(individual));
  return {{"number", island.number},
          {"link", island.link},
          {"generation", island.generation},
          {"born", island.born},
          {"improved", island.improved},
          {"records", jsonOf(island.records)},
          {"population", std::move(population)}};
}

Json jsonOf(const Formula& formula) {
  return {{"formula", print(formula.expression, Language::kPostfix)},
          {"complexity", formula.complexity},
          {"loss", formula.loss},
          {"is_judged", !std::isnan(formula.held_out)},
          {"held_out", formula.held_out}};
}

/// Throws nlohmann's exceptions, and Error for text that is no tree.
Expression expressionFrom(const Json& text) {
  Result<Expression> expression = parse(text.get<std::string>(), Language::kPostfix);
  if (!expression) throw expression.error();
  if (expression->parameterCount() > 0) throw Error{Errc::kInvalid, "a tree has a parameter", {}};
  return *std::move(expression);
}

Individual individualFrom(const Json& json) {
  const Expression expression = expressionFrom(json.at("tree"));
  return {.tree = {expression.tokens().begin(), expression.tokens().end()},
          .complexity = IntegerFrom{json.at("complexity")},
          .loss = json.at("loss"),
          .shape = IntegerFrom{json.at("shape")},
          .whole = IntegerFrom{json.at("whole")}};
}

Island islandFrom(const Json& json) {
  Island island{.number = IntegerFrom{json.at("number")},
                .link = IntegerFrom{json.at("link")},
                .generation = IntegerFrom{json.at("generation")},
                .born = IntegerFrom{json.at("born")},
                .improved = IntegerFrom{json.at("improved")},
                .records = numbersFrom(json.at("records")),
                .population = {}};
  for (const Json& individual : json.at("population")) island.population.push_back(individualFrom(individual));
  return island;
}

SearchState stateFrom(const Json& json) {
  if (json.at("format") != kFormat) throw Error{Errc::kInvalid, "another format", {}};
  SearchState state;
  state.fingerprint = IntegerFrom{json.at("fingerprint")};
  state.rows = IntegerFrom{json.at("rows")};
  state.seconds = json.at("seconds");
  state.generations = IntegerFrom{json.at("generations")};
  state.candidates = IntegerFrom{json.at("candidates")};
  state.fits = IntegerFrom{json.at("fits")};
  for (const Json& island : json.at("islands")) state.islands.push_back(islandFrom(island));
  for (const Json& archive : json.at("archives")) {
    state.archives.emplace_back();
    for (const Json& archived : archive) {
      state.archives.back().push_back({individualFrom(archived.at("individual")), archived.at("polished")});
    }
  }
  state.front = Front(-numberFrom(json.at("below_floor")));
  for (const Json& formula : json.at("front")) {
    const double held_out = numberFrom(formula.at("held_out"));
    state.front.add(
        {.expression = expressionFrom(formula.at("formula")),
         .complexity = IntegerFrom{formula.at("complexity")},
         .loss = formula.at("loss"),
         .held_out = formula.at("is_judged").get<bool>() ? held_out : std::numeric_limits<double>::quiet_NaN()});
  }
  return state;
}

}  // namespace

std::string checkpointText(const SearchState& state) {
  Json json = {{"format", kFormat},
               {"fingerprint", state.fingerprint},
               {"rows", state.rows},
               {"seconds", state.seconds},
               {"generations", state.generations},
               {"candidates", state.candidates},
               {"fits", state.fits},
               {"below_floor", -state.front.floor()},
               {"front", Json::array()},
               {"archives", Json::array()},
               {"islands", Json::array()}};
  for (const Formula& formula : state.front.formulas()) json["front"].push_back(jsonOf(formula));
  for (const std::vector<Archived>& archive : state.archives) {
    Json& entries = json["archives"].emplace_back(Json::array());
    for (const Archived& archived : archive) {
      entries.push_back({{"individual", jsonOf(archived.individual)}, {"polished", archived.is_polished}});
    }
  }
  for (const Island& island : state.islands) json["islands"].push_back(jsonOf(island));
  return json.dump() + "\n";
}

Result<SearchState> readCheckpoint(std::string_view text) {
  return guarded([&]() -> Result<SearchState> {
    std::string reason;
    try {
      return stateFrom(Json::parse(text));
    } catch (const Json::exception& problem) {
      reason = problem.what();
    } catch (const Error& error) {
      reason = error.message;
    }
    return Error{Errc::kInvalid, fmt::format("this is no checkpoint of a search: {}", reason), {}};
  });
}

}  // namespace srjit::search
