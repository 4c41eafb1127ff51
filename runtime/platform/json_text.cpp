#include "runtime/platform/json_text.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace srjit {
namespace {

/// What the parser calls; each call gives whether it should go on.
class JsonEvents final : public nlohmann::json_sax<nlohmann::json> {
  using Kind = JsonEvent::Kind;

 public:
  std::vector<JsonEvent> take() { return std::move(events_); }

  bool null() override { return add({Kind::kOther}); }
  bool boolean(bool) override { return add({Kind::kOther}); }
  bool number_integer(number_integer_t value) override {
    return add({.kind = Kind::kNumber, .number = static_cast<double>(value)});
  }
  bool number_unsigned(number_unsigned_t value) override {
    return add({.kind = Kind::kWhole, .whole = value, .number = static_cast<double>(value)});
  }
  bool number_float(number_float_t value, const string_t&) override {
    return add({.kind = Kind::kNumber, .number = value});
  }
  bool string(string_t& value) override { return add({.kind = Kind::kText, .text = std::move(value)}); }
  bool binary(binary_t&) override { return add({Kind::kOther}); }
  bool start_object(std::size_t) override { return add({Kind::kBeginObject}); }
  bool key(string_t& value) override { return add({.kind = Kind::kKey, .text = std::move(value)}); }
  bool end_object() override { return add({Kind::kEnd}); }
  bool start_array(std::size_t) override { return add({Kind::kBeginArray}); }
  bool end_array() override { return add({Kind::kEnd}); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  bool add(JsonEvent event) {
    events_.push_back(std::move(event));
    return true;
  }

  std::vector<JsonEvent> events_;
};

}  // namespace

// The destructor of a value that is a string takes no memory.
std::string quotedJson(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string numberOfJson(double number) { return std::isfinite(number) ? fmt::format("{}", number) : "null"; }

std::optional<std::vector<JsonEvent>> readJson(std::string_view text) {
  JsonEvents events;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &events)) return std::nullopt;
  return events.take();
}

}  // namespace srjit
