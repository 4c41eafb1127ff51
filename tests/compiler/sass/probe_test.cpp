// The table of machine instructions against what the assembler makes of PTX, on every architecture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>

#include <fmt/format.h>

#include "compiler/kernels/assembler.h"
#include "compiler/sass/cubin.h"
#include "compiler/sass/instruction.h"
#include "compiler/target/architecture.h"

namespace srjit {
namespace {

using sass::Form;

/// PTX that computes d from a, b, c (floats), i, j, l (their bits), v, w (doubles), x (an address), and what the
/// instruction must look like in our notation. {a} ... {d} stand for the registers that the loads of a, b, c write and
/// that the store of d reads, {v}, {w} and {z} for those of the doubles, # for a number, | between alternatives.
struct Probe {
  const char* body;
  const char* text;
};

constexpr Probe kProbes[] = {
    {"neg.f32 t,a; abs.f32 u,b; sub.f32 d,t,u;", "FADD {d}, -{a}, -|{b}|"},
    {"add.ftz.f32 d,a,b;", "FADD.FTZ {d}, {a}, {b}"},
    {"add.rp.f32 d,a,b;", "FADD.RP {d}, {a}, {b}"},
    {"add.sat.f32 d,a,b;", "FADD.SAT {d}, {a}, {b}"},
    {"add.f32 d,a,0f40490FDB;", "FADD {d}, {a}, 3.1415927"},
    {"abs.f32 t,a; neg.f32 t,t; add.f32 d,t,0f40490FDB;", "FADD {d}, -|{a}|, 3.1415927"},
    {"abs.f32 t,a; neg.f32 u,b; mul.f32 d,t,u;", "FMUL {d}, |{a}|, -{b}"},
    {"mul.rz.ftz.f32 d,a,b;", "FMUL.FTZ.RZ {d}, {a}, {b}"},
    {"mul.rm.f32 d,a,b;", "FMUL.RM {d}, {a}, {b}"},
    {"mul.sat.f32 d,a,b;", "FMUL.SAT {d}, {a}, {b}"},
    {"mul.rz.f32 d,a,0f40490FDB;", "FMUL.RZ {d}, {a}, 3.1415927"},
    {"abs.f32 t,a; mul.ftz.f32 d,t,0f40490FDB;", "FMUL.FTZ {d}, |{a}|, 3.1415927"},
    {"abs.f32 t,a; abs.f32 u,b; abs.f32 e,c; fma.rn.f32 d,t,u,e;", "FFMA {d}, |{a}|, |{b}|, |{c}|"},
    {"neg.f32 u,b; neg.f32 e,c; fma.rn.f32 d,a,u,e;", "FFMA {d}, {a}, -{b}, -{c}"},
    {"fma.rn.ftz.f32 d,a,b,c;", "FFMA.FTZ {d}, {a}, {b}, {c}"},
    {"fma.rz.f32 d,a,b,c;", "FFMA.RZ {d}, {a}, {b}, {c}"},
    {"fma.rm.f32 d,a,b,c;", "FFMA.RM {d}, {a}, {b}, {c}"},
    {"fma.rp.f32 d,a,b,c;", "FFMA.RP {d}, {a}, {b}, {c}"},
    {"fma.rn.sat.f32 d,a,b,c;", "FFMA.SAT {d}, {a}, {b}, {c}"},
    {"abs.f32 t,a; abs.f32 u,b; neg.f32 u,u; fma.rn.f32 d,t,0f40490FDB,u;", "FFMA {d}, |{a}|, 3.1415927, -|{b}|"},
    {"abs.f32 t,a; abs.f32 u,b; neg.f32 u,u; fma.rn.f32 d,t,u,0f40490FDB;", "FFMA {d}, |{a}|, -|{b}|, 3.1415927"},
    {"abs.f32 t,a; neg.f32 u,b; min.f32 d,t,u;", "FMNMX {d}, |{a}|, -{b}, PT"},
    {"min.ftz.f32 d,a,b;", "FMNMX.FTZ {d}, {a}, {b}, PT"},
    {"max.NaN.f32 d,a,b;", "FMNMX.NAN {d}, {a}, {b}, !PT"},
    {"abs.f32 t,a; neg.f32 t,t; min.f32 d,t,0f40490FDB;", "FMNMX {d}, -|{a}|, 3.1415927, PT"},
    {"abs.f32 t,a; neg.f32 u,b; setp.lt.f32 p,t,u; selp.f32 d,a,b,p;",
     "FSETP.LT.AND P#, PT, |{a}|, -{b}, PT|FSETP.GEU.AND P#, PT, |{a}|, -{b}, PT"},
    {"setp.gt.ftz.f32 p,a,b; selp.f32 d,a,b,p;", "FSETP.GT.FTZ.AND P#, PT, {a}, {b}, PT"},
    {"setp.gt.f32 p,a,b; setp.lt.or.f32 p,a,c,!p; selp.f32 d,a,b,p;", "FSETP.LT.OR P#, PT, {a}, {c}, !P#"},
    {"setp.gt.f32 p,a,b; setp.lt.and.f32 p,a,c,p; selp.f32 d,a,b,p;", "FSETP.LT.AND P#, PT, {a}, {c}, P#"},
    {"setp.gt.f32 p,b,c; setp.gt.xor.f32 p,a,b,!p; selp.f32 d,a,b,p;", "FSETP.GT.XOR P#, PT, {a}, {b}, !P#"},
    {"abs.f32 t,a; setp.lt.f32 p,t,0f7F800000; selp.f32 d,a,b,p;",
     "FSETP.LT.AND P#, PT, |{a}|, +INF, PT|FSETP.GEU.AND P#, PT, |{a}|, +INF, PT"},
    {"setp.gt.f32 p,a,b; neg.f32 t,a; abs.f32 u,c; selp.f32 d,t,u,p;", "FSEL {d}, -{a}, |{c}|, P#"},
    {"setp.gt.f32 p,a,b; neg.f32 t,a; selp.f32 d,t,0f40490FDB,p;", "FSEL {d}, -{a}, 3.1415927, P#"},
    {"min.f64 z,v,w; st.global.f64 [x+80],z; mov.f32 d,a;", "SEL R#, R#, R#, P#"},
    {"setp.gt.f32 p,a,b; selp.b32 k,i,12345,p; xor.b32 k,k,l; mov.b32 d,k;",
     "SEL R#, {a}, 0x3039, P#|SEL R#, {a}, 0x3039, !P#"},
    {"neg.f32 t,a; rcp.approx.ftz.f32 d,t;", "MUFU.RCP {d}, -{a}"},
    {"abs.f32 t,a; rsqrt.approx.ftz.f32 d,t;", "MUFU.RSQ {d}, |{a}|"},
    {"sqrt.approx.ftz.f32 d,a;", "MUFU.SQRT {d}, {a}"},
    {"lg2.approx.ftz.f32 d,a;", "MUFU.LG2 {d}, {a}"},
    {"ex2.approx.ftz.f32 d,a;", "MUFU.EX2 {d}, {a}"},
    {"tanh.approx.f32 d,a;", "MUFU.TANH {d}, {a}"},
    {"sin.approx.ftz.f32 d,a;", "MUFU.SIN {d}, R#"},
    {"cos.approx.ftz.f32 d,a;", "MUFU.COS {d}, R#"},
    {"cvt.rni.f32.f32 d,a;", "FRND {d}, {a}"},
    {"abs.f32 t,a; cvt.rmi.f32.f32 d,t;", "FRND.FLOOR {d}, |{a}|"},
    {"neg.f32 t,a; cvt.rpi.f32.f32 d,t;", "FRND.CEIL {d}, -{a}"},
    {"cvt.rzi.ftz.f32.f32 d,a;", "FRND.FTZ.TRUNC {d}, {a}"},
    {"div.rn.f32 d,a,b;", "FCHK P#, R#, R#"},
    {"rcp.rn.f32 d,a;", ""},
    {"lop3.b32 k,i,j,l,0xca; mov.b32 d,k;", "LOP3.LUT {d}, {a}, {b}, {c}, 0xca, !PT"},
    {"lop3.b32 k,i,0x80000000,j,0xca; mov.b32 d,k;",
     "LOP3.LUT {d}, {a}, 0x80000000, {b}, 0xca, !PT|LOP3.LUT {d}, {b}, 0x80000000, {a}, 0xe2, !PT|LOP3.LUT {d}, {b}, "
     "0x80000000, {a}, 0xac, !PT"},
    {"and.b32 k,i,j; setp.eq.u32 p,k,0; selp.f32 d,a,c,p;",
     "LOP3.LUT P#, RZ, {b}, {a}, RZ, 0xc0, !PT|LOP3.LUT P#, RZ, {a}, {b}, RZ, 0xc0, !PT"},
    {"fma.rn.f32 d,a,b,c; fma.rn.f32 d,d,b,c; fma.rn.f32 d,d,b,c; shl.b32 k,i,5; st.global.b32 [x+64],k;",
     "SHF.L.U32 R#, {a}, 0x5, RZ"},
    {"shr.u32 k,i,5; mov.b32 d,k;", "SHF.R.U32.HI {d}, RZ, 0x5, {a}"},
    {"shr.s32 k,i,7; mov.b32 d,k;", "SHF.R.S32.HI {d}, RZ, 0x7, {a}"},
    {"sub.s32 k,i,j; mov.b32 d,k;", "IADD3 {d}, {a}, -{b}, RZ"},
    {"sub.s32 k,0x12345,i; sub.s32 k,k,j; mov.b32 d,k;",
     "IADD3 {d}, -{a}, 0x12345, -{b}|IADD3 {d}, -{b}, 0x12345, -{a}"},
    {"mad.lo.s32 k,i,j,l; mov.b32 d,k;", "IMAD {d}, {a}, {b}, {c}"},
    {"mad.lo.s32 k,i,0x12345,l; mov.b32 d,k;", "IMAD {d}, {a}, 0x12345, {c}"},
    {"mad.lo.s32 k,i,j,0x12345; mov.b32 d,k;", "IMAD {d}, {a}, {b}, 0x12345"},
    {"ld.global.u64 o,[x+64]; mul.wide.u32 q,i,j; add.u64 q,q,o; st.global.u64 [x+16],q; mov.f32 d,a;",
     "IMAD.WIDE.U32 R#, {a}, {b}, R#"},
    {"ld.global.u64 o,[x+64]; mul.wide.u32 q,i,0x12345; add.u64 q,q,o; st.global.u64 [x+16],q; mov.f32 d,a;",
     "IMAD.WIDE.U32 R#, {a}, 0x12345, R#"},
    {"ld.global.nc.f32 d,[x+-32];", "LDG.E.CONSTANT {d}, desc[UR4][R#.64+-0x20]"},
    {"ld.global.nc.v2.f32 {d,t},[x+32]; st.global.f32 [x+64],t;", "LDG.E.64.CONSTANT R#, desc[UR4][R#.64+0x20]"},
    {"ld.global.nc.v4.f32 {d,t,u,e},[x+32]; st.global.f32 [x+64],t; st.global.f32 [x+72],u; st.global.f32 [x+80],e;",
     "LDG.E.128.CONSTANT R#, desc[UR4][R#.64+0x20]"},
    {"st.global.v2.f32 [x+32],{a,b}; mov.f32 d,b;", "STG.E.64 desc[UR4][R#.64+0x20], R#"},
    {"setp.gt.f32 p,a,b; @p st.global.f32 [x+32],b; mov.f32 d,b;", "STG.E desc[UR4][R#.64+0x20], {b}"},
    {"mov.u32 t1,%tid.x; mul.wide.u32 q,t1,4; add.u64 q,q,x; ld.global.b32 t1,[q+64]; shfl.sync.bfly.b32 "
     "k,t1,21,31,-1; mov.b32 d,k;",
     "SHFL.BFLY PT, R#, R#, 0x15, 0x1f"},
    {"mov.u32 t1,%tid.x; setp.gt.u32 p,t1,i; vote.sync.all.pred p,p,-1; selp.f32 d,a,b,p;",
     "VOTE.ALL P#, P#|VOTE.ALL P#, !P#"},
    {"mov.u32 t1,%tid.x; setp.gt.u32 p,t1,i; vote.sync.any.pred p,!p,-1; selp.f32 d,a,b,p;",
     "VOTE.ANY P#, !P#|VOTE.ANY P#, P#"},
    {"mov.u32 k,%tid.x; mov.b32 d,k;", "S2R {d}, SR_TID.X"},
    {"mov.u32 k,%ctaid.x; mov.b32 d,k;", "S2R {d}, SR_CTAID.X"},
    {"mov.u32 k,%ctaid.y; mov.b32 d,k;", "S2R {d}, SR_CTAID.Y"},
    {"mov.u32 k,%laneid; mov.b32 d,k;", "S2R {d}, SR_LANEID"},
    {"and.b32 k,i,15; shl.b32 k,k,3; cvt.u64.u32 q,k; mov.b64 o,Z; add.u64 q,q,o; ld.param.b32 k,[q+4]; mov.b32 d,k;",
     "LDC {d}, c[0x0][R#+#]"},
    {"and.b32 k,i,15; shl.b32 k,k,3; cvt.u64.u32 q,k; mov.b64 o,Z; add.u64 q,q,o; ld.param.b64 q,[q]; st.global.b64 "
     "[x+64],q; mov.f32 d,a;",
     "LDC.64 R#, c[0x0][R#+#]"},
    {"abs.f64 z,v; neg.f64 y,w; add.f64 z,z,y; st.global.f64 [x+80],z; mov.f32 d,a;", "DADD {z}, |{v}|, -{w}"},
    {"neg.f64 z,v; abs.f64 y,w; add.f64 z,z,y; st.global.f64 [x+80],z; mov.f32 d,a;", "DADD {z}, -{v}, |{w}|"},
    {"abs.f64 z,v; neg.f64 z,z; add.f64 z,z,0d4008000000000000; st.global.f64 [x+80],z; mov.f32 d,a;",
     "DADD {z}, -|{v}|, 3"},
    {"neg.f64 y,v; mul.f64 z,y,w; st.global.f64 [x+80],z; mov.f32 d,a;", "DMUL {z}, {v}, -{w}|DMUL {z}, -{v}, {w}"},
    {"abs.f64 y,v; neg.f64 z,w; mul.f64 z,y,z; st.global.f64 [x+80],z; mov.f32 d,a;", "DMUL {z}, |{v}|, -{w}"},
    {"abs.f64 y,w; mul.f64 z,v,y; st.global.f64 [x+80],z; mov.f32 d,a;", "DMUL {z}, {v}, |{w}|"},
    {"abs.f64 z,v; neg.f64 z,z; mul.f64 z,z,0d4008000000000000; st.global.f64 [x+80],z; mov.f32 d,a;",
     "DMUL {z}, -|{v}|, 3|DMUL {z}, |{v}|, -3"},
    {"neg.f64 y,v; fma.rn.f64 z,v,w,y; st.global.f64 [x+80],z; mov.f32 d,a;", "DFMA {z}, {v}, {w}, -{v}"},
    {"neg.f64 y,v; fma.rn.f64 z,y,w,w; st.global.f64 [x+80],z; mov.f32 d,a;",
     "DFMA {z}, -{v}, {w}, {w}|DFMA {z}, {v}, -{w}, {w}"},
    {"abs.f64 y,v; neg.f64 z,w; fma.rn.f64 z,y,z,y; st.global.f64 [x+80],z; mov.f32 d,a;",
     "DFMA {z}, |{v}|, -{w}, |{v}|"},
    {"abs.f64 y,w; fma.rn.f64 z,v,y,w; st.global.f64 [x+80],z; mov.f32 d,a;", "DFMA {z}, {v}, |{w}|, {w}"},
    {"abs.f64 y,v; neg.f64 y,y; fma.rn.f64 z,y,0d4008000000000000,y; st.global.f64 [x+80],z; mov.f32 d,a;",
     "DFMA {z}, -|{v}|, 3, -|{v}||DFMA {z}, |{v}|, -3, -|{v}|"},
    {"abs.f64 y,v; neg.f64 z,w; fma.rn.f64 z,y,z,0d4008000000000000; st.global.f64 [x+80],z; mov.f32 d,a;",
     "DFMA {z}, |{v}|, -{w}, 3"},
    {"neg.f64 y,v; abs.f64 z,w; fma.rn.f64 z,y,z,0d4008000000000000; st.global.f64 [x+80],z; mov.f32 d,a;",
     "DFMA {z}, -{v}, |{w}|, 3"},
    {"fma.rp.f64 z,v,w,v; st.global.f64 [x+80],z; mov.f32 d,a;", "DFMA.RP {z}, {v}, {w}, {v}"},
    {"fma.rm.f64 z,v,w,w; st.global.f64 [x+80],z; mov.f32 d,a;", "DFMA.RM {z}, {v}, {w}, {w}"},
    {"neg.f64 y,v; fma.rp.f64 z,y,w,0d4008000000000000; st.global.f64 [x+80],z; mov.f32 d,a;",
     "DFMA.RP {z}, -{v}, {w}, 3"},
    {"fma.rz.f64 z,v,0d4008000000000000,w; st.global.f64 [x+80],z; mov.f32 d,a;", "DFMA.RZ {z}, {v}, 3, {w}"},
    {"rcp.approx.ftz.f64 z,v; st.global.f64 [x+80],z; mov.f32 d,a;", "MUFU.RCP64H R#, R#"},
    {"rsqrt.approx.ftz.f64 z,v; st.global.f64 [x+80],z; mov.f32 d,a;", "MUFU.RSQ64H R#, R#"},
    {"abs.f64 z,v; cvt.rmi.f64.f64 z,z; st.global.f64 [x+80],z; mov.f32 d,a;", "FRND.F64.FLOOR {z}, |{v}|"},
    {"neg.f64 z,v; cvt.rpi.f64.f64 z,z; st.global.f64 [x+80],z; mov.f32 d,a;", "FRND.F64.CEIL {z}, -{v}"},
    {"cvt.rni.f64.f64 z,w; st.global.f64 [x+80],z; mov.f32 d,a;", "FRND.F64 {z}, {w}"},
    {"cvt.rzi.f64.f64 z,w; st.global.f64 [x+80],z; mov.f32 d,a;", "FRND.F64.TRUNC {z}, {w}"},
    {"abs.f64 z,v; setp.gt.f64 p,z,w; selp.f32 d,a,b,p;",
     "DSETP.GT.AND P#, PT, |{v}|, {w}, PT|DSETP.LEU.AND P#, PT, |{v}|, {w}, PT"},
    {"neg.f64 z,v; abs.f64 y,w; setp.gt.f64 p,z,y; selp.f32 d,a,b,p;",
     "DSETP.GT.AND P#, PT, -{v}, |{w}|, PT|DSETP.LEU.AND P#, PT, -{v}, |{w}|, PT"},
    {"abs.f64 z,v; setp.lt.f64 p,z,0d7FF0000000000000; selp.f32 d,a,b,p;",
     "DSETP.LT.AND P#, PT, |{v}|, +INF, PT|DSETP.GEU.AND P#, PT, |{v}|, +INF, PT"},
    {"setp.gt.f64 p,v,w; setp.lt.or.f64 p,v,0d4008000000000000,!p; selp.f32 d,a,b,p;",
     "DSETP.LT.OR P#, PT, {v}, 3, !P#|DSETP.LT.OR P#, PT, {v}, 3, P#"},
    {"setp.gt.f32 p,a,b; neg.f64 z,v; setp.lt.and.f64 p,z,w,p; selp.f32 d,a,b,p;",
     "DSETP.LT.AND P#, PT, -{v}, {w}, P#|DSETP.GT.AND P#, PT, {w}, -{v}, P#"},
    {"L1: add.f32 a,a,b; ld.global.f32 b,[x+4]; st.global.f32 [x+100],a; bar.sync 0; setp.gt.f32 p,a,c; @p bra L1; "
     "mov.f32 d,a;",
     "BRA -0x#|BRA -0x#0"},
    {"T: .branchtargets L1,L2,L3; and.b32 k,i,3; brx.idx k,T; L1: add.f32 d,a,b; bra E1; L2: mul.f32 d,a,b; bra E1; "
     "L3: fma.rn.f32 d,a,b,c; E1:",
     "BRX R# -0x#0|BRX R# -0x#"},
};

/// Which comparison is the opposite of which: the assembler takes either.
constexpr std::pair<const char*, const char*> kFloatComparisons[] = {
    {"lt", "GEU"},  {"le", "GTU"}, {"gt", "LEU"}, {"ge", "LTU"}, {"eq", "NEU"}, {"ne", "EQU"}, {"num", "NAN"},
    {"nan", "NUM"}, {"ltu", "GE"}, {"leu", "GT"}, {"gtu", "LE"}, {"geu", "LT"}, {"equ", "NE"}, {"neu", "EQ"}};
constexpr std::pair<const char*, const char*> kIntegerComparisons[] = {{"lt", "GE"}, {"le", "GT"}, {"gt", "LE"},
                                                                       {"ge", "LT"}, {"eq", "NE"}, {"ne", "EQ"}};

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

struct NamedProbe {
  std::string name, body, text;
};

std::vector<NamedProbe> allProbes() {
  std::vector<NamedProbe> probes;
  for (const Probe& probe : kProbes) probes.push_back({fmt::format("p{}", probes.size()), probe.body, probe.text});
  for (const auto& [name, opposite] : kFloatComparisons) {
    for (const char* const operand : {"b", "0f40490FDB"}) {
      const std::string b = operand[0] == 'b' ? "{b}" : "3.1415927";
      std::string text;
      for (const std::string& one : {upper(name), std::string(opposite)}) {
        text += fmt::format("FSETP.{}.AND P#, PT, {{a}}, {}, PT|", one, b);
      }
      if (operand[0] != 'b' && (name == std::string("num") || name == std::string("nan"))) continue;
      text.pop_back();
      probes.push_back({fmt::format("p{}", probes.size()),
                        fmt::format("setp.{}.f32 p,a,{}; selp.f32 d,c,b,p;", name, operand), text});
    }
  }
  for (const auto& [name, opposite] : kFloatComparisons) {
    probes.push_back({fmt::format("p{}", probes.size()), fmt::format("setp.{}.f64 p,v,w; selp.f32 d,c,b,p;", name),
                      fmt::format("DSETP.{}.AND P#, PT, {{v}}, {{w}}, PT|DSETP.{}.AND P#, PT, {{v}}, {{w}}, PT",
                                  upper(name), opposite)});
  }
  for (const auto& [name, opposite] : kIntegerComparisons) {
    for (const char* const type : {"u32", "s32"}) {
      for (const char* const operand : {"j", "12345"}) {
        const std::string b = operand[0] == 'j' ? "{b}" : "0x3039";
        const bool is_equality = name == std::string("eq") || name == std::string("ne");
        std::string text;
        for (const std::string& one : {upper(name), std::string(opposite)}) {
          if (type[0] == 'u' || is_equality) text += fmt::format("ISETP.{}.U32.AND P#, PT, {{a}}, {}, PT|", one, b);
          if (type[0] == 's' || is_equality) text += fmt::format("ISETP.{}.AND P#, PT, {{a}}, {}, PT|", one, b);
        }
        text.pop_back();
        probes.push_back({fmt::format("p{}", probes.size()),
                          fmt::format("setp.{}.{} p,i,{}; selp.f32 d,c,b,p;", name, type, operand), text});
      }
    }
  }
  return probes;
}

std::string ptxOf(std::span<const NamedProbe> probes, unsigned architecture) {
  std::string ptx = fmt::format(".version 8.7\n.target sm_{}\n.address_size 64\n", architecture);
  for (const NamedProbe& probe : probes) {
    const bool doubles = probe.body.find("f64") != std::string::npos;
    ptx += fmt::format(
        ".visible .entry {}(.param .u64 X, .param .align 8 .b8 Z[256]){{.reg .f32 a,b,c,d,e,t,u;.reg .f64 v,w,y,z;"
        ".reg .pred p;.reg .b64 x,o,q;.reg .b32 i,j,k,l,t1;\nld.param.u64 x,[X]; cvta.to.global.u64 x,x;"
        "ld.global.f32 a,[x]; ld.global.f32 b,[x+4]; ld.global.f32 c,[x+8];mov.b32 i,a; mov.b32 j,b; mov.b32 l,c; {}\n"
        "{}\nst.global.f32 [x+12],d; ret;}}\n",
        probe.name, doubles ? "ld.global.f64 v,[x+40]; ld.global.f64 w,[x+48];" : "", probe.body);
  }
  return ptx;
}

/// Whether `text` is `pattern`, whose # stand for hexadecimal numbers.
bool matches(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] != '#') return !text.empty() && text[0] == pattern[0] && matches(pattern.substr(1), text.substr(1));
  std::size_t digits = 0;
  while (digits < text.size() && (std::isxdigit(static_cast<unsigned char>(text[digits])) != 0 || text[digits] == 'x'))
    ++digits;
  for (; digits > 0; --digits) {
    if (matches(pattern.substr(1), text.substr(digits))) return true;
  }
  return false;
}

std::string replaceAll(std::string text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

/// The alternatives of a pattern, with the names of registers filled in from the loads and the store of a kernel.
std::vector<std::string> patternsOf(std::string text, std::span<const std::optional<sass::Instruction>> code) {
  constexpr std::string_view kLoaded[] = {"{a}", "{b}", "{c}"};
  for (const auto& i : code) {
    if (!i) continue;
    if (i->form == Form::kLdg && i->immediate < 12) {
      text = replaceAll(text, kLoaded[i->immediate / 4], fmt::format("R{}", i->destination));
    }
    if (i->form == Form::kStg && i->immediate == 12) text = replaceAll(text, "{d}", fmt::format("R{}", i->sources[1]));
    if (i->form == Form::kLdg64 && (i->immediate == 40 || i->immediate == 48)) {
      text = replaceAll(text, i->immediate == 40 ? "{v}" : "{w}", fmt::format("R{}", i->destination));
    }
    if (i->form == Form::kStg64 && i->immediate == 80)
      text = replaceAll(text, "{z}", fmt::format("R{}", i->sources[1]));
  }
  // Where the assembler loads two of them at once, the second is in the next register.
  for (const auto& i : code) {
    if (!i || (i->form != Form::kLdg64 && i->form != Form::kLdg128) || i->immediate >= 12 ||
        i->modifier != sass::kCoherent)
      continue;
    for (unsigned n = 0; n < 3 - i->immediate / 4; ++n) {
      text = replaceAll(text, kLoaded[i->immediate / 4 + n], fmt::format("R{}", i->destination + n));
    }
  }
  std::vector<std::string> patterns(1);
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool separates = text[at] == '|' && at + 1 < text.size() &&
                           std::isupper(static_cast<unsigned char>(text[at + 1])) != 0 &&
                           std::isupper(static_cast<unsigned char>(text[at + 2])) != 0;
    if (separates) {
      patterns.emplace_back();
    } else {
      patterns.back() += text[at];
    }
  }
  return patterns;
}

class SassProbe : public ::testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override {
    if (assemblerName().empty()) GTEST_SKIP() << "no CUDA toolkit on this machine";
  }
  static CubinContents read(const KernelImage& cubin) {
    auto contents = readCubin(cubin.code);
    EXPECT_TRUE(contents.ok()) << contents.error().message;
    return contents.ok() ? *contents : CubinContents{};
  }
};
INSTANTIATE_TEST_SUITE_P(, SassProbe, ::testing::ValuesIn(directArchitectures().begin(), directArchitectures().end()),
                         [](const auto& made) { return fmt::format("sm_{}", made.param); });

std::vector<std::optional<sass::Instruction>> decoded(const CubinKernel& kernel, unsigned architecture) {
  std::vector<std::optional<sass::Instruction>> code;
  for (const sass::Word& word : kernel.code) {
    code.push_back(sass::decode(word, architecture));
    if (code.back()) {
      EXPECT_EQ(sass::encode(*code.back(), architecture), word) << sass::print(*code.back());
    }
  }
  return code;
}

TEST_P(SassProbe, EveryFormMatchesTheAssembler) {
  const std::vector<NamedProbe> probes = allProbes();
  const auto cubin = assemble(ptxOf(probes, GetParam()), fmt::format("sm_{}", GetParam()));
  ASSERT_TRUE(cubin.ok()) << cubin.error().message;
  const CubinContents contents = read(*cubin);
  ASSERT_GE(contents.kernels.size(), probes.size());  // subroutines count, too
  std::set<Form> seen;
  for (const NamedProbe& probe : probes) {
    const auto kernel = std::ranges::find(contents.kernels, probe.name, &CubinKernel::name);
    ASSERT_NE(kernel, contents.kernels.end());
    const auto code = decoded(*kernel, GetParam());
    std::string all;
    bool found = probe.text.empty();
    const std::vector<std::string> patterns = patternsOf(probe.text, code);
    for (auto i : code) {
      if (!i) continue;
      seen.insert(i->form);
      i->guard = sass::kTrue;
      const std::string text = sass::print(*i);
      if (i->form != Form::kNop) all += text + "\n";
      for (const std::string& pattern : patterns) found |= matches(pattern, text);
    }
    EXPECT_TRUE(found) << probe.body << "\nexpected " << ::testing::PrintToString(patterns) << " in\n" << all;
  }
  constexpr std::size_t kForms = static_cast<std::size_t>(Form::kNop) + 1;
  for (std::size_t form = 0; form < kForms; ++form) {
    if (!sass::isAvailable(static_cast<Form>(form), GetParam())) continue;
    EXPECT_TRUE(seen.contains(static_cast<Form>(form)))
        << "no probe shows form " << form << ", " << sass::infoOf(static_cast<Form>(form)).name;
  }
}

TEST_P(SassProbe, KernelsBeginAndEndAsAssumed) {
  const NamedProbe probe = {"k", "add.f32 d,a,b;", ""};
  const auto cubin = assemble(ptxOf({&probe, 1}, GetParam()), fmt::format("sm_{}", GetParam()));
  ASSERT_TRUE(cubin.ok()) << cubin.error().message;
  const CubinContents contents = read(*cubin);
  ASSERT_EQ(contents.kernels.size(), 1U);
  const CubinKernel& kernel = contents.kernels[0];
  const auto code = decoded(kernel, GetParam());
  const Architecture& bank = architectureOf(GetParam());
  EXPECT_EQ(kernel.parameter_base, bank.parameters);
  std::size_t descriptors = 0, last = code.size();
  for (const auto& i : code)
    descriptors += i && i->form == sass::descriptorLoadOf(GetParam()) && i->immediate == bank.descriptor ? 1 : 0;
  EXPECT_EQ(descriptors, 1U);
  while (last > 0 && code[last - 1] && code[last - 1]->form == Form::kNop) --last;
  ASSERT_GT(last, 1U);
  ASSERT_TRUE(code[last - 1] && code[last - 2]);
  EXPECT_EQ(code[last - 1]->form, Form::kBra);
  EXPECT_EQ(static_cast<std::int32_t>(code[last - 1]->immediate), -16) << "a branch counts from the next instruction";
  EXPECT_EQ(code[last - 2]->form, Form::kExit);
  EXPECT_EQ(kernel.exits, std::vector<std::uint32_t>{static_cast<std::uint32_t>((last - 2) * sizeof(sass::Word))});
}

/// Many values live at once, so that registers of all numbers occur in all slots.
TEST_P(SassProbe, RegistersOfAllNumbers) {
  constexpr int kValues = 150;
  std::string body = fmt::format(".reg .f32 s<{}>;\n", kValues);
  for (int v = 0; v < kValues; ++v) body += fmt::format("ld.global.f32 s{},[x+{}];", v, 256 + 4 * v);
  body += "bar.sync 0;\n";
  for (int v = 0; v < kValues; ++v) {
    body += fmt::format("fma.rn.f32 s{0},s{0},s{1},s{2}; add.f32 s{1},s{1},s{2}; mul.f32 s{2},s{2},s{0};", v,
                        (v * 7 + 3) % kValues, (v * 11 + 5) % kValues);
  }
  body += "bar.sync 0;\n";
  for (int v = 0; v < kValues; ++v) body += fmt::format("st.global.f32 [x+{}],s{};", 256 + 4 * v, v);
  const NamedProbe probe = {"k", body + "mov.f32 d,a;", ""};
  const auto cubin = assemble(ptxOf({&probe, 1}, GetParam()), fmt::format("sm_{}", GetParam()));
  ASSERT_TRUE(cubin.ok()) << cubin.error().message;
  const CubinContents contents = read(*cubin);
  std::map<Form, std::array<std::set<std::uint8_t>, 4>> used;
  for (const auto& i : decoded(contents.kernels.at(0), GetParam())) {
    if (!i) continue;
    for (std::size_t s = 0; s < 3; ++s) used[i->form][s].insert(i->sources[s]);
    used[i->form][3].insert(i->destination);
  }
  EXPECT_GT(used[Form::kLdg][3].size(), 100U);
  for (const auto& [form, slots] : {std::pair{Form::kFFmaRRR, 3U}, {Form::kFAddRR, 2U}, {Form::kFMulRR, 2U}}) {
    for (std::size_t s = 0; s < slots; ++s) {
      EXPECT_GT(used[form][s].size(), 60U) << sass::infoOf(form).name << ", source " << s;
      EXPECT_GT(*used[form][s].rbegin(), 127U);
    }
    EXPECT_GT(used[form][3].size(), 60U);
  }
}

}  // namespace
}  // namespace srjit
