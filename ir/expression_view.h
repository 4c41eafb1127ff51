// An expression in arrays of other expressions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ir/expression.h"
#include "ir/token_codes.h"

namespace srjit {

/// An expression of a Population: valid postfix tokens. Borrowed from the population.
class ExpressionView {
 public:
  /// Reads tokens in order.
  class Iterator {
   public:
    using value_type = Token;
    using difference_type = std::ptrdiff_t;

    Iterator() = default;
    Iterator(const std::int32_t* code, const double* constant) : code_(code), constant_(constant) {}
    Token operator*() const noexcept { return *code_ == kConstantCode ? Token::constant(*constant_) : tokenOf(*code_); }
    Iterator& operator++() noexcept {
      constant_ += *code_ == kConstantCode ? 1 : 0;
      ++code_;
      return *this;
    }
    Iterator operator++(int) noexcept {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) noexcept { return a.code_ == b.code_; }

   private:
    const std::int32_t* code_ = nullptr;
    const double* constant_ = nullptr;
  };

  /// `constants` are those of its tokens that are constants, in order.
  ExpressionView(std::span<const std::int32_t> codes, std::span<const double> constants, std::uint32_t variables,
                 std::uint32_t parameters)
      : codes_(codes), constants_(constants), variables_(variables), parameters_(parameters) {}

  std::size_t size() const noexcept { return codes_.size(); }
  Iterator begin() const noexcept { return {codes_.data(), constants_.data()}; }
  Iterator end() const noexcept { return {codes_.data() + codes_.size(), nullptr}; }
  std::span<const std::int32_t> codes() const noexcept { return codes_; }
  std::span<const double> constants() const noexcept { return constants_; }

  /// As those of Expression.
  std::uint32_t variableCount() const noexcept { return variables_; }
  std::uint32_t parameterCount() const noexcept { return parameters_; }

  Expression expression() const;

 private:
  std::span<const std::int32_t> codes_;
  std::span<const double> constants_;
  std::uint32_t variables_, parameters_;
};

}  // namespace srjit
