// Errors as values. Nothing in the library prints or aborts; calls that can fail on bad input return a Result.
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace srjit {

/// The kind of a failure; decides the command's exit status (see exitStatus in tools).
enum class Errc {
  kSyntax,       ///< text that is not an expression
  kInvalid,      ///< a well-formed value that breaks a rule (an index out of range, an unknown name)
  kIo,           ///< a file that cannot be read or written
  kUnsupported,  ///< a combination that this build or machine does not have
  kCompile,      ///< LLVM or an assembler refused; a fault of this library or of the machine
  kMachine,      ///< no device, driver or tool; out of memory
  kCancelled,    ///< stopped on request
  kLimit,        ///< more than a limit of the options allows (Limits)
};
/// The word of a failure in the command's `status` columns and in the bindings.
constexpr const char* nameOf(Errc code) {
  switch (code) {
    case Errc::kSyntax:
      return "syntax";
    case Errc::kInvalid:
      return "invalid";
    case Errc::kIo:
      return "io";
    case Errc::kUnsupported:
      return "unsupported";
    case Errc::kCompile:
      return "compile";
    case Errc::kMachine:
      return "machine";
    case Errc::kCancelled:
      return "cancelled";
    case Errc::kLimit:
      return "limit";
  }
  __builtin_unreachable();
}

/// A place in a text. Lines and columns count from 1; columns count bytes. `length` 0 means the end of the text.
struct Span {
  std::size_t line = 1;
  std::size_t column = 1;
  std::size_t length = 0;
};

/// A failure. The message starts lower-case, names the wrong value and the rule, and ends without a full stop.
struct Error {
  Errc code = Errc::kInvalid;
  std::string message;
  std::optional<Span> where;
};

/// An Error as an exception, for code that reads a Result's value without looking, and for the inside of the library.
class ErrorException : public std::exception {
 public:
  explicit ErrorException(Error error) : error_(std::move(error)) {}
  const Error& error() const noexcept { return error_; }
  const char* what() const noexcept override { return error_.message.c_str(); }

 private:
  Error error_;
};

/// Throws ErrorException. Not inlined, so that code without exceptions can include this header, too.
[[noreturn]] void throwError(const Error& error);

/// Either a value or an Error. value() of an Error throws ErrorException with it; error() of a value is a programming
/// error and throws std::bad_variant_access.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  T& value() & { return checked(), std::get<0>(state_); }
  const T& value() const& { return checked(), std::get<0>(state_); }
  T&& value() && { return checked(), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Error& error() & { return std::get<1>(state_); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  void checked() const {
    if (!ok()) throwError(std::get<1>(state_));
  }

  std::variant<T, Error> state_;
};

/// Success without a value.
using Status = Result<std::monostate>;
inline Status okStatus() { return std::monostate{}; }

}  // namespace srjit
