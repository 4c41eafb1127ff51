// The command serve: a program in any language sends requests as lines of JSON, and data, kernels and engine stay.
#include <iostream>
#include <string>

#include "tools/commands.h"
#include "tools/commands/requests.h"
#include "tools/evaluation.h"
#include "tools/streams.h"

namespace srjit {
namespace {

/// Writes a line, and whether it could be written.
bool write(const std::string& line) {
  std::cout << line << '\n' << std::flush;
  return std::cout.good();
}

/// Reads a line without its end, of which no more than `max_bytes` are kept, unless that is 0; false at the end of the
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
  const RequestServer server{loaded.engine, loaded.data, viewOf(loaded.roles).names};
  // A client need not guess when the data are read.
  if (!write(describeServer(server))) return kDone;  // runMain() reports what was lost
  std::string line;
  bool is_cut = false;
  while (readLine(line, max_bytes, is_cut)) {
    if (!is_cut && line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (!write(is_cut ? refuseRequest(max_bytes) : answerRequest(server, line))) break;
  }
  return kDone;
}

}  // namespace

Runner defineServe(CLI::App& app) {
  auto options = std::make_shared<EvaluationOptions>();
  addDataOptions(app, *options);
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

}  // namespace srjit
