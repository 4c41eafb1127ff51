// The frame of the kernels in PTX.
#include <fmt/format.h>

#include "tools/bench/designs/device.h"

namespace srjit {
namespace {

constexpr unsigned kWarps = kBaselineThreads / 32;
static_assert(kWarps == 4, "the sums of a block are loaded as one vector");

constexpr const char* kBegin = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry {}(.param .u64 columns, .param .u32 rows, .param .u64 parameters, .param .u64 target, .param .u64 out{})
{{
 .shared .align 16 .b8 warp_sums[16]; .reg .pred %p, %pa, %pb, %beyond; .reg .f32 %x, %y, %r, %t, %ta, %tb, %tc;
 .reg .f64 %sum; .reg .b32 %thread, %row, %rows, %i, %j, %ia, %ib; .reg .b64 %column, %pitch, %a, %b, %c;
{} mov.u32 %thread, %tid.x;
 mov.u32 %i, %ctaid.x; mov.u32 %j, %ntid.x; mad.lo.u32 %row, %i, %j, %thread; ld.param.u32 %rows, [rows];
 setp.ge.u32 %beyond, %row, %rows; sub.u32 %i, %rows, 1; min.u32 %row, %row, %i;
 ld.param.u64 %column, [columns]; mul.wide.u32 %a, %row, 4; add.u64 %column, %column, %a;
 mul.wide.u32 %pitch, %rows, 4;
)";

constexpr const char* kAddError =
    R"( ld.param.u64 %b, [out]; ld.param.u64 %a, [target]; mov.u32 %ia, %ctaid.y; setp.eq.u64 %p, %a, 0; @%p bra STORE;
 mul.wide.u32 %c, %row, 4; add.u64 %a, %a, %c; ld.global.nc.f32 %t, [%a]; sub.rn.f32 %r, %r, %t;
 mul.rn.f32 %r, %r, %r; selp.f32 %r, 0f00000000, %r, %beyond;
)";

constexpr const char* kAddWarps =
    R"( and.b32 %i, %thread, 31; setp.ne.u32 %p, %i, 0; shr.u32 %j, %thread, 5; mov.u64 %a, warp_sums;
 mul.wide.u32 %c, %j, 4; add.u64 %a, %a, %c; @!%p st.shared.f32 [%a], %r; bar.sync 0;
 setp.ne.u32 %p, %thread, 0; @%p exit; mov.u64 %a, warp_sums; ld.shared.v4.f32 {%x, %y, %t, %r}, [%a];
 add.rn.f32 %x, %x, %y; add.rn.f32 %t, %t, %r; add.rn.f32 %x, %x, %t; cvt.f64.f32 %sum, %x;
 mul.wide.u32 %c, %ia, 8; add.u64 %b, %b, %c; red.global.add.f64 [%b], %sum; exit;
)";

constexpr const char* kStorePrediction =
    R"(STORE: @%beyond exit; cvt.u64.u32 %a, %ia; mul.lo.u64 %a, %a, %pitch; mul.wide.u32 %c, %row, 4;
 add.u64 %a, %a, %c; add.u64 %b, %b, %a; st.global.f32 [%b], %r; exit;
}
)";

}  // namespace

void beginBaselineKernel(std::string_view name, std::string_view more_parameters, std::string_view declarations,
                         std::string& ptx) {
  ptx += fmt::format(kBegin, name, more_parameters, declarations);
}

void endBaselineKernel(std::string& ptx) {
  ptx += kAddError;
  writeBaselineSum(ptx);
  ptx += kStorePrediction;
}

void writeBaselineDispatch(std::size_t first, std::size_t last, std::string& ptx) {
  if (last - first == 1) {
    ptx += fmt::format(" bra CASE_{};\n", first);
    return;
  }
  const std::size_t middle = first + (last - first) / 2;
  ptx += fmt::format(" setp.lt.u32 %p, %code, {0};\n @%p bra BELOW_{0};\n", middle);
  writeBaselineDispatch(middle, last, ptx);
  ptx += fmt::format("BELOW_{}:\n", middle);
  writeBaselineDispatch(first, middle, ptx);
}

void writeBaselineSum(std::string& ptx) {
  for (const int distance : {16, 8, 4, 2, 1}) {
    ptx += fmt::format(" shfl.sync.down.b32 %t, %r, {}, 31, 0xffffffff;\n add.rn.f32 %r, %r, %t;\n", distance);
  }
  ptx += kAddWarps;
}

}  // namespace srjit
