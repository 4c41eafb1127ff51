#include "tools/bench/baselines/designs/ptx_transpiler.h"

#include <bit>
#include <vector>

#include <fmt/format.h>

#include "tools/bench/baselines/operators.h"
#include "tools/bench/baselines/ptx.h"

namespace srjit {

std::string transpile(const Expression& expression) {
  std::string ptx;
  beginBaselineKernel(kExpressionKernel, "", fmt::format(" .reg .f32 %v<{}>;\n", expression.size()), ptx);
  ptx += " ld.param.u64 %b, [parameters];\n";
  std::vector<std::string> stack;
  std::size_t values = 0;
  for (const Token& token : expression.tokens()) {
    std::string value = fmt::format("%v{}", values++);
    switch (token.kind) {
      case Token::Kind::kConstant:
        ptx += fmt::format(" mov.f32 {}, 0f{:08X};\n", value,
                           std::bit_cast<std::uint32_t>(static_cast<float>(token.value)));
        break;
      case Token::Kind::kVariable:
        ptx += fmt::format(" mad.lo.u64 %a, %pitch, {}, %column;\n ld.global.nc.f32 {}, [%a];\n", token.index, value);
        break;
      case Token::Kind::kParameter:
        ptx += fmt::format(" ld.global.nc.f32 {}, [%b+{}];\n", value, token.index * sizeof(float));
        break;
      case Token::Kind::kOp: {
        const char* const code = allBaselineOps()[baselineOpNumber(token.op)].ptx;
        const std::string y = token.arity() == 2 ? std::move(stack.back()) : "";
        if (token.arity() == 2) stack.pop_back();
        ptx += fmt::format(" {}\n", fillBaselineOp(code, stack.back(), y, value));
        stack.pop_back();
        break;
      }
    }
    stack.push_back(std::move(value));
  }
  ptx += fmt::format(" mov.f32 %r, {};\n", stack.back());
  endBaselineKernel(ptx);
  return ptx;
}

}  // namespace srjit
