// sr-jit-bench: every benchmark of this folder; --benchmark_filter=REGEX picks some.
#include <benchmark/benchmark.h>

BENCHMARK_MAIN();
