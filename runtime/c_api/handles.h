// What the handles of srjit.h are, and what all of its calls have in common.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ir/error.h"
#include "ir/population.h"
#include "runtime/c_api/srjit.h"
#include "runtime/c_api/structs.h"
#include "runtime/engine.h"
#include "runtime/population_arrays.h"

namespace srjit::c_api {

/// Failures of texts, in order; null: none. They replace the failures of the empty expressions that stand for the
/// texts, in compiled programs and their evaluations.
using TextFailures = std::shared_ptr<const std::vector<Failure>>;

/// Which expressions results belong to.
struct Origin {
  std::size_t expressions = 0;
  TextFailures texts = {};
};

/// An evaluation in flight, or what it gave: an error, or a value until it is taken.
template <class Value>
struct Flight {
  explicit Flight(Pending<Value> evaluation) : pending(std::move(evaluation)) {}

  std::optional<Pending<Value>> pending;
  std::optional<Result<Value>> result = {};
};

}  // namespace srjit::c_api

struct srjit_engine {
  srjit::Engine engine;
  /// The engine's notices so far, where a caller's pointers to them stay valid.
  struct Notices {
    std::mutex mutex;
    std::deque<std::string> texts = {};
  };
  std::unique_ptr<Notices> notices = std::make_unique<Notices>();
};

struct srjit_dataset {
  srjit::Dataset data;
};

struct srjit_tokens {
  srjit::PopulationArrays arrays = {};
};

struct srjit_program {
  srjit::Program program;
  srjit::c_api::Origin origin;
};

struct srjit_failures {
  std::vector<srjit::Failure> list;
};

struct srjit_stop {
  std::stop_source source = {};
};

struct srjit_pending {
  std::variant<srjit::c_api::Flight<srjit::Losses>, srjit::c_api::Flight<srjit::Gradients>,
               srjit::c_api::Flight<std::vector<srjit::Failure>>, srjit::c_api::Flight<srjit::Fits>>
      flight;
  srjit::c_api::Origin origin;
};

namespace srjit::c_api {

/// Writes an error to a caller's struct, unless it is null. Gives the code of srjit.h.
std::int32_t writeError(Errc code, std::string_view message, const std::optional<Span>& where,
                        srjit_error* to) noexcept;
inline std::int32_t writeError(const Error& error, srjit_error* to) noexcept {
  return writeError(error.code, error.message, error.where, to);
}

/// Runs `body`, and answers with SRJIT_OK or the code of what it throws.
template <class Body>
std::int32_t answer(srjit_error* error, const Body& body) noexcept {
  try {
    body();
    return SRJIT_OK;
  } catch (const ErrorException& failure) {
    return writeError(failure.error(), error);
  } catch (const std::bad_alloc&) {
    return writeError(Errc::kMachine, "out of memory", {}, error);
  } catch (const std::length_error&) {  // more than a container can have
    return writeError(Errc::kMachine, "out of memory", {}, error);
  } catch (const std::exception& failure) {
    return writeError(Errc::kMachine, failure.what(), {}, error);
  } catch (...) {
    return writeError(Errc::kMachine, "an exception of another type", {}, error);
  }
}

/// As answer(): `body` gives a new object for `to`, which is null if it fails.
template <class Handle, class Body>
std::int32_t answerWith(Handle** to, const char* name, srjit_error* error, const Body& body) {
  if (to != nullptr) *to = nullptr;
  return answer(error, [&] {
    required(to, name);
    *to = new Handle(body());
  });
}

/// A list of failures for a caller; null for an empty one. The failure of a text replaces that of its expression.
srjit_failures* failuresFor(std::vector<Failure> list, const Origin& origin);

/// The caller's arrays, checked for nulls and the sign of the last offset.
PopulationView populationOf(const srjit_population* population);
/// `names` of `columns` columns.
ColumnNames namesOf(const char* const* names, std::uint64_t columns);
/// `items` of `count` numbers; may be null for a count of 0.
template <class T>
std::span<T> arrayOf(T* items, std::uint64_t count, const char* name) {
  if (count > 0) required(items, name);
  if (count > PTRDIFF_MAX / sizeof(T)) refuse(Errc::kInvalid, fmt::format("{} cannot have {} numbers", name, count));
  return {items, static_cast<std::size_t>(count)};
}

/// `choices[value]`. Throws kInvalid for another value.
template <class T, std::size_t kCount>
T choiceOf(const T (&choices)[kCount], std::int32_t value, const char* name) {
  if (value < 0 || static_cast<std::size_t>(value) >= kCount) {
    refuse(Errc::kInvalid, fmt::format("{} is {}, expected 0 to {}", name, value, kCount - 1));
  }
  return choices[value];
}
inline bool flagOf(std::int32_t value, const char* name) {
  constexpr bool kFlags[] = {false, true};
  return choiceOf(kFlags, value, name);
}
inline void checkReserved(std::uint32_t value, const char* of) {
  if (value != 0) refuse(Errc::kInvalid, fmt::format("reserved of {} is {}, expected 0", of, value));
}
inline Precision precisionOf(std::int32_t type) { return choiceOf(kPrecisions, type, "type"); }

Math mathOf(std::int32_t math);
std::int32_t codeOf(Tier tier);
CompileOptions compileOptionsOf(const srjit_engine& engine, const srjit_compile_options* options);

}  // namespace srjit::c_api
