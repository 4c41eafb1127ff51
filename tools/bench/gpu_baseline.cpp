#include "tools/bench/gpu_baseline.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include <fmt/format.h>

namespace srjit {
namespace {

struct Case {
  Op op;
  int arity;
  const char* code;  ///< from %x and %y to %r
};

// pow is that of `fast`: |x|^y by logarithms, negated for x < 0 and an odd y, NaN there for a fraction, 1 for y = 0.
constexpr Case kCases[] = {
    {Op::kAdd, 2, "add.rn.f32 %r, %x, %y;"},
    {Op::kSub, 2, "sub.rn.f32 %r, %x, %y;"},
    {Op::kMul, 2, "mul.rn.f32 %r, %x, %y;"},
    {Op::kDiv, 2, "div.approx.ftz.f32 %r, %x, %y;"},
    {Op::kPow, 2,
     "abs.f32 %r, %x;\n lg2.approx.ftz.f32 %r, %r;\n mul.rn.f32 %r, %r, %y;\n ex2.approx.ftz.f32 %r, %r;\n"
     " setp.lt.f32 %p, %x, 0f00000000;\n cvt.rni.f32.f32 %t, %y;\n setp.neu.and.f32 %q, %t, %y, %p;\n"
     " mul.rn.f32 %u, %y, 0f3F000000;\n cvt.rni.f32.f32 %t, %u;\n setp.neu.and.f32 %p, %t, %u, %p;\n"
     " @%p neg.f32 %r, %r;\n @%q mov.f32 %r, 0f7FC00000;\n setp.eq.f32 %p, %y, 0f00000000;\n"
     " @%p mov.f32 %r, 0f3F800000;"},
    {Op::kAbs, 1, "abs.f32 %r, %x;"},
    {Op::kLog, 1, "lg2.approx.ftz.f32 %r, %x;\n mul.rn.f32 %r, %r, 0f3F317218;"},
    {Op::kExp, 1, "mul.rn.f32 %r, %x, 0f3FB8AA3B;\n ex2.approx.ftz.f32 %r, %r;"},
    {Op::kInv, 1, "rcp.approx.ftz.f32 %r, %x;"},
    {Op::kSqrt, 1, "sqrt.approx.ftz.f32 %r, %x;"},
};
constexpr std::size_t kConstantCode = 0, kVariableCode = 1, kFirstOpCode = 2;
constexpr std::size_t kCodes = kFirstOpCode + std::size(kCases);

constexpr const char* kHead = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry stack_baseline(.param .u64 columns, .param .u32 rows, .param .u64 tokens, .param .u64 offsets,
                               .param .u64 out, .param .u32 first)
{{
 .local .align 4 .b8 stack[{}];
 .reg .pred %p, %q;
 .reg .f32 %x, %y, %r, %t, %u;
 .reg .b32 %row, %rows, %expression, %code, %value, %i, %j;
 .reg .b64 %sp, %column, %pitch, %token, %end, %a, %b;
 mov.u32 %i, %ctaid.x;
 mov.u32 %j, %ntid.x;
 mov.u32 %row, %tid.x;
 mad.lo.u32 %row, %i, %j, %row;
 ld.param.u32 %rows, [rows];
 setp.ge.u32 %p, %row, %rows;
 @%p exit;
 mov.u32 %expression, %ctaid.y;
 ld.param.u32 %i, [first];
 add.u32 %expression, %expression, %i;
 ld.param.u64 %a, [offsets];
 mul.wide.u32 %b, %expression, 4;
 add.u64 %a, %a, %b;
 ld.global.nc.u32 %i, [%a];
 ld.global.nc.u32 %j, [%a+4];
 ld.param.u64 %a, [tokens];
 mul.wide.u32 %token, %i, 8;
 add.u64 %token, %token, %a;
 mul.wide.u32 %end, %j, 8;
 add.u64 %end, %end, %a;
 ld.param.u64 %column, [columns];
 mul.wide.u32 %a, %row, 4;
 add.u64 %column, %column, %a;
 mul.wide.u32 %pitch, %rows, 4;
 mov.u64 %sp, stack;
NEXT:
 setp.ge.u64 %p, %token, %end;
 @%p bra DONE;
 ld.global.nc.v2.u32 {{%code, %value}}, [%token];
 add.u64 %token, %token, 8;
)";

constexpr const char* kLeaves = R"(CASE_0:
 st.local.b32 [%sp], %value;
 add.u64 %sp, %sp, 4;
 bra NEXT;
CASE_1:
 cvt.u64.u32 %a, %value;
 mad.lo.u64 %a, %a, %pitch, %column;
 ld.global.nc.f32 %r, [%a];
 st.local.f32 [%sp], %r;
 add.u64 %sp, %sp, 4;
 bra NEXT;
)";

constexpr const char* kTail = R"(DONE:
 ld.local.f32 %r, [%sp+-4];
 cvt.u64.u32 %a, %expression;
 mul.lo.u64 %a, %a, %pitch;
 mul.wide.u32 %b, %row, 4;
 add.u64 %a, %a, %b;
 ld.param.u64 %b, [out];
 add.u64 %a, %a, %b;
 st.global.f32 [%a], %r;
 ret;
}
)";

// Binary search for the code among [first, last).
void writeDispatch(std::size_t first, std::size_t last, std::string& ptx) {
  if (last - first == 1) {
    ptx += fmt::format(" bra CASE_{};\n", first);
    return;
  }
  const std::size_t middle = first + (last - first) / 2;
  ptx += fmt::format(" setp.lt.u32 %p, %code, {0};\n @%p bra BELOW_{0};\n", middle);
  writeDispatch(middle, last, ptx);
  ptx += fmt::format("BELOW_{}:\n", middle);
  writeDispatch(first, middle, ptx);
}

std::string baselinePtx() {
  std::string ptx = fmt::format(kHead, StackBaseline::kStackEntries * sizeof(float));
  writeDispatch(0, kCodes, ptx);
  ptx += kLeaves;
  for (std::size_t i = 0; i < std::size(kCases); ++i) {
    const bool binary = kCases[i].arity == 2;
    ptx += fmt::format("CASE_{}:\n", kFirstOpCode + i);
    if (binary) ptx += " add.u64 %sp, %sp, -4;\n ld.local.f32 %y, [%sp];\n";
    ptx += fmt::format(" ld.local.f32 %x, [%sp+-4];\n {}\n st.local.f32 [%sp+-4], %r;\n bra NEXT;\n", kCases[i].code);
  }
  return ptx + kTail;
}

struct BaselineToken {
  std::uint32_t code, value;
};

BaselineToken translate(const Token& token) {
  if (token.kind == Token::Kind::kVariable) return {kVariableCode, token.index};
  if (token.kind != Token::Kind::kOp)
    return {kConstantCode, std::bit_cast<std::uint32_t>(static_cast<float>(token.value))};
  const auto* const found =
      std::find_if(std::begin(kCases), std::end(kCases), [&](const Case& entry) { return entry.op == token.op; });
  return {static_cast<std::uint32_t>(kFirstOpCode + static_cast<std::size_t>(found - std::begin(kCases))), 0};
}

constexpr unsigned kThreads = 128;

}  // namespace

StackBaseline::StackBaseline(unsigned ordinal, std::span<const Expression> expressions,
                             std::span<const std::vector<float>> columns)
    : cuda_([&] {
        auto driver = loadDriver();
        if (!driver) throw CudaFailure(CUDA_ERROR_NO_DEVICE, driver.error());
        auto cuda = Cuda::open(*driver, static_cast<int>(ordinal));
        if (!cuda) throw CudaFailure(CUDA_ERROR_NO_DEVICE, cuda.error());
        return *cuda;
      }()),
      current_(*cuda_),
      stream_(std::make_shared<const Stream>(cuda_)),
      rows_(static_cast<std::uint32_t>(columns[0].size())),
      expressions_(static_cast<std::uint32_t>(expressions.size())) {
  const std::string ptx = baselinePtx();
  KernelImage image{.code = std::vector<std::byte>(ptx.size() + 1), .is_ptx = true, .kernels = {}};
  std::memcpy(image.code.data(), ptx.c_str(), ptx.size() + 1);
  module_ = Module(cuda_, image);
  kernel_ = module_.kernel("stack_baseline");
  std::vector<BaselineToken> tokens;
  std::vector<std::uint32_t> offsets = {0};
  for (const Expression& expression : expressions) {
    for (const Token& token : expression.tokens()) tokens.push_back(translate(token));
    offsets.push_back(static_cast<std::uint32_t>(tokens.size()));
  }
  const auto upload = [&](const auto& values) {
    const std::size_t bytes = values.size() * sizeof(values[0]);
    DeviceBuffer buffer(stream_, bytes);
    stream_->copyToDevice(buffer.address(), values.data(), bytes);
    stream_->synchronize();
    return buffer;
  };
  std::vector<float> data;
  for (const auto& column : columns) data.insert(data.end(), column.begin(), column.end());
  columns_ = upload(data);
  tokens_ = upload(tokens);
  offsets_ = upload(offsets);
  out_ = DeviceBuffer(stream_, std::size_t{expressions_} * rows_ * sizeof(float));
}

double StackBaseline::time(unsigned launches, unsigned expressions_each) const {
  const Event begin(cuda_, Event::Timing::kOn), end(cuda_, Event::Timing::kOn);
  CUdeviceptr columns = columns_.address(), tokens = tokens_.address(), offsets = offsets_.address();
  CUdeviceptr out = out_.address();
  std::uint32_t rows = rows_, first = 0;
  const auto arguments = addressesOf(columns, rows, tokens, offsets, out, first);
  stream_->record(begin);
  for (unsigned i = 0; i < launches; ++i) {
    first = i * expressions_each;
    stream_->launch({.kernel = kernel_.get(),
                     .grid_x = (rows_ + kThreads - 1) / kThreads,
                     .grid_y = std::min(expressions_each, expressions_ - first),
                     .block_threads = kThreads,
                     .arguments = arguments});
  }
  stream_->record(end);
  end.synchronize();
  return end.secondsSince(begin);
}

double StackBaseline::runAtOnce() const {
  constexpr unsigned kMaxGridY = 65535;
  return time((expressions_ + kMaxGridY - 1) / kMaxGridY, kMaxGridY);
}

double StackBaseline::runOneByOne() const { return time(expressions_, 1); }

std::vector<float> StackBaseline::predictions(std::size_t expressions) const {
  std::vector<float> values(expressions * rows_);
  stream_->copyToHost(values.data(), out_.address(), values.size() * sizeof(float));
  stream_->synchronize();
  return values;
}

}  // namespace srjit
