// A benchmark's report of skipped pieces.
#include <gtest/gtest.h>

#include "tools/bench/gpu_context.h"
#include "tools/bench/gpu_report.h"

namespace srjit {
namespace {

BenchContext contextOf(GpuReport& report, double seconds) {
  BenchContext context;
  context.seconds = seconds;
  context.report = &report;
  return context;
}

TEST(BenchContext, ReportsSkippedPieces) {
  GpuReport report({}, "");
  EXPECT_FALSE(contextOf(report, 0).mayBegin("compile", "300 nodes"));
  EXPECT_FALSE(contextOf(report, 0).mayBegin("compile", "1000 nodes"));
  EXPECT_EQ(report.newRows(), "not run        compile: 300 nodes, 1000 nodes: the 0 s were up\n");
  EXPECT_FALSE(report.hasFaults());
}

TEST(BenchContext, DoesNotReportStartedPieces) {
  GpuReport report({}, "");
  EXPECT_TRUE(contextOf(report, 1e6).mayBegin("compile", "300 nodes"));
  EXPECT_EQ(report.newRows(), "");
}

}  // namespace
}  // namespace srjit
