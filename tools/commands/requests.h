// The requests of `sr-jit serve` (docs/serve.md): lines of JSON in, lines of JSON out.
#pragma once

#include <cstdint>
#include <string>

#include "ir/text.h"
#include "runtime/data_view.h"
#include "runtime/engine.h"

namespace srjit {

/// What requests are answered with. The limits of the engine are those of each request.
struct RequestServer {
  Engine engine;
  Dataset data;
  ColumnNames columns;
  bool simplify = true;  ///< CompileOptions, of every request
  DataView table = {};   ///< what `data` are of, for searches; it must outlive the server
};

/// The answer to the request `info`, which a server writes first. One line, without its end.
std::string describeServer(const RequestServer& server);

/// The answer to a line, whatever it has: one line, without its end, with an object that has the request's id, if it
/// has one, and results or an error. Throws only std::bad_alloc. Thread-safe.
std::string answerRequest(const RequestServer& server, const std::string& line);

/// The answer to a line of more than `max_bytes`, which is not read; so it has no id.
std::string refuseRequest(std::uint64_t max_bytes);

}  // namespace srjit
