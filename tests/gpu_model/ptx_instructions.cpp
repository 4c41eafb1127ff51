#include "tests/gpu_model/ptx_instructions.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <string_view>

#include "ir/real.h"

namespace srjit {
namespace {

using U64 = std::uint64_t;
using U32 = std::uint32_t;

float f(U64 bits) { return std::bit_cast<float>(static_cast<U32>(bits)); }
double d(U64 bits) { return std::bit_cast<double>(bits); }
U64 bitsOf(float value) { return std::bit_cast<U32>(value); }
U64 bitsOf(double value) { return std::bit_cast<U64>(value); }
U32 u(U64 bits) { return static_cast<U32>(bits); }
std::int32_t s(U64 bits) { return static_cast<std::int32_t>(bits); }

class Functions {
 public:
  Functions() {
    addIntegers();
    addFloats();
    addDoubles();
  }
  const std::map<std::string, PtxFunction>& table() const { return table_; }

 private:
  void add(std::initializer_list<const char*> names, PtxFunction function) {
    for (const char* const name : names) table_[name] = function;
  }

  void addIntegers() {
    add({"mov.b32", "mov.u32", "mov.f32", "mov.f64", "mov.b64", "mov.u64", "mov.pred", "cvt.u64.u32",
         "cvta.to.global.u64"},
        [](U64 a, U64, U64) { return a; });
    add({"cvt.u32.u64"}, [](U64 a, U64, U64) -> U64 { return u(a); });
    add({"cvt.f64.f32"}, [](U64 a, U64, U64) { return std::bit_cast<U64>(static_cast<double>(f(a))); });
    add({"add.u32", "add.s32"}, [](U64 a, U64 b, U64) -> U64 { return u(a + b); });
    add({"sub.u32", "sub.s32"}, [](U64 a, U64 b, U64) -> U64 { return u(a - b); });
    add({"neg.s32"}, [](U64 a, U64, U64) -> U64 { return u(0 - a); });
    add({"mul.lo.u32", "mul.lo.s32"}, [](U64 a, U64 b, U64) -> U64 { return u(a * b); });
    add({"mad.lo.u32", "mad.lo.s32"}, [](U64 a, U64 b, U64 c) -> U64 { return u(a * b + c); });
    add({"add.u64", "add.s64"}, [](U64 a, U64 b, U64) { return a + b; });
    add({"mul.lo.u64", "mul.lo.s64"}, [](U64 a, U64 b, U64) { return a * b; });
    add({"mad.lo.u64", "mad.lo.s64"}, [](U64 a, U64 b, U64 c) { return a * b + c; });
    add({"mul.wide.u32"}, [](U64 a, U64 b, U64) { return U64{u(a)} * u(b); });
    add({"min.u32"}, [](U64 a, U64 b, U64) -> U64 { return std::min(u(a), u(b)); });
    add({"and.b32"}, [](U64 a, U64 b, U64) -> U64 { return u(a & b); });
    add({"or.b32"}, [](U64 a, U64 b, U64) -> U64 { return u(a | b); });
    add({"or.b64"}, [](U64 a, U64 b, U64) { return a | b; });
    add({"and.b64"}, [](U64 a, U64 b, U64) { return a & b; });
    add({"not.b32"}, [](U64 a, U64, U64) -> U64 { return u(~a); });
    add({"and.pred"}, [](U64 a, U64 b, U64) { return a & b; });
    add({"or.pred"}, [](U64 a, U64 b, U64) { return a | b; });
    add({"not.pred"}, [](U64 a, U64, U64) -> U64 { return a == 0; });
    add({"xor.b32"}, [](U64 a, U64 b, U64) -> U64 { return u(a ^ b); });
    add({"shl.b32"}, [](U64 a, U64 b, U64) -> U64 { return b > 31 ? 0 : u(a << b); });
    add({"shl.b64"}, [](U64 a, U64 b, U64) -> U64 { return b > 63 ? 0 : a << b; });
    add({"shr.u32"}, [](U64 a, U64 b, U64) -> U64 { return b > 31 ? 0 : u(a) >> b; });
    add({"shr.s32"}, [](U64 a, U64 b, U64) -> U64 { return u(static_cast<U64>(s(a) >> std::min<U64>(b, 31))); });
    add({"shr.u64"}, [](U64 a, U64 b, U64) -> U64 { return b > 63 ? 0 : a >> b; });
    add({"selp.f32", "selp.b32", "selp.u32", "selp.b64", "selp.f64"},
        [](U64 a, U64 b, U64 c) { return c != 0 ? a : b; });
    add({"setp.eq.u32", "setp.eq.s32", "setp.eq.b32"}, [](U64 a, U64 b, U64) -> U64 { return u(a) == u(b); });
    add({"setp.ne.u32", "setp.ne.s32"}, [](U64 a, U64 b, U64) -> U64 { return u(a) != u(b); });
    add({"setp.lt.u32"}, [](U64 a, U64 b, U64) -> U64 { return u(a) < u(b); });
    add({"setp.ge.u32"}, [](U64 a, U64 b, U64) -> U64 { return u(a) >= u(b); });
    add({"setp.gt.u32"}, [](U64 a, U64 b, U64) -> U64 { return u(a) > u(b); });
    add({"setp.le.u32"}, [](U64 a, U64 b, U64) -> U64 { return u(a) <= u(b); });
    add({"setp.le.s32"}, [](U64 a, U64 b, U64) -> U64 { return s(a) <= s(b); });
    add({"setp.ge.s32"}, [](U64 a, U64 b, U64) -> U64 { return s(a) >= s(b); });
    add({"setp.lt.s32"}, [](U64 a, U64 b, U64) -> U64 { return s(a) < s(b); });
    add({"setp.gt.s32"}, [](U64 a, U64 b, U64) -> U64 { return s(a) > s(b); });
    add({"setp.eq.u64", "setp.eq.s64", "setp.eq.b64"}, [](U64 a, U64 b, U64) -> U64 { return a == b; });
    add({"setp.ne.u64", "setp.ne.s64"}, [](U64 a, U64 b, U64) -> U64 { return a != b; });
    add({"setp.lt.s64"},
        [](U64 a, U64 b, U64) -> U64 { return static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b); });
    add({"setp.lt.u64"}, [](U64 a, U64 b, U64) -> U64 { return a < b; });
    add({"setp.gt.u64"}, [](U64 a, U64 b, U64) -> U64 { return a > b; });
    add({"setp.ge.u64"}, [](U64 a, U64 b, U64) -> U64 { return a >= b; });
  }

  void addFloats() {
    add({"setp.eq.f32"}, [](U64 a, U64 b, U64) -> U64 { return f(a) == f(b); });
    add({"setp.le.f32"}, [](U64 a, U64 b, U64) -> U64 { return f(a) <= f(b); });
    add({"setp.ge.f32"}, [](U64 a, U64 b, U64) -> U64 { return f(a) >= f(b); });
    add({"setp.neu.f32"}, [](U64 a, U64 b, U64) -> U64 { return !(f(a) == f(b)); });
    add({"setp.leu.f32"}, [](U64 a, U64 b, U64) -> U64 { return !(f(a) > f(b)); });
    add({"setp.geu.f32"}, [](U64 a, U64 b, U64) -> U64 { return !(f(a) < f(b)); });
    add({"setp.ltu.f32"}, [](U64 a, U64 b, U64) -> U64 { return !(f(a) >= f(b)); });
    add({"setp.gtu.f32"}, [](U64 a, U64 b, U64) -> U64 { return !(f(a) <= f(b)); });
    add({"setp.lt.f32"}, [](U64 a, U64 b, U64) -> U64 { return f(a) < f(b); });
    add({"setp.gt.f32"}, [](U64 a, U64 b, U64) -> U64 { return f(a) > f(b); });
    add({"add.f32"}, [](U64 a, U64 b, U64) { return bitsOf(f(a) + f(b)); });
    add({"sub.f32"}, [](U64 a, U64 b, U64) { return bitsOf(f(a) - f(b)); });
    add({"mul.f32"}, [](U64 a, U64 b, U64) { return bitsOf(f(a) * f(b)); });
    add({"div.f32"}, [](U64 a, U64 b, U64) { return bitsOf(f(a) / f(b)); });
    add({"fma.f32"}, [](U64 a, U64 b, U64 c) { return bitsOf(std::fma(f(a), f(b), f(c))); });
    add({"min.NaN.f32"}, [](U64 a, U64 b, U64) { return bitsOf(real::minimum(f(a), f(b))); });
    add({"max.NaN.f32"}, [](U64 a, U64 b, U64) { return bitsOf(real::maximum(f(a), f(b))); });
    add({"cvt.rni.f32.f32"}, [](U64 a, U64, U64) { return bitsOf(std::rint(f(a))); });
    add({"cvt.rmi.f32.f32"}, [](U64 a, U64, U64) { return bitsOf(std::floor(f(a))); });
    add({"cvt.rpi.f32.f32"}, [](U64 a, U64, U64) { return bitsOf(std::ceil(f(a))); });
    add({"cvt.rzi.u32.f32"}, [](U64 a, U64, U64) -> U64 {
      if (!(f(a) > 0)) return 0;
      return f(a) < 0x1p32F ? static_cast<U32>(f(a)) : ~U32{0};
    });
    add({"min.f32"}, [](U64 a, U64 b, U64) { return bitsOf(std::fmin(f(a), f(b))); });
    add({"abs.f32"}, [](U64 a, U64, U64) { return bitsOf(std::fabs(f(a))); });
    add({"neg.f32"}, [](U64 a, U64, U64) { return bitsOf(-f(a)); });
    add({"rcp.f32"}, [](U64 a, U64, U64) { return bitsOf(1.0f / f(a)); });
    add({"sqrt.f32"}, [](U64 a, U64, U64) { return bitsOf(std::sqrt(f(a))); });
    add({"rsqrt.f32"}, [](U64 a, U64, U64) { return bitsOf(1.0f / std::sqrt(f(a))); });
    add({"ex2.f32"}, [](U64 a, U64, U64) { return bitsOf(std::exp2(f(a))); });
    add({"lg2.f32"}, [](U64 a, U64, U64) { return bitsOf(std::log2(f(a))); });
    add({"sin.f32"}, [](U64 a, U64, U64) { return bitsOf(std::sin(f(a))); });
    add({"cos.f32"}, [](U64 a, U64, U64) { return bitsOf(std::cos(f(a))); });
  }

  void addDoubles() {
    add({"setp.eq.f64"}, [](U64 a, U64 b, U64) -> U64 { return d(a) == d(b); });
    add({"setp.lt.f64"}, [](U64 a, U64 b, U64) -> U64 { return d(a) < d(b); });
    add({"setp.le.f64"}, [](U64 a, U64 b, U64) -> U64 { return d(a) <= d(b); });
    add({"setp.gt.f64"}, [](U64 a, U64 b, U64) -> U64 { return d(a) > d(b); });
    add({"setp.ge.f64"}, [](U64 a, U64 b, U64) -> U64 { return d(a) >= d(b); });
    add({"setp.leu.f64"}, [](U64 a, U64 b, U64) -> U64 { return !(d(a) > d(b)); });
    add({"setp.geu.f64"}, [](U64 a, U64 b, U64) -> U64 { return !(d(a) < d(b)); });
    add({"setp.ltu.f64"}, [](U64 a, U64 b, U64) -> U64 { return !(d(a) >= d(b)); });
    add({"setp.gtu.f64"}, [](U64 a, U64 b, U64) -> U64 { return !(d(a) <= d(b)); });
    add({"setp.neu.f64"}, [](U64 a, U64 b, U64) -> U64 { return !(d(a) == d(b)); });
    add({"setp.nan.f64"}, [](U64 a, U64 b, U64) -> U64 { return std::isunordered(d(a), d(b)); });
    add({"add.f64"}, [](U64 a, U64 b, U64) { return bitsOf(d(a) + d(b)); });
    add({"sub.f64"}, [](U64 a, U64 b, U64) { return bitsOf(d(a) - d(b)); });
    add({"mul.f64"}, [](U64 a, U64 b, U64) { return bitsOf(d(a) * d(b)); });
    add({"div.f64"}, [](U64 a, U64 b, U64) { return bitsOf(d(a) / d(b)); });
    add({"fma.f64"}, [](U64 a, U64 b, U64 c) { return bitsOf(std::fma(d(a), d(b), d(c))); });
    add({"min.f64"}, [](U64 a, U64 b, U64) { return bitsOf(std::fmin(d(a), d(b))); });
    add({"max.f64"}, [](U64 a, U64 b, U64) { return bitsOf(std::fmax(d(a), d(b))); });
    add({"abs.f64"}, [](U64 a, U64, U64) { return bitsOf(std::fabs(d(a))); });
    add({"neg.f64"}, [](U64 a, U64, U64) { return bitsOf(-d(a)); });
    add({"rcp.f64"}, [](U64 a, U64, U64) { return bitsOf(1.0 / d(a)); });
    add({"sqrt.f64"}, [](U64 a, U64, U64) { return bitsOf(std::sqrt(d(a))); });
    add({"cvt.rni.f64.f64"}, [](U64 a, U64, U64) { return bitsOf(std::rint(d(a))); });
    add({"cvt.rmi.f64.f64"}, [](U64 a, U64, U64) { return bitsOf(std::floor(d(a))); });
    add({"cvt.rpi.f64.f64"}, [](U64 a, U64, U64) { return bitsOf(std::ceil(d(a))); });
  }

  std::map<std::string, PtxFunction> table_;
};

const std::map<std::string, PtxFunction>& functions() {
  static const Functions kFunctions;
  return kFunctions.table();
}

}  // namespace

PtxFunction findPtxFunction(const std::string& name) {
  const auto found = functions().find(name);
  return found == functions().end() ? nullptr : found->second;
}

std::string plainPtxName(const std::string& opcode) {
  static constexpr std::array<std::string_view, 7> kModifiers = {"rn", "ftz", "approx", "nc", "uni", "sync", "full"};
  std::string name;
  for (std::size_t begin = 0; begin <= opcode.size();) {
    const std::size_t end = std::min(opcode.find('.', begin), opcode.size());
    const std::string part = opcode.substr(begin, end - begin);
    if (std::ranges::find(kModifiers, part) == kModifiers.end()) name += name.empty() ? part : "." + part;
    begin = end + 1;
  }
  return name;
}

}  // namespace srjit
