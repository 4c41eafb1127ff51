// Engines, errors, and failures of single expressions.
#include <algorithm>
#include <optional>

#include "runtime/c_api/handles.h"

namespace srjit::c_api {

namespace {

static_assert(kPrecisions[SRJIT_F32] == Precision::kF32 && kPrecisions[SRJIT_F64] == Precision::kF64);

constexpr Math kMathOf[] = {Math::kPrecise, Math::kStrict, Math::kFast};
// By SRJIT_TIER_OF_ENGINE and the following.
constexpr std::optional<Tier> kTierOf[] = {std::nullopt, Tier::kAuto, Tier::kInterpret, Tier::kCompile, Tier::kDirect};

/// The number of a value in a table of choiceOf().
template <class T, std::size_t kCount>
std::int32_t codeIn(const T (&choices)[kCount], const T& value) {
  return static_cast<std::int32_t>(std::find(choices, choices + kCount, value) - choices);
}

EngineOptions engineOptionsOf(const srjit_engine_options* given) {
  const srjit_engine_options options = fromCaller(given, "options");
  EngineOptions result;
  if (options.device != nullptr) result.device = options.device;
  if (options.cache_directory != nullptr) result.cache_directory = options.cache_directory;
  result.precision = choiceOf(kPrecisions, options.precision, "precision");
  result.math = choiceOf(kMathOf, options.math, "math");
  result.tier = choiceOf(kTierOf, options.tier, "tier").value_or(Tier::kAuto);
  result.threads = options.threads;
  result.device_bytes = options.device_bytes;
  result.subtree_bytes = options.subtree_bytes;
  result.limits = {
      .max_nodes = options.max_nodes, .max_call_nodes = options.max_call_nodes, .max_seconds = options.max_seconds};
  return result;
}

// The codes of srjit.h are those of Errc, behind SRJIT_OK.
constexpr bool hasCode(Errc code, int of_c) { return static_cast<int>(code) + 1 == of_c; }
static_assert(hasCode(Errc::kSyntax, SRJIT_ERROR_SYNTAX) && hasCode(Errc::kInvalid, SRJIT_ERROR_INVALID) &&
              hasCode(Errc::kIo, SRJIT_ERROR_IO) && hasCode(Errc::kUnsupported, SRJIT_ERROR_UNSUPPORTED) &&
              hasCode(Errc::kCompile, SRJIT_ERROR_COMPILE) && hasCode(Errc::kMachine, SRJIT_ERROR_MACHINE) &&
              hasCode(Errc::kCancelled, SRJIT_ERROR_CANCELLED) && hasCode(Errc::kLimit, SRJIT_ERROR_LIMIT));

/// The longest beginning of `message` that fits, in whole characters, and "..." where it is not all.
std::string_view beginning(std::string_view message, std::size_t capacity) {
  if (message.size() < capacity) return message;
  std::size_t end = capacity - std::string_view("...").size() - 1;
  const auto continues = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; };
  const std::size_t longest_character = 4;
  for (std::size_t i = 1; i < longest_character && continues(message[end]); ++i) --end;
  return message.substr(0, end);
}

}  // namespace

std::int32_t writeError(const Error& error, srjit_error* to) noexcept {
  const std::int32_t answer = static_cast<std::int32_t>(error.code) + 1;
  if (to == nullptr || to->size < kFirstSize<srjit_error>) return answer;
  srjit_error mine{};
  mine.code = answer;
  if (error.where) {
    mine.has_place = 1;
    mine.line = error.where->line;
    mine.column = error.where->column;
    mine.length = error.where->length;
  }
  const std::string_view text = beginning(error.message, sizeof mine.message);
  char* const end = std::ranges::copy(text, mine.message).out;
  if (text.size() < error.message.size()) std::ranges::copy(std::string_view("..."), end);
  toCaller(mine, to);
  return answer;
}

srjit_failures* failuresFor(std::vector<Failure> list, const Origin& origin) {
  if (list.empty()) return nullptr;
  if (origin.texts != nullptr) {
    for (Failure& failure : list) {
      const std::size_t expression = failure.expression % origin.expressions;
      const auto text = std::ranges::lower_bound(*origin.texts, expression, {}, &Failure::expression);
      if (text != origin.texts->end() && text->expression == expression) failure.error = text->error;
    }
  }
  return new srjit_failures{std::move(list)};
}

std::int32_t codeOf(Tier tier) { return codeIn(kTierOf, std::optional(tier)); }

Math mathOf(std::int32_t math) { return choiceOf(kMathOf, math, "math"); }

CompileOptions compileOptionsOf(const srjit_engine& engine, const srjit_compile_options* given) {
  const srjit_compile_options options = fromCaller(given, "options");
  CompileOptions result;
  result.tier = choiceOf(kTierOf, options.tier, "tier");
  if (options.passes != nullptr) {
    result.pipeline = Pipeline::parse(options.passes, engine.engine.options().math).value();
  }
  if (!(options.expected_evaluations >= 0)) {
    refuse(Errc::kInvalid, fmt::format("expected_evaluations is {}", options.expected_evaluations));
  }
  if (options.expected_evaluations != 0) result.expected_evaluations = options.expected_evaluations;
  result.expected_rows = options.expected_rows;
  result.group_by_sharing = !flagOf(options.keep_order, "keep_order");
  if (options.data != nullptr) result.data = &options.data->data;
  result.deferred = flagOf(options.deferred, "deferred");
  result.simplify = !flagOf(options.as_written, "as_written");
  if (!result.simplify && result.pipeline) {
    refuse(Errc::kInvalid, "as_written is 1, but there are passes: expected one of them");
  }
  return result;
}

extern "C" {

const char* srjit_version(void) { return SRJIT_VERSION; }

int32_t srjit_engine_create(const srjit_engine_options* options, srjit_engine** engine, srjit_error* error) {
  return answerWith(engine, "engine", error,
                    [&] { return srjit_engine{Engine::create(engineOptionsOf(options)).value()}; });
}

void srjit_engine_free(srjit_engine* engine) { delete engine; }

const char* srjit_engine_device(const srjit_engine* engine) {
  return engine == nullptr ? nullptr : engine->engine.options().device.c_str();
}

const char* srjit_engine_notice(const srjit_engine* engine, uint64_t i) {
  if (engine == nullptr) return nullptr;
  try {
    const std::lock_guard lock(engine->mutex);
    std::deque<std::string>& texts = engine->notices;
    const std::vector<std::string> now = engine->engine.notices();
    for (std::size_t next = texts.size(); next < now.size(); ++next) texts.push_back(now[next]);
    return i < texts.size() ? texts[i].c_str() : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

int32_t srjit_engine_get_info(const srjit_engine* engine, srjit_engine_info* info, srjit_error* error) {
  return answer(error, [&] {
    const EngineOptions& options = required(engine, "engine").engine.options();
    describeTo(info, "info", [&](srjit_engine_info& to) {
      to.precision = codeIn(kPrecisions, options.precision);
      to.math = codeIn(kMathOf, options.math);
      to.tier = codeOf(options.tier);
      to.threads = options.threads;
      to.device_bytes = options.device_bytes;
      to.subtree_bytes = options.subtree_bytes;
      to.max_nodes = options.limits.max_nodes;
      to.max_call_nodes = options.limits.max_call_nodes;
      to.max_seconds = options.limits.max_seconds;
    });
  });
}

int32_t srjit_engine_cache_stats(const srjit_engine* engine, srjit_cache_stats* stats, srjit_error* error) {
  return answer(error, [&] {
    const CacheStats now = required(engine, "engine").engine.cacheStats();
    describeTo(stats, "stats", [&](srjit_cache_stats& to) {
#define SRJIT_CACHE_COUNTER(name) to.name = now.name;
#include "runtime/platform/counters.def"
    });
  });
}

uint64_t srjit_failures_count(const srjit_failures* failures) {
  return failures == nullptr ? 0 : failures->list.size();
}

int32_t srjit_failures_get(const srjit_failures* failures, uint64_t i, uint64_t* expression, srjit_error* error) {
  const Failure* failure = nullptr;
  const int32_t status = answer(error, [&] {
    const std::vector<Failure>& list = required(failures, "failures").list;
    if (i >= list.size()) refuse(Errc::kInvalid, fmt::format("failure {} of {}", i, list.size()));
    failure = &list[i];
  });
  if (status != SRJIT_OK) return status;
  if (expression != nullptr) *expression = failure->expression;
  writeError(failure->error, error);
  return SRJIT_OK;
}

void srjit_failures_free(srjit_failures* failures) { delete failures; }

}  // extern "C"

}  // namespace srjit::c_api
