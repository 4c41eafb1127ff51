#include "tools/bench/baselines/designs/stack_interpreter.h"

#include <algorithm>

#include <fmt/format.h>

#include "ir/numbers/rounding.h"
#include "tools/bench/baselines/device.h"
#include "tools/bench/baselines/operators.h"
#include "tools/bench/baselines/ptx.h"

namespace srjit {
namespace {

constexpr const char* kDeclarations = R"( .local .align 4 .b8 stack[{}];
 .reg .b32 %code, %value;
 .reg .b64 %sp, %token, %end;
)";

constexpr const char* kLoop = R"( mov.u32 %j, %ctaid.y;
 ld.param.u64 %a, [offsets];
 mul.wide.u32 %b, %j, 4;
 add.u64 %a, %a, %b;
 ld.global.nc.u32 %i, [%a];
 ld.global.nc.u32 %j, [%a+4];
 ld.param.u64 %a, [tokens];
 mul.wide.u32 %token, %i, 8;
 add.u64 %token, %token, %a;
 mul.wide.u32 %end, %j, 8;
 add.u64 %end, %end, %a;
 mov.u64 %sp, stack;
NEXT:
 setp.ge.u64 %p, %token, %end;
 @%p bra DONE;
 ld.global.nc.v2.u32 {%code, %value}, [%token];
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
CASE_2:
 ld.param.u64 %a, [parameters];
 mul.wide.u32 %b, %value, 4;
 add.u64 %a, %a, %b;
 ld.global.nc.f32 %r, [%a];
 st.local.f32 [%sp], %r;
 add.u64 %sp, %sp, 4;
 bra NEXT;
CASE_3:
 ld.param.u64 %b, [cached];
 mul.wide.u32 %c, %row, 4;
 add.u64 %b, %b, %c;
 cvt.u64.u32 %a, %value;
 mad.lo.u64 %a, %a, %pitch, %b;
 ld.global.nc.f32 %r, [%a];
 st.local.f32 [%sp], %r;
 add.u64 %sp, %sp, 4;
 bra NEXT;
)";

}  // namespace

std::string stackInterpreterPtx() {
  std::string ptx;
  beginBaselineKernel(kStackKernel, ", .param .u64 cached, .param .u64 tokens, .param .u64 offsets",
                      fmt::format(kDeclarations, kStackEntries * sizeof(float)), ptx);
  ptx += kLoop;
  const auto ops = allBaselineOps();
  writeBaselineDispatch(0, StackToken::kFirstOp + ops.size(), ptx);
  ptx += kLeaves;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ptx += fmt::format("CASE_{}:\n", StackToken::kFirstOp + i);
    if (arityOf(ops[i].op) == 2) ptx += " add.u64 %sp, %sp, -4;\n ld.local.f32 %y, [%sp];\n";
    ptx += fmt::format(" ld.local.f32 %x, [%sp+-4];\n {}\n st.local.f32 [%sp+-4], %r;\n bra NEXT;\n",
                       fillBaselineOp(ops[i].ptx, "%x", "%y", "%r"));
  }
  ptx += "DONE:\n ld.local.f32 %r, [%sp+-4];\n";
  endBaselineKernel(ptx);
  return ptx;
}

StackInterpreter::StackInterpreter(std::shared_ptr<const Cuda> cuda)
    : module_(std::move(cuda), imageOfPtx(stackInterpreterPtx())), kernel_(module_.kernel(kStackKernel)) {}

void StackInterpreter::launch(const Stream& stream, const Data& data, const Programs& programs, std::size_t first,
                              std::size_t count, bool each, CUdeviceptr target, CUdeviceptr out) const {
  Data d = data;
  CUdeviceptr tokens = programs.tokens, offsets = 0, result = 0;
  const auto arguments = addressesOf(d.columns, d.rows, d.parameters, target, result, d.cached, tokens, offsets);
  const std::size_t result_bytes = target != 0 ? sizeof(double) : d.rows * sizeof(float);
  const std::size_t most = each ? 1 : kMaxGridY;
  for (std::size_t done = 0; done < count; done += most) {
    offsets = programs.offsets + (first + done) * sizeof(std::uint32_t);
    result = out + done * result_bytes;
    stream.launch({.kernel = kernel_.get(),
                   .grid_x = static_cast<unsigned>(ceilDivide(d.rows, kBaselineThreads)),
                   .grid_y = static_cast<unsigned>(std::min(most, count - done)),
                   .block_threads = kBaselineThreads,
                   .arguments = arguments});
  }
}

}  // namespace srjit
