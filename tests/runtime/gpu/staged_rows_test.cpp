// Rows of streamed data on a model of a GPU: how their buffers become free again.
#include <gtest/gtest.h>

#include "runtime/gpu/data.h"
#include "tests/gpu_model/device_engine.h"

namespace srjit {
namespace {

/// A data set that is streamed in chunks of kChunkQuantum rows.
struct StreamedData {
  StreamedData() {
    DataView view;
    view.columns.emplace_back(column);
    state = Dataset::State::create(view, Precision::kF32).value();
    data = std::make_shared<DeviceData>(queue, *state, 1);
  }
  std::size_t records() const { return machine.driver.count("cuEventRecord"); }

  FakeMachine machine;
  std::shared_ptr<const Cuda> cuda = Cuda::open(machine.driver.load().value(), 0).value();
  CurrentContext current{*cuda};
  std::shared_ptr<DeviceQueue> queue = std::make_shared<DeviceQueue>(cuda);
  std::vector<float> column = std::vector<float>(3 * kChunkQuantum, 1.0F);
  std::shared_ptr<Dataset::State> state;
  std::shared_ptr<DeviceData> data;
};

TEST(StagedRows, AreFreeAfterTheWorkThatUsesThem) {
  StreamedData streamed;
  ASSERT_TRUE(streamed.data->isStreamed());
  ASSERT_EQ(streamed.data->chunkRows(), kChunkQuantum);
  const QueueLock lock(*streamed.queue);
  streamed.machine.driver.forgetCalls();
  streamed.data->withRows(lock, 0, kChunkQuantum, [&](const DeviceRows& rows) {
    EXPECT_EQ(rows.rows, kChunkQuantum);
    EXPECT_EQ(streamed.records(), 1U) << "the copy";
  });
  EXPECT_EQ(streamed.records(), 2U);
  EXPECT_EQ(streamed.machine.driver.count("cuStreamSynchronize"), 0U);
}

TEST(StagedRows, WaitForTheStreamAfterAFailure) {
  StreamedData streamed;
  const QueueLock lock(*streamed.queue);
  streamed.machine.driver.forgetCalls();
  streamed.machine.driver.failAt("cuEventRecord", 2, CUDA_ERROR_OUT_OF_MEMORY);  // after that of the copy
  EXPECT_THROW(streamed.data->withRows(lock, 0, kChunkQuantum, [](const DeviceRows&) {}), CudaFailure);
  EXPECT_EQ(streamed.machine.driver.count("cuStreamSynchronize"), 1U);
  const auto fail = [](const DeviceRows&) { throw std::bad_alloc(); };
  EXPECT_THROW(streamed.data->withRows(lock, 0, kChunkQuantum, fail), std::bad_alloc);
  EXPECT_EQ(streamed.machine.driver.count("cuStreamSynchronize"), 2U);
}

TEST(StagedRows, OfResidentDataAreNotRecorded) {
  StreamedData streamed;
  DataView view;
  view.columns.emplace_back(streamed.column);
  const auto state = Dataset::State::create(view, Precision::kF32).value();
  DeviceData resident(streamed.queue, *state, SIZE_MAX);
  ASSERT_FALSE(resident.isStreamed());
  const QueueLock lock(*streamed.queue);
  streamed.machine.driver.forgetCalls();
  resident.withRows(lock, 4, 8, [&](const DeviceRows& rows) {
    EXPECT_EQ(rows.columns, resident.layout().columns + 4 * sizeof(float));
  });
  EXPECT_EQ(streamed.records(), 0U);
}

}  // namespace
}  // namespace srjit
