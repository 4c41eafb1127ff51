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
inline constexpr double kThirdHigh32 = 0x1.555556p-2, kThirdLow32 = -0x1.555556p-27;
inline constexpr double kThirdHigh64 = 0x1.5555555555555p-2, kThirdLow64 = 0x1.5555555555555p-56;
inline constexpr double kLog10OfEHigh32 = 0x1.bcb7b2p-2, kLog10OfELow32 = -0x1.5b235ep-27;
inline constexpr double kLog10OfEHigh64 = 0x1.bcb7b1526e50ep-2, kLog10OfELow64 = 0x1.95355baaafad3p-57;

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

/// A factor that brings significands up to `end` near 1, and minus its logarithm to the base 2 as a sum.
struct Factor {
  double end, factor, high, low;
};
inline constexpr Factor kFactors32[] = {
    {0x1.c71c72p-1, 0x1.4p0, -0x1.49ap-2, -0x1.e12f34p-16},
    {0x1.24924ap0, 0x1p0, 0, 0},
    {0x1p1, 0x1.8p-1, 0x1.a9p-2, -0x1.a39fbep-20},
};
inline constexpr Factor kFactors64[] = {
    {0x1.861862p-1, 0x1.6p0, -0x1.d6753e032ep-2, -0x1.41dfc7d7c3321p-43},
    {0x1.af286cp-1, 0x1.4p0, -0x1.49a784bcd2p-2, 0x1.1d406db502403p-44},
    {0x1.e1e1e2p-1, 0x1.2p0, -0x1.5c01a39fbep-3, 0x1.2f0c0bfe9dbecp-44},
    {0x1.111112p0, 0x1p0, 0, 0},
    {0x1.3b13b2p0, 0x1.cp-1, 0x1.8a8980abfcp-3, -0x1.66cccab240e9p-46},
    {0x1p1, 0x1.8p-1, 0x1.a8ff97181p-2, 0x1.4bc302ffa76fbp-43},
};
/// q of log(1 + x) = x - x^2 / 2 + x^3 / 3 + x^4 q(x), |x| <= 0.167: relative error at most 2^-33.25.
inline constexpr double kPowerLog32[] = {
    -0x1.00002ep-2, 0x1.999a2cp-3, -0x1.5517c6p-3, 0x1.24444ap-3,
    -0x1.0ca3dep-3, 0x1.e1da02p-4};
/// q of log(1 + x) = x - x^2 / 2 + x^3 / 3 + x^4 q(x), |x| <= 0.084: relative error at most 2^-65.375.
inline constexpr double kPowerLog64[] = {
    -0x1.ffffffffffffap-3, 0x1.999999999a806p-3, -0x1.555555555892fp-3, 0x1.2492491ff7e47p-3,
    -0x1.ffffffecd08bfp-4, 0x1.c71c8332aea91p-4, -0x1.9999b4747facdp-4, 0x1.744d905ae8c3dp-4,
    -0x1.5541e5d185745p-4, 0x1.41aa4243ee073p-4, -0x1.2b9a89600ac2fp-4};

}  // namespace srjit::functions
