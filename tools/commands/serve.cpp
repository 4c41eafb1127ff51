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

ExitStatus runServe(const EvaluationOptions& options) {
  if (options.data == "-") {
    throw CLI::ValidationError("--data", "standard input has the requests, so data cannot come from there");
  }
  const Result<LoadedData> loaded = loadData(options);
  if (!loaded) return report(loaded.error());
  const RequestServer server{loaded->engine, loaded->data, viewOf(loaded->roles).names};
  // A client need not guess when the data are read.
  if (!write(describeServer(server))) return kDone;  // runMain() reports what was lost
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (!write(answerRequest(server, line))) break;
  }
  return kDone;
}

}  // namespace

Runner defineServe(CLI::App& app) {
  auto options = std::make_shared<EvaluationOptions>();
  addDataOptions(app, *options);
  app.footer(
      "Reads requests from standard input and writes answers to standard output, one JSON object a line, until the\n"
      "input ends. docs/serve.md has the requests.\n"
      "Example:\n"
      "  echo '{\"op\": \"loss\", \"expressions\": [\"x0*2\"]}' | sr-jit serve --data table.csv --target y");
  return [options] { return runServe(*options); };
}

}  // namespace srjit
