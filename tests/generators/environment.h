// Environment variables: for the time of a test, and numbers that they give.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace srjit {

/// The whole number that a variable of the environment gives; `otherwise`, if it is not set. Throws
/// std::invalid_argument for other text.
inline std::uint64_t numberInEnvironment(const char* variable, std::uint64_t otherwise) {
  const char* const set = std::getenv(variable);
  if (set == nullptr) return otherwise;
  const std::string_view text = set;
  std::uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.begin(), text.end(), number);
  if (error != std::errc() || rest != text.end()) {
    throw std::invalid_argument(std::string(variable) + " is no whole number");
  }
  return number;
}

/// Sets an environment variable; the destructor restores what it was. Not thread-safe, as setenv() is not.
class ScopedVariable {
 public:
  ScopedVariable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* const before = std::getenv(name_.c_str()); before != nullptr) before_ = before;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~ScopedVariable() {
    if (before_) {
      setenv(name_.c_str(), before_->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace srjit
