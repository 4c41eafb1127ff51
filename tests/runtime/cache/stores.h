// Disk stores in temporary folders, with the images of images.h.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

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

/// The file of an image.
inline std::string fileIn(const Scratch& scratch, std::uint64_t number) { return scratch.path(imageFile(number)); }

/// Sets the time of the last use of a file: seconds since 1970.
inline void setUsed(const std::string& path, std::int64_t seconds) {
  const timespec times[2] = {{.tv_sec = seconds, .tv_nsec = 0}, {.tv_sec = seconds, .tv_nsec = 0}};
  EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0) << path;
}

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
