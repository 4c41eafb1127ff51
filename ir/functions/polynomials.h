// Polynomials of elementary functions, coefficients from the lowest on, and constants. Written by polynomials.sollya.
// clang-format off
#pragma once

namespace srjit::functions {

// Sums of two numbers. Products of the first number of the Short ones and an exponent are exact: 15 or 42 bits.
inline constexpr double kShortLn2High32 = 0x1.62e4p-1, kShortLn2Low32 = 0x1.7f7d1cp-20;
inline constexpr double kShortLn2High64 = 0x1.62e42fefa38p-1, kShortLn2Low64 = 0x1.ef35793c7673p-45;
inline constexpr double kShortLog10Of2High32 = 0x1.344p-2, kShortLog10Of2Low32 = 0x1.3509f8p-18;
inline constexpr double kShortLog10Of2High64 = 0x1.34413509f78p-2, kShortLog10Of2Low64 = 0x1.fef311f12b358p-46;
inline constexpr double kLn2High32 = 0x1.62e43p-1, kLn2Low32 = -0x1.05c61p-29;
inline constexpr double kLn2High64 = 0x1.62e42fefa39efp-1, kLn2Low64 = 0x1.abc9e3b39803fp-56;
inline constexpr double kLog2OfEHigh32 = 0x1.715476p0, kLog2OfELow32 = 0x1.4ae0cp-26;
inline constexpr double kLog2OfEHigh64 = 0x1.71547652b82fep0, kLog2OfELow64 = 0x1.777d0ffda0d24p-56;
inline constexpr double kLog10OfEHigh32 = 0x1.bcb7b2p-2, kLog10OfELow32 = -0x1.5b235ep-27;
inline constexpr double kLog10OfEHigh64 = 0x1.bcb7b1526e50ep-2, kLog10OfELow64 = 0x1.95355baaafad3p-57;
inline constexpr double kQuarterOfPiHigh32 = 0x1.921fb6p-1, kQuarterOfPiLow32 = -0x1.777a5cp-26;
inline constexpr double kQuarterOfPiHigh64 = 0x1.921fb54442d18p-1, kQuarterOfPiLow64 = 0x1.1a62633145c07p-55;
inline constexpr double kThreeQuartersOfPiHigh32 = 0x1.2d97c8p1, kThreeQuartersOfPiLow32 = -0x1.99bc5cp-28;
inline constexpr double kThreeQuartersOfPiHigh64 = 0x1.2d97c7f3321d2p1, kThreeQuartersOfPiLow64 = 0x1.a79394c9e8a0ap-54;
inline constexpr double kHalfOfPiHigh32 = 0x1.921fb6p0, kHalfOfPiLow32 = -0x1.777a5cp-25;
inline constexpr double kHalfOfPiHigh64 = 0x1.921fb54442d18p0, kHalfOfPiLow64 = 0x1.1a62633145c07p-54;
inline constexpr double kPiHigh32 = 0x1.921fb6p1, kPiLow32 = -0x1.777a5cp-24;
inline constexpr double kPiHigh64 = 0x1.921fb54442d18p1, kPiLow64 = 0x1.1a62633145c07p-53;
inline constexpr double kTwoPiHigh32 = 0x1.921fb6p2, kTwoPiLow32 = -0x1.777a5cp-23;
inline constexpr double kTwoPiHigh64 = 0x1.921fb54442d18p2, kTwoPiLow64 = 0x1.1a62633145c07p-52;
inline constexpr double kHalfOfPiRest32 = -0x1.ee59dap-50, kHalfOfPiRest64 = -0x1.f1976b7ed8fbcp-110;
inline constexpr double kTwoOverPiHigh32 = 0x1.45f306p-1, kTwoOverPiLow32 = 0x1.b9391p-26;
inline constexpr double kTwoOverPiHigh64 = 0x1.45f306dc9c883p-1, kTwoOverPiLow64 = -0x1.6b01ec5417056p-55;

/// q of exp(x) = 1 + x + x^2 q(x), |x| <= 0.3475: relative error at most 2^-28.125.
inline constexpr double kExp32[] = {
    0x1.fffffap-2, 0x1.55549p-3, 0x1.555a22p-5, 0x1.123b04p-7,
    0x1.695414p-10};
/// q of exp(x) = 1 + x + x^2 q(x), |x| <= 0.3475: relative error at most 2^-57.8125.
inline constexpr double kExp64[] = {
    0x1.000000000000ap-1, 0x1.55555555554f9p-3, 0x1.5555555550629p-5, 0x1.1111111127d09p-7,
    0x1.6c16c184a9d23p-10, 0x1.a01a012aa8e77p-13, 0x1.a01998b27e796p-16, 0x1.71df22fd74365p-19,
    0x1.28aeb476caa8dp-22, 0x1.ad85bb7fcf4dap-26};
/// q of exp(x) = 1 + x + x^2 q(x), |x| <= 0.3475: relative error at most 2^-32.75.
inline constexpr double kFineExp32[] = {
    0x1p-1, 0x1.555552p-3, 0x1.5554e2p-5, 0x1.1115a8p-7,
    0x1.6d53d4p-10, 0x1.9ab65p-13};
/// q of exp(x) = 1 + x + x^2 q(x), |x| <= 0.3475: relative error at most 2^-63.4375.
inline constexpr double kFineExp64[] = {
    0x1p-1, 0x1.555555555555cp-3, 0x1.5555555555542p-5, 0x1.111111110e9dbp-7,
    0x1.6c16c16c1f38bp-10, 0x1.a01a01b459ac7p-13, 0x1.a01a0179300bcp-16, 0x1.71ddee2dbce6p-19,
    0x1.27e53bb4c688fp-22, 0x1.af6f1026dcc27p-26, 0x1.1ee1b4f4a79dfp-29};

/// q of log(1 + x) = x - x^2 / 2 + x^3 q(x), |x| <= 0.33334: relative error at most 2^-29.125.
inline constexpr double kLog32[] = {
    0x1.55555cp-2, -0x1.fffeb4p-3, 0x1.999456p-3, -0x1.55a80ep-3,
    0x1.254546p-3, -0x1.f1fe1cp-4, 0x1.b2075p-4, -0x1.0a4b1ap-3,
    0x1.01732cp-3};
/// q of log(1 + x) = x - x^2 / 2 + x^3 q(x), |x| <= 0.33334: relative error at most 2^-60.0625.
inline constexpr double kLog64[] = {
    0x1.5555555555559p-2, -0x1.ffffffffffe8bp-3, 0x1.9999999998d64p-3, -0x1.555555556f082p-3,
    0x1.2492492506767p-3, -0x1.ffffffe9c7eedp-4, 0x1.c71c7180ae192p-4, -0x1.99999eb6d725ep-4,
    0x1.745d23e12e484p-4, -0x1.5554a004da968p-4, 0x1.3b1241c19cff3p-4, -0x1.24a24a3891782p-4,
    0x1.112cadf2ec6b8p-4, -0x1.fe28fcd2ff0fp-5, 0x1.df1d76eba68b4p-5, -0x1.d896dab7281bp-5,
    0x1.c676d61bf236fp-5, -0x1.33739745cae5ap-5, 0x1.0be3195d6ffc5p-5, -0x1.5b51379155eeap-4,
    0x1.60250c3fe6fb8p-4};

/// A factor that brings significands up to `end` near 1, and minus its logarithm as a sum.
struct Factor {
  double end, factor, high, low;
};
inline constexpr Factor kFactors32[] = {
    {0x1.24924ap0, 0x1p0, 0, 0},
    {0x1p1, 0x1.8p-1, 0x1.2698p-2, -0x1.deecb2p-18},
};
inline constexpr Factor kFactors64[] = {
    {0x1.1a7b96p0, 0x1p0, 0, 0},
    {0x1.555556p0, 0x1.ap-1, 0x1.a93ed3c8aep-3, -0x1.8724350562169p-45},
    {0x1.99999ap0, 0x1.6p-1, 0x1.7fafa3bd82p-2, -0x1.5c8243204959ap-43},
    {0x1p1, 0x1.2p-1, 0x1.269621134ep-1, -0x1.1b61f10522625p-43},
};
/// third and q of log(1 + x) = x - x^2 / 2 + third x^3 + x^4 q(x), |x| <= 0.201: relative error at most 2^-34.6875.
inline constexpr double kPowerThird32 = 0x1.555554p-2;
inline constexpr double kPowerLog32[] = {
    -0x1.fffff8p-3, 0x1.999c14p-3, -0x1.555a0ep-3, 0x1.23dec6p-3,
    -0x1.fe0932p-4, 0x1.eebebep-4, -0x1.c59a8ap-4};
/// third and q of log(1 + x) = x - x^2 / 2 + third x^3 + x^4 q(x), |x| <= 0.104: relative error at most 2^-67.1875.
inline constexpr double kPowerThird64 = 0x1.5555555555555p-2;
inline constexpr double kPowerLog64[] = {
    -0x1p-2, 0x1.9999999999c37p-3, -0x1.55555555554aap-3, 0x1.249249245db3ep-3,
    -0x1.000000002ba53p-3, 0x1.c71c71e8e78fcp-4, -0x1.9999990fbc6dbp-4, 0x1.745d3566fdd4cp-4,
    -0x1.5555c3068e2dep-4, 0x1.3af6e21eed736p-4, -0x1.246370e2b5f81p-4, 0x1.19e733b6d2385p-4,
    -0x1.0a3ca8fdfacc1p-4};

/// q of sinh(x) = x + x^3 q(x^2), |x| <= 0.3475: relative error at most 2^-34.125.
inline constexpr double kSinh32[] = {
    0x1.555556p-3, 0x1.110fe2p-7, 0x1.a28ee6p-13};
/// q of sinh(x) = x + x^3 q(x^2), |x| <= 0.3475: relative error at most 2^-61.625.
inline constexpr double kSinh64[] = {
    0x1.5555555555559p-3, 0x1.111111110f62dp-7, 0x1.a01a01b01ed65p-13, 0x1.71ddf7b3201a7p-19,
    0x1.af5fefce6e31ap-26};
/// q of cosh(x) = 1 + x^2 q(x^2), |x| <= 0.3475: relative error at most 2^-33.1875.
inline constexpr double kCosh32[] = {
    0x1p-1, 0x1.5554e4p-5, 0x1.6d5196p-10};
/// q of cosh(x) = 1 + x^2 q(x^2), |x| <= 0.3475: relative error at most 2^-70.
inline constexpr double kCosh64[] = {
    0x1p-1, 0x1.5555555555558p-5, 0x1.6c16c16c14ff4p-10, 0x1.a01a01ad84fffp-16,
    0x1.27e4cbfbf3087p-22, 0x1.1f8c0a3fa8939p-29};

/// q of sin(x) = x + x^3 q(x^2), |x| <= 0.7855: relative error at most 2^-27.875.
inline constexpr double kSine32[] = {
    -0x1.555546p-3, 0x1.110778p-7, -0x1.9953fep-13};
/// q of sin(x) = x + x^3 q(x^2), |x| <= 0.7855: relative error at most 2^-57.8125.
inline constexpr double kSine64[] = {
    -0x1.5555555555548p-3, 0x1.111111110f75dp-7, -0x1.a01a019bf222ep-13, 0x1.71de355f05599p-19,
    -0x1.ae5e5471f55p-26, 0x1.5d8e3511cda68p-33};
/// q of cos(x) = 1 - x^2 / 2 + x^4 q(x^2), |x| <= 0.7855: relative error at most 2^-32.9375.
inline constexpr double kCosine32[] = {
    0x1.55554ap-5, -0x1.6c0c2ap-10, 0x1.99e91p-16};
/// q of cos(x) = 1 - x^2 / 2 + x^4 q(x^2), |x| <= 0.7855: relative error at most 2^-63.875.
inline constexpr double kCosine64[] = {
    0x1.555555555554bp-5, -0x1.6c16c16c15016p-10, 0x1.a01a019c8f3eep-16, -0x1.27e4f7f19d4b2p-22,
    0x1.1ee9dbd0d86a6p-29, -0x1.8fa681e385241p-37};

/// The bits of 1 / (2 pi). Number i has 24 bits from 2^(6 - 24 i) on, or 53 from 2^(21 - 53 i) on, times 2^(24 i) or
/// 2^(53 i).
inline constexpr double kTurns32[] = {
    0x1.45fp-3, 0x1.836e4ep6, 0x1.1054ap4, 0x1.fc2756p6,
    0x1.d1f534p6, 0x1.bb81b4p5, 0x1.629598p6, 0x1.3c439p6,
    0x1.07f94p4};
inline constexpr double kTurns64[] = {
    0x1.45f306dp-3, 0x1.9391054a7f09dp21, 0x1.7d1f534ddc0dap20, 0x1.6295993c43904p21,
    0x1.fe5163abdebb8p18, 0x1.1586dc91b8e9p21, 0x1.26e9700324977p21, 0x1.413a32439fc3ap20,
    0x1.d63962534e7ddp21, 0x1.046bea5d7689p18, 0x1.3a671c09ad178p18, 0x1.7e413991d6398p21,
    0x1.a99cfa4e422fcp19, 0x1.77bf250763ffp18, 0x1.2fffbc0b301fcp19, 0x1.e5e2316b414dap20,
    0x1.f6d367ecf27c8p18, 0x1.84dba7a31fb34p20, 0x1.e5fea2d7527bap20, 0x1.8fd7cbe2f67ap20,
    0x1.ce7de294a4ba8p20, 0x1.afed7ec47e357p21, 0x1.0856033046fc6p20};

/// q of atan(x) = x + x^3 q(x^2), |x| <= 0.5001: relative error at most 2^-31.6875.
inline constexpr double kAtan32[] = {
    -0x1.555552p-2, 0x1.999744p-3, -0x1.24502ep-3, 0x1.c0721ap-4,
    -0x1.480b66p-4, 0x1.3fce3p-5};
/// q of atan(x) = x + x^3 q(x^2), |x| <= 0.5001: relative error at most 2^-62.
inline constexpr double kAtan64[] = {
    -0x1.5555555555552p-2, 0x1.99999999990d9p-3, -0x1.249249245377p-3, 0x1.c71c71aaf4a48p-4,
    -0x1.745d138f956c5p-4, 0x1.3b1360b09c426p-4, -0x1.110c70ec7c237p-4, 0x1.e182d0dd52ca4p-5,
    -0x1.ac727ac187112p-5, 0x1.77fb252033dbbp-5, -0x1.301a412d450afp-5, 0x1.839f2dccfd99fp-6,
    -0x1.122f1ab6ce0e1p-7};
/// q of asin(x) = x + x^3 q(x^2), |x| <= 0.5001: relative error at most 2^-31.625.
inline constexpr double kAsin32[] = {
    0x1.55554cp-3, 0x1.3338ap-4, 0x1.6caa42p-5, 0x1.04b3c8p-5,
    0x1.d74498p-7, 0x1.33f1bep-5};
/// q of asin(x) = x + x^3 q(x^2), |x| <= 0.5001: relative error at most 2^-59.8125.
inline constexpr double kAsin64[] = {
    0x1.5555555555577p-3, 0x1.333333332e11p-4, 0x1.6db6db7214efbp-5, 0x1.f1c71a93b97e7p-6,
    0x1.6e8bdf08f8675p-6, 0x1.1c49ed23593fep-6, 0x1.ca1fe269ccf13p-7, 0x1.75829a8570e08p-7,
    0x1.614e1ad5dc1cfp-7, 0x1.e4dccfdbbff7dp-9, 0x1.63f635af33dp-6, -0x1.58825c4261037p-6,
    0x1.0b72060846711p-5};

/// q of (1 + x)^(-1/3) = q(x), |x| <= 0.33334: relative error at most 2^-17.375.
inline constexpr double kCubeRoot32[] = {
    0x1.00005ep0, -0x1.555b0ap-2, 0x1.c54756p-3, -0x1.5f151p-3,
    0x1.5162ep-3, -0x1.2ef81ep-3};
/// q of (1 + x)^(-1/3) = q(x), |x| <= 0.33334: relative error at most 2^-30.625.
inline constexpr double kCubeRoot64[] = {
    0x1.fffffffefa2d1p-1, -0x1.5555569393d7cp-2, 0x1.c71c7b5213f53p-3, -0x1.61f7f3fba42edp-3,
    0x1.26f713bd960fep-3, -0x1.fff6fb7c279dbp-4, 0x1.c784257809afep-4, -0x1.8de366acc638bp-4,
    0x1.683e3900bdc9fp-4, -0x1.cddb483ce59dap-4, 0x1.bf385a9595474p-4};

/// q of erf(x) = x + x q(x^2), |x| <= 1.0001: relative error at most 2^-29.3125.
inline constexpr double kErf32[] = {
    0x1.06eba8p-3, -0x1.81273ep-2, 0x1.ce2cf2p-4, -0x1.b7f88cp-6,
    0x1.54017p-8, -0x1.a3d7eap-11, 0x1.4916ep-14};
/// q of erf(x) = x + x q(x^2), |x| <= 1.0001: relative error at most 2^-56.3125.
inline constexpr double kErf64[] = {
    0x1.06eba8214db69p-3, -0x1.812746b0379fdp-2, 0x1.ce2f21a04360fp-4, -0x1.b82ce312ab099p-6,
    0x1.565bcd126d384p-8, -0x1.c02db4921a6fdp-11, 0x1.f9a3341efe975p-14, -0x1.f4d31d4e6224ep-17,
    0x1.b9ed6eb7c51a7p-20, -0x1.5f8e2da05836ep-23, 0x1.fc0be2b359b84p-27, -0x1.4525c7dbdab2p-30,
    0x1.25dda5449462bp-34};
/// q of erfc(x) = exp(-x^2) q(x - 2), 1 <= x <= 4: absolute error about 2^-27.0625, not proven.
inline constexpr double kErfc32[] = {
    0x1.05866cp-2, -0x1.b57198p-4, 0x1.56703ep-5, -0x1.fa095cp-7,
    0x1.66d86p-8, -0x1.e6e84ep-10, 0x1.07fae4p-11, -0x1.a8460ep-13,
    0x1.c0227ep-14};
/// q of erfc(x) = exp(-x^2) q(x - 2), 1 <= x <= 6: absolute error about 2^-58, not proven.
inline constexpr double kErfc64[] = {
    0x1.058671b52c774p-2, -0x1.b57034efd3f5ap-4, 0x1.5672b9ea147dp-5, -0x1.fa9d3ac95290ap-7,
    0x1.6490721536545p-8, -0x1.e028e8a8af954p-10, 0x1.369ffa21415a4p-11, -0x1.8382209216b9ep-13,
    0x1.d37b9fac8c4f4p-15, -0x1.115d1612a3d69p-16, 0x1.3697d140a330ep-18, -0x1.577522cff7267p-20,
    0x1.72406771fff23p-22, -0x1.85ec4acdfc9fdp-24, 0x1.918e42e07583fp-26, -0x1.91e5d924aa917p-28,
    0x1.875a0c43bec6fp-30, -0x1.86d47d3c65bc3p-32, 0x1.99aa4adf2822ap-34, -0x1.7746508bdd4cep-36,
    0x1.c0e4b5fd4e3adp-39, -0x1.e2298c5efe1fep-43};

}  // namespace srjit::functions
