// The thesis' transpiler: one kernel in PTX per expression, compiled by the driver, and one launch for each.
#include <bit>

#include <fmt/format.h>

#include "tools/bench/designs/code.h"
#include "tools/bench/designs/device.h"

namespace srjit {
namespace {

class PtxBaseline final : public DeviceBaseline {
 public:
  PtxBaseline(std::shared_ptr<const Cuda> device, const BenchData& data) : DeviceBaseline(std::move(device), data) {}

 private:
  // Sequential: the driver compiles on one thread at a time.
  void build(std::span<const Expression> expressions) override {
    offsets_ = parameterOffsets(expressions);
    kernels_.clear();
    clearModules();
    for (const Expression& expression : expressions) {
      kernels_.push_back(load(imageOfPtx(transpile(expression)), kExpressionKernel));
    }
  }

  void launch(std::size_t first, std::size_t count, CUdeviceptr target, CUdeviceptr out) override {
    CUdeviceptr all_columns = columns(), own_parameters = 0, result = 0;
    std::uint32_t row_count = rows();
    const auto arguments = addressesOf(all_columns, row_count, own_parameters, target, result);
    for (std::size_t i = 0; i < count; ++i) {
      own_parameters = parameters() + offsets_[first + i] * sizeof(float);
      result = out + i * resultBytes(target);
      run(kernels_[first + i], rowBlocks(), 1, arguments);
    }
  }

  std::vector<std::uint32_t> offsets_;
  std::vector<Kernel> kernels_;
};

}  // namespace

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

std::unique_ptr<Baseline> makePtxBaseline(std::shared_ptr<const Cuda> cuda, const BenchData& data) {
  return std::make_unique<PtxBaseline>(std::move(cuda), data);
}

}  // namespace srjit
