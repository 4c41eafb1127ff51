// What the handles of srjit.h are, but for those of one file, and what all of its calls have in common.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "ir/error.h"
#include "ir/population.h"
#include "runtime/c_api/arguments.h"
#include "runtime/engine.h"
#include "runtime/platform/guarded.h"
#include "runtime/population_arrays.h"

namespace srjit::c_api {

/// Which expressions results belong to.
struct Origin {
  std::size_t expressions = 0;
  /// Failures of texts, in order; null: none. They replace those of the empty expressions that stand for the texts.
  std::shared_ptr<const std::vector<Failure>> texts = {};
};

}  // namespace srjit::c_api

struct srjit_engine {
  srjit::Engine engine;
  mutable std::mutex mutex = {};
  /// The engine's notices so far, where a caller's pointers to them stay valid; guarded by mutex.
  mutable std::deque<std::string> notices = {};
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

namespace srjit::c_api {

/// Writes an error to a caller's struct, unless it is null. Gives the code of srjit.h.
std::int32_t writeError(const Error& error, srjit_error* to) noexcept;

/// Runs `body`, and answers with SRJIT_OK or the code of what it throws.
template <class Body>
std::int32_t answer(srjit_error* error, const Body& body) noexcept {
  const Status done = guarded([&] { return body(), okStatus(); });
  return done ? SRJIT_OK : writeError(done.error(), error);
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
Notation notationOf(std::int32_t notation);
/// Calls `use` with data in the processor's memory, borrowed, or copied where numbers are not adjacent. Throws kInvalid
/// for bad matrices, kUnsupported for those of a device.
void withHostData(const srjit_data& data, const std::function<void(const DataView&)>& use);
/// `names` of `columns` columns.
ColumnNames namesOf(const char* const* names, std::uint64_t columns);
Math mathOf(std::int32_t math);
std::int32_t codeOf(Tier tier);
CompileOptions compileOptionsOf(const srjit_engine& engine, const srjit_compile_options* options);
LossOptions lossOptionsOf(const srjit_loss_options* options);

}  // namespace srjit::c_api
