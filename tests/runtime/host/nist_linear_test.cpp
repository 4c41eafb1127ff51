// NIST's Statistical Reference Datasets for linear regression (https://www.itl.nist.gov/div898/strd/lls/lls.shtml) that
// ordinary normal equations fail: Longley (J. W. Longley, J. Am. Stat. Assoc. 62, 1967), Wampler1 to Wampler5 (R. H.
// Wampler, J. Am. Stat. Assoc. 65, 1970) and Filip. Certified values are those of exact arithmetic.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "runtime/engine.h"
#include "tests/generators/graphs.h"

namespace srjit {
namespace {

struct LongleyRow {
  double y, x[6];
};
constexpr LongleyRow kLongley[] = {
    // employment; deflator, product, unemployed, armed forces, population, year
    {60323, {83.0, 234289, 2356, 1590, 107608, 1947}},  {61122, {88.5, 259426, 2325, 1456, 108632, 1948}},
    {60171, {88.2, 258054, 3682, 1616, 109773, 1949}},  {61187, {89.5, 284599, 3351, 1650, 110929, 1950}},
    {63221, {96.2, 328975, 2099, 3099, 112075, 1951}},  {63639, {98.1, 346999, 1932, 3594, 113270, 1952}},
    {64989, {99.0, 365385, 1870, 3547, 115094, 1953}},  {63761, {100.0, 363112, 3578, 3350, 116219, 1954}},
    {66019, {101.2, 397469, 2904, 3048, 117388, 1955}}, {67857, {104.6, 419180, 2822, 2857, 118734, 1956}},
    {68169, {108.4, 442769, 2936, 2798, 120445, 1957}}, {66513, {110.8, 444546, 4681, 2637, 121950, 1958}},
    {68655, {112.6, 482704, 3813, 2552, 123366, 1959}}, {69564, {114.2, 502601, 3931, 2514, 125368, 1960}},
    {69331, {115.7, 518173, 4806, 2572, 127852, 1961}}, {70551, {116.9, 554894, 4007, 2827, 130081, 1962}},
};

struct Point {
  double x, y;
};
constexpr Point kFilip[] = {
    {-6.860120914, 0.8116}, {-4.324130045, 0.9072}, {-4.358625055, 0.9052}, {-4.358426747, 0.9039},
    {-6.955852379, 0.8053}, {-6.661145254, 0.8377}, {-6.355462942, 0.8667}, {-6.118102026, 0.8809},
    {-7.115148017, 0.7975}, {-6.815308569, 0.8162}, {-6.519993057, 0.8515}, {-6.204119983, 0.8766},
    {-5.853871964, 0.8885}, {-6.109523091, 0.8859}, {-5.79832982, 0.8959},  {-5.482672118, 0.8913},
    {-5.171791386, 0.8959}, {-4.851705903, 0.8971}, {-4.517126416, 0.9021}, {-4.143573228, 0.909},
    {-3.709075441, 0.9139}, {-3.499489089, 0.9199}, {-6.300769497, 0.8692}, {-5.953504836, 0.8872},
    {-5.642065153, 0.89},   {-5.031376979, 0.891},  {-4.680685696, 0.8977}, {-4.329846955, 0.9035},
    {-3.928486195, 0.9078}, {-8.56735134, 0.7675},  {-8.363211311, 0.7705}, {-8.107682739, 0.7713},
    {-7.823908741, 0.7736}, {-7.522878745, 0.7775}, {-7.218819279, 0.7841}, {-6.920818754, 0.7971},
    {-6.628932138, 0.8329}, {-6.323946875, 0.8641}, {-5.991399828, 0.8804}, {-8.781464495, 0.7668},
    {-8.663140179, 0.7633}, {-8.473531488, 0.7678}, {-8.247337057, 0.7697}, {-7.971428747, 0.77},
    {-7.676129393, 0.7749}, {-7.352812702, 0.7796}, {-7.072065318, 0.7897}, {-6.774174009, 0.8131},
    {-6.478861916, 0.8498}, {-6.159517513, 0.8741}, {-6.835647144, 0.8061}, {-6.53165267, 0.846},
    {-6.224098421, 0.8751}, {-5.910094889, 0.8856}, {-5.598599459, 0.8919}, {-5.290645224, 0.8934},
    {-4.974284616, 0.894},  {-4.64454848, 0.8957},  {-4.290560426, 0.9047}, {-3.885055584, 0.9129},
    {-3.408378962, 0.9209}, {-3.13200249, 0.9219},  {-8.726767166, 0.7739}, {-8.66695597, 0.7681},
    {-8.511026475, 0.7665}, {-8.165388579, 0.7703}, {-7.886056648, 0.7702}, {-7.588043762, 0.7761},
    {-7.283412422, 0.7809}, {-6.995678626, 0.7961}, {-6.691862621, 0.8253}, {-6.392544977, 0.8602},
    {-6.067374056, 0.8809}, {-6.684029655, 0.8301}, {-6.378719832, 0.8664}, {-6.065855188, 0.8834},
    {-5.752272167, 0.8898}, {-5.132414673, 0.8964}, {-4.811352704, 0.8963}, {-4.098269308, 0.9074},
    {-3.66174277, 0.9119},  {-3.2644011, 0.9228},
};

struct Certified {
  std::vector<double> parameters, errors;
};

struct Problem {
  std::string expression;
  std::vector<std::vector<double>> columns;
  std::vector<double> target;
  Certified certified;
};

Problem longley() {
  Problem problem{"p0 + p1*x0 + p2*x1 + p3*x2 + p4*x3 + p5*x4 + p6*x5", std::vector<std::vector<double>>(6), {}, {}};
  for (const auto& [y, x] : kLongley) {
    problem.target.push_back(y);
    for (std::size_t i = 0; i < 6; ++i) problem.columns[i].push_back(x[i]);
  }
  problem.certified = {{-3482258.63459582, 15.0618722713733, -0.0358191792925910, -2.02022980381683, -1.03322686717359,
                        -0.0511041056535807, 1829.15146461355},
                       {890420.383607373, 84.9149257747669, 0.0334910077722432, 0.488399681651699, 0.214274163161675,
                        0.226073200069370, 455.478499142212}};
  return problem;
}

Problem filip() {
  Problem problem{polynomial(10), std::vector<std::vector<double>>(1), {}, {}};
  for (const auto& [x, y] : kFilip) {
    problem.columns[0].push_back(x);
    problem.target.push_back(y);
  }
  problem.certified = {
      {-1467.48961422980, -2772.17959193342, -2316.37108160893, -1127.97394098372, -354.478233703349, -75.1242017393757,
       -10.8753180355343, -1.06221498588947, -0.0670191154593408, -0.00246781078275479, -0.0000402962525080404},
      {298.084530995537, 559.779865474950, 466.477572127796, 227.204274477751, 71.6478660875927, 15.2897178747400,
       2.23691159816033, 0.221624321934227, 0.0142363763154724, 0.000535617408889821, 0.00000896632837373868}};
  return problem;
}

/// A polynomial of degree 5 at 0, ..., 20, with coefficients base^k, and `noise` times errors that are orthogonal to
/// all such polynomials.
Problem wampler(double base, double noise) {
  constexpr double kErrors[] = {759, -2048, 2048, -2048, 2523, -2048, 2048, -2048, 1838, -2048, 2048};
  Problem problem{polynomial(5), std::vector<std::vector<double>>(1), {}, {}};
  for (int row = 0; row <= 20; ++row) {
    double y = 0;
    for (int power = 5; power >= 0; --power) y = y * row + std::pow(base, power);
    problem.columns[0].push_back(row);
    problem.target.push_back(y + noise * kErrors[std::min(row, 20 - row)]);
  }
  for (int power = 0; power <= 5; ++power) problem.certified.parameters.push_back(std::pow(base, power));
  problem.certified.errors = {2152.32624678170, 2363.55173469681, 779.343524331583,
                              101.475507550350, 5.64566512170752, 0.112324854679312};
  for (double& error : problem.certified.errors) error *= noise;
  return problem;
}

/// The number of decimal digits in which all agree.
double digits(const std::vector<double>& got, const std::vector<double>& certified) {
  double least = 16;
  for (std::size_t i = 0; i < certified.size(); ++i) {
    const double error = std::fabs(got[i] - certified[i]) / std::fabs(certified[i]);
    least = std::isnan(error) ? 0 : std::min(least, -std::log10(std::max(error, 1e-16)));
  }
  return least;
}

void expectDigits(const char* name, const Problem& problem, double least, const FitOptions& options) {
  const Engine engine = Engine::create({.device = "cpu", .precision = Precision::kF64, .threads = 2}).value();
  DataView view;
  for (const std::vector<double>& column : problem.columns) view.columns.emplace_back(column);
  view.target = ColumnView(problem.target);
  const Program program = engine.compile(infixes({problem.expression}));
  const std::vector<double> zeros(problem.certified.parameters.size());
  const Fits fits = engine.fit(program, engine.upload(view).value(), zeros, options).value();
  EXPECT_EQ(fits.statuses[0], FitStatus::kConverged) << name;
  EXPECT_GE(digits(fits.parameters, problem.certified.parameters), least) << name;
  EXPECT_LE(fits.iterations[0], 10U) << name;
  if (problem.certified.errors[0] > 0) {
    EXPECT_GE(digits(fits.standard_errors, problem.certified.errors), least) << name;
  }
}

TEST(NistLinear, ParametersAndStandardErrorsHaveTheCertifiedDigits) {
  for (const FitOptions& options : {FitOptions(), FitOptions{.loss_tolerance = 1e-14}}) {
    expectDigits("Longley", longley(), 8, options);
    expectDigits("Filip", filip(), 6, options);
    expectDigits("Wampler1", wampler(1, 0), 8, options);
    expectDigits("Wampler2", wampler(0.1, 0), 8, options);
    expectDigits("Wampler3", wampler(1, 1), 8, options);
    expectDigits("Wampler4", wampler(1, 100), 8, options);
    expectDigits("Wampler5", wampler(1, 10000), 8, options);
  }
}

}  // namespace
}  // namespace srjit
