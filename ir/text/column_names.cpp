#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "ir/text.h"
#include "ir/text/lexer.h"

namespace srjit {

struct ColumnNames::Body {
  std::vector<std::string> names;
  std::vector<OtherColumn> others;
  std::unordered_map<std::string_view, std::size_t> index;  ///< those of `others` count on behind `names`
  std::vector<std::string> x_words, p_words;

  void enter(std::string_view name, std::size_t number) {
    index.emplace(name, number);
    if (name.size() < 2 || !std::ranges::all_of(name.substr(1), text::isDigit)) return;
    if (name[0] == 'x') x_words.emplace_back(name);
    if (name[0] == 'p') p_words.emplace_back(name);
  }
};

ColumnNames::ColumnNames(std::vector<std::string> names, std::vector<OtherColumn> others) {
  if (names.empty() && others.empty()) return;
  auto body = std::make_shared<Body>();
  body->names = std::move(names);
  body->others = std::move(others);
  for (std::size_t i = 0; i < body->names.size(); ++i) body->enter(body->names[i], i);
  for (std::size_t i = 0; i < body->others.size(); ++i) body->enter(body->others[i].name, body->names.size() + i);
  body_ = std::move(body);
}

std::span<const std::string> ColumnNames::names() const noexcept {
  return body_ ? std::span<const std::string>(body_->names) : std::span<const std::string>();
}

std::optional<std::uint32_t> ColumnNames::find(std::string_view name) const noexcept {
  if (!body_) return std::nullopt;
  const auto found = body_->index.find(name);
  if (found == body_->index.end() || found->second >= body_->names.size()) return std::nullopt;
  return static_cast<std::uint32_t>(found->second);
}

std::string_view ColumnNames::roleOf(std::string_view name) const noexcept {
  if (!body_) return {};
  const auto found = body_->index.find(name);
  if (found == body_->index.end() || found->second < body_->names.size()) return {};
  return body_->others[found->second - body_->names.size()].role;
}

std::string ColumnNames::describe(std::size_t column) const {
  if (column >= size()) return fmt::format("column x{}", column);
  return fmt::format("column {} (x{})", text::inQuotes((*this)[column]), column);
}

std::span<const std::string> ColumnNames::indexWords(char letter) const noexcept {
  if (!body_) return {};
  return letter == 'x' ? body_->x_words : body_->p_words;
}

}  // namespace srjit
