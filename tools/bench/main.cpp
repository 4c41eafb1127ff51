// sr-jit-bench: every benchmark of this folder; --benchmark_filter=REGEX picks some.
#include <benchmark/benchmark.h>

#include "tools/report.h"
#include "tools/streams.h"

int main(int argc, char** argv) {
  return srjit::runMain([&] {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return srjit::kWrongUsage;
    const std::size_t matched = benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    if (matched > 0) return srjit::kDone;
    // Google Benchmark reports a bad regular expression but does not fail.
    srjit::tell("sr-jit: the filter matches no benchmark; sr-jit bench --list names them\n");
    return srjit::kWrongUsage;
  });
}
