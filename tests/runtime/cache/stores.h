// Disk stores in temporary folders, with the images of images.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "runtime/cache/disk_store.h"
#include "tests/runtime/cache/images.h"

namespace srjit {

inline constexpr std::uint64_t kStoreBudget = 1 << 30;

inline std::string fileIn(const Scratch& scratch) { return scratch.path(DiskStore::kFileName); }

inline std::unique_ptr<DiskStore> openIn(const Scratch& scratch, std::uint64_t bound = kStoreBudget) {
  auto store = DiskStore::open(scratch.path(""), bound);
  EXPECT_TRUE(store.ok()) << store.error().message;
  return std::move(*store);
}

inline bool put(DiskStore& store, std::uint64_t number, std::size_t bytes = 1000) {
  return store.write(keyNumber(number), imageNumber(number, bytes)).ok();
}

/// Whether the image exists and equals the written one.
inline bool has(DiskStore& store, std::uint64_t number, std::size_t bytes = 1000) {
  const auto read = store.read(keyNumber(number));
  return read.ok() && *read && sameImage(**read, imageNumber(number, bytes));
}

}  // namespace srjit
