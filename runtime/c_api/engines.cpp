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

}  // namespace

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
  checkReserved(static_cast<std::uint32_t>(options.reserved), "options");
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
    std::deque<std::string>& texts = engine->notices->texts;
    const std::lock_guard lock(engine->notices->mutex);
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

}  // extern "C"

}  // namespace srjit::c_api
