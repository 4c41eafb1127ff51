// A program outside the repository: parses a formula, evaluates it, and shows the error of a bad one.
#include <srjit/ir/reference.h>
#include <srjit/ir/text.h>

#include <array>
#include <cstdio>

int main() {
  const auto expression = srjit::parse("p0 * x0 ^ 1.5", srjit::Language::kInfix);
  if (!expression) {
    std::fprintf(stderr, "%s\n", expression.error().message.c_str());
    return 1;
  }
  const std::array<double, 1> variables = {4.0}, parameters = {0.5};
  const double value = srjit::evaluateReference(*expression, variables, parameters);
  std::printf("%s = %g\n", srjit::print(*expression, srjit::Language::kInfix).c_str(), value);
  if (value != 4.0) return 1;

  const auto bad = srjit::parse("1 + * x0", srjit::Language::kInfix);
  if (bad || !bad.error().where || bad.error().where->column != 5) return 1;
  std::printf("%s\n", bad.error().message.c_str());
  return 0;
}
