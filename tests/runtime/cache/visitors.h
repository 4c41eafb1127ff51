// Other processes that use a directory of kernels while a test does.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/runtime/cache/stores.h"

namespace srjit {

/// Child processes that write, read and check images of their own, and empty the file at times. Create it before the
/// test has threads. The destructor ends them, and so does the end of the process.
class CacheVisitors {
 public:
  explicit CacheVisitors(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      children_.push_back(startChild([this, i] { return visits(i); }));
    }
  }
  CacheVisitors(const CacheVisitors&) = delete;
  CacheVisitors& operator=(const CacheVisitors&) = delete;
  ~CacheVisitors() { end(); }

  std::string directory() const { return cache_.path(""); }

  /// Ends the visitors: none found an image that nobody wrote, and the file is sound.
  void expectSoundEnd() {
    for (const int status : end()) EXPECT_EQ(status, 0) << "a process that used the same file";
    const auto found = openIn(cache_)->verify();
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_FALSE(found->remade);
    EXPECT_TRUE(found->bad.empty());
  }

 private:
  static constexpr std::uint64_t kImages = 12;

  std::vector<int> end() {
    control_.write("end", "");
    std::vector<int> statuses;
    for (const pid_t child : children_) statuses.push_back(ended(child));
    children_.clear();
    return statuses;
  }

  /// The exit status of a visitor. A file that is busy for too long is no fault, if it can be opened at all.
  int visits(std::size_t visitor) const {
    Random random(visitor);
    bool has_opened = false;
    while (!std::filesystem::exists(control_.path("end")) && getppid() == parent_) {
      const auto store = DiskStore::open(directory(), kStoreBudget);
      if (!store) continue;
      has_opened = true;
      for (int i = 0; i < 10; ++i) {
        const std::uint64_t number = random.below(kImages);
        const auto read = (*store)->read(keyNumber(number));
        if (read && *read && !sameImage(**read, imageNumber(number, kBytes))) return 2;
        if (!read || !*read) put(**store, number, kBytes);
      }
      if ((*store)->damaged() != 0) return 3;
      if (random.below(8) == 0) static_cast<void>((*store)->clear());
      usleep(20'000);
    }
    return has_opened ? 0 : 1;
  }

  static constexpr std::size_t kBytes = 4'000;
  const Scratch cache_, control_;
  const pid_t parent_ = getpid();
  std::vector<pid_t> children_;
};

}  // namespace srjit
