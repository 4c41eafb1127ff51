#include <algorithm>
#include <string_view>

#include "runtime/c_api/handles.h"

namespace srjit::c_api {

namespace {

// The codes of srjit.h are those of Errc, behind SRJIT_OK.
static_assert(static_cast<int>(Errc::kSyntax) + 1 == SRJIT_ERROR_SYNTAX);
static_assert(static_cast<int>(Errc::kInvalid) + 1 == SRJIT_ERROR_INVALID);
static_assert(static_cast<int>(Errc::kIo) + 1 == SRJIT_ERROR_IO);
static_assert(static_cast<int>(Errc::kUnsupported) + 1 == SRJIT_ERROR_UNSUPPORTED);
static_assert(static_cast<int>(Errc::kCompile) + 1 == SRJIT_ERROR_COMPILE);
static_assert(static_cast<int>(Errc::kMachine) + 1 == SRJIT_ERROR_MACHINE);
static_assert(static_cast<int>(Errc::kCancelled) + 1 == SRJIT_ERROR_CANCELLED);
static_assert(static_cast<int>(Errc::kLimit) + 1 == SRJIT_ERROR_LIMIT);

/// The longest beginning of `message` that fits, in whole characters, and "..." where it is not all.
std::string_view beginning(std::string_view message, std::size_t capacity) {
  if (message.size() < capacity) return message;
  std::size_t end = capacity - std::string_view("...").size() - 1;
  const auto continues = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; };
  const std::size_t longest_character = 4;
  for (std::size_t i = 1; i < longest_character && continues(message[end]); ++i) --end;
  return message.substr(0, end);
}

}  // namespace

std::int32_t writeError(Errc code, std::string_view message, const std::optional<Span>& where,
                        srjit_error* to) noexcept {
  const std::int32_t answer = static_cast<std::int32_t>(code) + 1;
  if (to == nullptr || to->size < kFirstSize<srjit_error>) return answer;
  srjit_error mine{};
  mine.code = answer;
  if (where) {
    mine.has_place = 1;
    mine.line = where->line;
    mine.column = where->column;
    mine.length = where->length;
  }
  const std::string_view text = beginning(message, sizeof mine.message);
  char* const end = std::ranges::copy(text, mine.message).out;
  if (text.size() < message.size()) std::ranges::copy(std::string_view("..."), end);
  toCaller(mine, to);
  return answer;
}

srjit_failures* failuresFor(std::vector<Failure> list, const Origin& origin) {
  if (list.empty()) return nullptr;
  if (origin.texts != nullptr) {
    for (Failure& failure : list) {
      const std::size_t expression = failure.expression % origin.expressions;
      const auto text = std::ranges::lower_bound(*origin.texts, expression, {}, &Failure::expression);
      if (text != origin.texts->end() && text->expression == expression) failure.error = text->error;
    }
  }
  return new srjit_failures{std::move(list)};
}

extern "C" {

uint64_t srjit_failures_count(const srjit_failures* failures) {
  return failures == nullptr ? 0 : failures->list.size();
}

int32_t srjit_failures_get(const srjit_failures* failures, uint64_t i, uint64_t* expression, srjit_error* error) {
  const Failure* failure = nullptr;
  const int32_t status = answer(error, [&] {
    const std::vector<Failure>& list = required(failures, "failures").list;
    if (i >= list.size()) refuse(Errc::kInvalid, fmt::format("failure {} of {}", i, list.size()));
    failure = &list[i];
  });
  if (status != SRJIT_OK) return status;
  if (expression != nullptr) *expression = failure->expression;
  writeError(failure->error, error);
  return SRJIT_OK;
}

void srjit_failures_free(srjit_failures* failures) { delete failures; }

}  // extern "C"

}  // namespace srjit::c_api
