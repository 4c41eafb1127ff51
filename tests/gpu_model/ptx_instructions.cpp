#include "tests/gpu_model/ptx_instructions.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <string_view>
#include <type_traits>

#include "ir/real.h"

namespace srjit {
namespace {

using U64 = std::uint64_t;
using U32 = std::uint32_t;
using S32 = std::int32_t;
using S64 = std::int64_t;

/// A register as a number of type T, and the reverse.
template <class T>
T as(U64 bits) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<float>(static_cast<U32>(bits));
  if constexpr (std::is_same_v<T, double>) return std::bit_cast<double>(bits);
  if constexpr (std::is_integral_v<T>) return static_cast<T>(bits);
}
template <class T>
U64 bitsOf(T value) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<U32>(value);
  if constexpr (std::is_same_v<T, double>) return std::bit_cast<U64>(value);
  if constexpr (std::is_integral_v<T>) return static_cast<std::make_unsigned_t<T>>(value);
}

class Functions {
 public:
  Functions() {
    addMoves();
    addComparisons<U32>({"u32", "b32"});
    addComparisons<S32>({"s32"});
    addComparisons<U64>({"u64", "b64"});
    addComparisons<S64>({"s64"});
    addComparisons<float>({"f32"});
    addComparisons<double>({"f64"});
    addIntegers<U32>({"u32", "s32"}, {"b32"});
    addIntegers<U64>({"u64", "s64"}, {"b64"});
    addReals<float>("f32");
    addReals<double>("f64");
    addApproximations();
  }
  const std::map<std::string, PtxFunction>& table() const { return table_; }

 private:
  using Types = std::initializer_list<const char*>;

  void add(std::initializer_list<std::string> names, PtxFunction function) {
    for (const std::string& name : names) table_[name] = function;
  }

  void addMoves() {
    add({"mov.b32", "mov.u32", "mov.f32", "mov.f64", "mov.b64", "mov.u64", "mov.pred", "cvt.u64.u32",
         "cvta.to.global.u64"},
        [](U64 a, U64, U64) { return a; });
    add({"cvt.u32.u64"}, [](U64 a, U64, U64) -> U64 { return as<U32>(a); });
    add({"cvt.f32.u32"}, [](U64 a, U64, U64) { return bitsOf(static_cast<float>(as<U32>(a))); });
    add({"cvt.f64.f32"}, [](U64 a, U64, U64) { return bitsOf(static_cast<double>(as<float>(a))); });
    add({"selp.f32", "selp.b32", "selp.u32", "selp.u64", "selp.b64", "selp.f64"},
        [](U64 a, U64 b, U64 c) { return c != 0 ? a : b; });
    add({"and.pred"}, [](U64 a, U64 b, U64) { return a & b; });
    add({"or.pred"}, [](U64 a, U64 b, U64) { return a | b; });
    add({"not.pred"}, [](U64 a, U64, U64) -> U64 { return a == 0; });
  }

  template <class T>
  void addComparisons(Types types) {
    for (const std::string type : types) {
      add({"setp.eq." + type}, [](U64 a, U64 b, U64) -> U64 { return as<T>(a) == as<T>(b); });
      add({"setp.ne." + type}, [](U64 a, U64 b, U64) -> U64 { return as<T>(a) < as<T>(b) || as<T>(a) > as<T>(b); });
      add({"setp.lt." + type}, [](U64 a, U64 b, U64) -> U64 { return as<T>(a) < as<T>(b); });
      add({"setp.le." + type}, [](U64 a, U64 b, U64) -> U64 { return as<T>(a) <= as<T>(b); });
      add({"setp.gt." + type}, [](U64 a, U64 b, U64) -> U64 { return as<T>(a) > as<T>(b); });
      add({"setp.ge." + type}, [](U64 a, U64 b, U64) -> U64 { return as<T>(a) >= as<T>(b); });
      if constexpr (!std::is_floating_point_v<T>) continue;
      add({"setp.neu." + type}, [](U64 a, U64 b, U64) -> U64 { return !(as<T>(a) == as<T>(b)); });
      add({"setp.ltu." + type}, [](U64 a, U64 b, U64) -> U64 { return !(as<T>(a) >= as<T>(b)); });
      add({"setp.leu." + type}, [](U64 a, U64 b, U64) -> U64 { return !(as<T>(a) > as<T>(b)); });
      add({"setp.gtu." + type}, [](U64 a, U64 b, U64) -> U64 { return !(as<T>(a) <= as<T>(b)); });
      add({"setp.geu." + type}, [](U64 a, U64 b, U64) -> U64 { return !(as<T>(a) < as<T>(b)); });
      add({"setp.nan." + type}, [](U64 a, U64 b, U64) -> U64 { return std::isnan(as<T>(a)) || std::isnan(as<T>(b)); });
    }
  }

  template <class T>
  void addIntegers(Types numbers, Types words) {
    for (const std::string type : numbers) {
      add({"add." + type}, [](U64 a, U64 b, U64) -> U64 { return as<T>(a + b); });
      add({"sub." + type}, [](U64 a, U64 b, U64) -> U64 { return as<T>(a - b); });
      add({"neg." + type}, [](U64 a, U64, U64) -> U64 { return as<T>(0 - a); });
      add({"mul.lo." + type}, [](U64 a, U64 b, U64) -> U64 { return as<T>(a * b); });
      add({"mad.lo." + type}, [](U64 a, U64 b, U64 c) -> U64 { return as<T>(a * b + c); });
    }
    for (const std::string type : words) {
      add({"and." + type}, [](U64 a, U64 b, U64) -> U64 { return as<T>(a & b); });
      add({"or." + type}, [](U64 a, U64 b, U64) -> U64 { return as<T>(a | b); });
      add({"xor." + type}, [](U64 a, U64 b, U64) -> U64 { return as<T>(a ^ b); });
      add({"not." + type}, [](U64 a, U64, U64) -> U64 { return as<T>(~a); });
      add({"shl." + type}, [](U64 a, U64 b, U64) -> U64 { return b >= 8 * sizeof(T) ? 0 : as<T>(a << b); });
    }
    add({std::string("shr.") + *numbers.begin()},
        [](U64 a, U64 b, U64) -> U64 { return b >= 8 * sizeof(T) ? 0 : as<T>(a) >> b; });
    add({"shr.s32"}, [](U64 a, U64 b, U64) { return bitsOf(as<S32>(a) >> std::min<U64>(b, 31)); });
    add({"mul.wide.u32"}, [](U64 a, U64 b, U64) { return U64{as<U32>(a)} * as<U32>(b); });
    add({"min.u32"}, [](U64 a, U64 b, U64) -> U64 { return std::min(as<U32>(a), as<U32>(b)); });
  }

  template <class T>
  void addReals(const std::string& type) {
    add({"add." + type}, [](U64 a, U64 b, U64) { return bitsOf(as<T>(a) + as<T>(b)); });
    add({"sub." + type}, [](U64 a, U64 b, U64) { return bitsOf(as<T>(a) - as<T>(b)); });
    add({"mul." + type}, [](U64 a, U64 b, U64) { return bitsOf(as<T>(a) * as<T>(b)); });
    add({"div." + type}, [](U64 a, U64 b, U64) { return bitsOf(as<T>(a) / as<T>(b)); });
    add({"fma." + type}, [](U64 a, U64 b, U64 c) { return bitsOf(std::fma(as<T>(a), as<T>(b), as<T>(c))); });
    add({"min." + type}, [](U64 a, U64 b, U64) { return bitsOf(std::fmin(as<T>(a), as<T>(b))); });
    add({"max." + type}, [](U64 a, U64 b, U64) { return bitsOf(std::fmax(as<T>(a), as<T>(b))); });
    add({"abs." + type}, [](U64 a, U64, U64) { return bitsOf(std::fabs(as<T>(a))); });
    add({"neg." + type}, [](U64 a, U64, U64) { return bitsOf(-as<T>(a)); });
    add({"rcp." + type}, [](U64 a, U64, U64) { return bitsOf(1 / as<T>(a)); });
    add({"sqrt." + type}, [](U64 a, U64, U64) { return bitsOf(std::sqrt(as<T>(a))); });
    add({"cvt.rni." + type + "." + type}, [](U64 a, U64, U64) { return bitsOf(std::rint(as<T>(a))); });
    add({"cvt.rmi." + type + "." + type}, [](U64 a, U64, U64) { return bitsOf(std::floor(as<T>(a))); });
    add({"cvt.rpi." + type + "." + type}, [](U64 a, U64, U64) { return bitsOf(std::ceil(as<T>(a))); });
  }

  void addApproximations() {
    add({"min.NaN.f32"}, [](U64 a, U64 b, U64) { return bitsOf(real::minimum(as<float>(a), as<float>(b))); });
    add({"max.NaN.f32"}, [](U64 a, U64 b, U64) { return bitsOf(real::maximum(as<float>(a), as<float>(b))); });
    add({"cvt.rzi.u32.f32"}, [](U64 a, U64, U64) -> U64 {
      const float x = as<float>(a);
      if (!(x > 0)) return 0;
      return x < 0x1p32F ? static_cast<U32>(x) : ~U32{0};
    });
    add({"rsqrt.f32"}, [](U64 a, U64, U64) { return bitsOf(1.0f / std::sqrt(as<float>(a))); });
    add({"ex2.f32"}, [](U64 a, U64, U64) { return bitsOf(std::exp2(as<float>(a))); });
    add({"lg2.f32"}, [](U64 a, U64, U64) { return bitsOf(std::log2(as<float>(a))); });
    add({"sin.f32"}, [](U64 a, U64, U64) { return bitsOf(std::sin(as<float>(a))); });
    add({"cos.f32"}, [](U64 a, U64, U64) { return bitsOf(std::cos(as<float>(a))); });
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
