// Sends lines of any bytes to `sr-jit serve`. Invariant: each answer is one line with one object, which has the
// request's id, and an error or results.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/fuzz/harness/bytes.h"
#include "tools/commands/requests.h"

namespace {

using namespace srjit;
using fuzz::require;
using Json = nlohmann::json;

RequestServer makeServer() {
  const std::vector<double> x = {1, 2, 3, 4, 5}, z = {-1, 0.5, 0, 2, 1e9}, y = {4, 7, 10, 13, 16};
  Engine engine = Engine::create({.device = "cpu",
                                  .precision = Precision::kF64,
                                  .tier = Tier::kInterpret,
                                  .threads = 1,
                                  .cache_directory = ""})
                      .value();
  ColumnNames names = {"x", "z"};
  Dataset data = engine.upload({.columns = {x, z}, .target = y, .weights = {}, .names = names}).value();
  return {std::move(engine), std::move(data), std::move(names)};
}

void checkAnswer(const RequestServer& server, const std::string& line) {
  const std::string text = answerRequest(server, line);
  require(text.find('\n') == std::string::npos, "an answer is one line", text);
  const Json answer = Json::parse(text, nullptr, false);
  require(answer.is_object(), "an answer is an object", text);
  const bool has_error = answer.contains("error");
  require(has_error || answer.size() >= 1, "an answer has results", text);
  if (has_error) require(!answer["error"]["message"].get<std::string>().empty(), "an error has a message", text);
  const Json request = Json::parse(line, nullptr, false);
  if (!has_error) require(request.is_object() && request.contains("op"), "only requests have results", text);
  if (!has_error && request.contains("id")) require(answer.contains("id"), "an answer has the id", text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const RequestServer kServer = makeServer();
  std::string_view text = fuzz::textOf({data, size});
  for (int lines = 0; lines < 4 && !text.empty(); ++lines) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    checkAnswer(kServer, std::string(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return 0;
}
