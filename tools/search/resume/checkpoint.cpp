#include "tools/search/resume/checkpoint.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "ir/text.h"
#include "ir/text/lexer.h"
#include "runtime/platform/guarded.h"
#include "tools/json.h"
#include "tools/report.h"

namespace srjit::search {
namespace {

constexpr std::string_view kFormat = "sr-jit search 8";

Json jsonOf(const Expression& tree, std::size_t complexity, double loss) {
  return {{"tree", print(tree, Language::kPostfix)}, {"complexity", complexity}, {"loss", loss}};
}

/// JSON has no infinity: a number that is not finite is null there, and infinite when it is read.
Json jsonOf(std::span<const double> numbers) {
  Json array = Json::array();
  for (const double number : numbers) array.push_back(number);
  return array;
}

/// A member of an object. A value of another kind than the one asked for is an ErrorException that names the member:
/// the JSON library's own conversions may have no defined result, and its errors name no member.
class Member {
 public:
  Member(const Json& object, const char* name) : name_(name) {
    const auto found = object.find(name);
    if (found == object.end()) refuse("'{}' is missing", name);
    value_ = &*found;
  }

  std::uint64_t count() const { return as<std::uint64_t>(value_->is_number_unsigned(), "a count"); }
  double number() const { return as<double>(value_->is_number(), "a number"); }
  bool flag() const { return as<bool>(value_->is_boolean(), "true or false"); }
  std::string text() const { return as<std::string>(value_->is_string(), "a text"); }
  const Json& list() const { return checked(value_->is_array(), "a list"); }
  /// A number, or infinity for null (jsonOf() of numbers).
  double orInfinity() const { return value_->is_null() ? std::numeric_limits<double>::infinity() : number(); }

 private:
  template <class T>
  T as(bool is_one, const char* kind) const {
    return checked(is_one, kind).get<T>();
  }
  const Json& checked(bool is_one, const char* kind) const {
    if (is_one) return *value_;
    const std::string found = value_->dump(-1, ' ', false, Json::error_handler_t::replace);
    refuse("'{}' is {}, expected {}", name_, text::inQuotes(found), kind);
  }

  const char* name_;
  const Json* value_ = nullptr;
};

std::vector<double> numbersFrom(const Member& member) {
  std::vector<double> numbers;
  for (const Json& number : member.list()) {
    if (!number.is_number() && !number.is_null()) refuse("a list has something else than numbers");
    numbers.push_back(number.is_null() ? std::numeric_limits<double>::infinity() : number.get<double>());
  }
  return numbers;
}

Json jsonOf(const Island& island) {
  Json population = Json::array();
  for (std::size_t i = 0; i < island.population.size(); ++i) {
    const Traits& traits = island.population.traits[i];
    population.push_back(jsonOf(expressionOf(island.population.trees[i]), traits.complexity, traits.loss));
  }
  return {{"number", island.number},
          {"link", island.frame},
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
          {"held_out", formula.held_out},
          {"rounding", formula.rounding}};
}

/// Throws ErrorException for text that is no tree.
Expression expressionFrom(const Member& member) {
  Expression expression = parse(member.text(), Language::kPostfix).value();
  if (expression.parameterCount() > 0) refuse("a tree has a parameter");
  return expression;
}

Archived archivedFrom(const Json& json) {
  return {.tree = expressionFrom({json, "tree"}),
          .complexity = Member(json, "complexity").count(),
          .loss = Member(json, "loss").orInfinity()};
}

Island islandFrom(const Json& json) {
  Island island{.number = Member(json, "number").count(),
                .frame = Member(json, "link").count(),
                .generation = Member(json, "generation").count(),
                .born = Member(json, "born").count(),
                .improved = Member(json, "improved").count(),
                .records = numbersFrom({json, "records"}),
                .population = {}};
  for (const Json& individual : Member(json, "population").list()) {
    const auto [expression, complexity, loss, is_polished] = archivedFrom(individual);
    Individuals& population = island.population;
    population.trees.add(expression.tokens());
    const Identity identity = identityOf(population.trees[population.size()]);
    population.traits.push_back({loss, identity.shape, identity.whole, complexity});
  }
  return island;
}

SearchState stateFrom(const Json& json) {
  if (const std::string format = Member(json, "format").text(); format != kFormat) {
    refuse("its format is {}, expected '{}'", text::inQuotes(format), kFormat);
  }
  SearchState state;
  state.fingerprint = Member(json, "fingerprint").count();
  state.rows = Member(json, "rows").count();
  state.seconds = Member(json, "seconds").number();
  state.generations = Member(json, "generations").count();
  state.candidates = Member(json, "candidates").count();
  state.fits = Member(json, "fits").count();
  state.exact_at = Member(json, "exact_at").count();
  for (const Json& island : Member(json, "islands").list()) state.islands.push_back(islandFrom(island));
  for (const Json& archive : Member(json, "archives").list()) {
    state.archives.emplace_back();
    for (const Json& archived : archive) {
      Archived& entry = state.archives.back().emplace_back(archivedFrom(archived));
      entry.is_polished = Member(archived, "polished").flag();
    }
  }
  state.front = Front(-Member(json, "below_floor").orInfinity(), Member(json, "top").count());
  for (const Json& formula : Member(json, "front").list()) {
    const double held_out = Member(formula, "held_out").orInfinity();
    state.front.add(
        {.expression = expressionFrom({formula, "formula"}),
         .complexity = Member(formula, "complexity").count(),
         .loss = Member(formula, "loss").number(),
         .held_out = Member(formula, "is_judged").flag() ? held_out : std::numeric_limits<double>::quiet_NaN(),
         .rounding = Member(formula, "rounding").orInfinity()});
  }
  return state;
}

}  // namespace

std::string checkpointText(const SearchState& state) {
  Json json = {{"format", kFormat},        {"fingerprint", state.fingerprint}, {"rows", state.rows},
               {"seconds", state.seconds}, {"generations", state.generations}, {"candidates", state.candidates},
               {"fits", state.fits},       {"exact_at", state.exact_at},       {"below_floor", -state.front.floor()},
               {"top", state.front.top()}, {"front", Json::array()},           {"archives", Json::array()},
               {"islands", Json::array()}};
  for (const Formula& formula : state.front.formulas()) json["front"].push_back(jsonOf(formula));
  for (const std::vector<Archived>& archive : state.archives) {
    Json& entries = json["archives"].emplace_back(Json::array());
    for (const Archived& archived : archive) {
      Json& entry = entries.emplace_back(jsonOf(archived.tree, archived.complexity, archived.loss));
      entry["polished"] = archived.is_polished;
    }
  }
  for (const Island& island : state.islands) json["islands"].push_back(jsonOf(island));
  return json.dump() + "\n";
}

Result<SearchState> readCheckpoint(std::string_view text) {
  return guarded([&]() -> Result<SearchState> {
    const auto refused = [](const Error& error) {
      return Error{Errc::kInvalid, fmt::format("this is no checkpoint of a search: {}", error.message), error.where};
    };
    const Result<Json> json = parseJson(text);
    if (!json) return refused(json.error());
    try {
      return stateFrom(*json);
    } catch (const ErrorException& problem) {
      return refused({Errc::kInvalid, problem.error().message, {}});
    }
  });
}

}  // namespace srjit::search
