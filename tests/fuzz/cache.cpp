// Decodes any bytes to changes of a kernel cache's file. Invariants: an image that is read is one that was written,
// else it is a miss or an error; afterwards the file can be used.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cache/disk_store.h"
#include "tests/fuzz/harness/bytes.h"
#include "tests/generators/scratch.h"
#include "tests/runtime/cache/images.h"

namespace {

using namespace srjit;
using fuzz::ByteReader;
using fuzz::require;

constexpr std::uint64_t kImages = 3, kBound = 1 << 20;
constexpr std::size_t kCodeBytes = 300;

/// In memory where there is such a folder.
std::string folder() {
  static const Scratch kScratch = [] {
    if (std::filesystem::is_directory("/dev/shm")) setenv("TMPDIR", "/dev/shm", 1);
    return Scratch();
  }();
  return kScratch.path("");
}
std::string file() { return folder() + "/" + DiskStore::kFileName; }

std::vector<char> soundFile() {
  {
    const auto store = DiskStore::open(folder(), kBound).value();
    for (std::uint64_t i = 0; i < kImages; ++i) {
      require(store->write(keyNumber(i), imageNumber(i, kCodeBytes)).ok(), "images are written");
    }
    require(store->writeFact("speed", "12.5").ok(), "facts are written");
  }
  std::ifstream stream(file(), std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

/// Bytes of the head of the file or of a page, runs of bytes, a new length, or another file altogether.
void change(std::vector<char>& content, ByteReader& bytes) {
  const std::uint8_t kind = bytes.byte();
  const std::size_t at = bytes.little<std::uint32_t>() % content.size();
  if (kind % 8 < 3) {
    content[kind % 8 == 0 ? at % 100 : at] = static_cast<char>(bytes.byte());
  } else if (kind % 8 == 3) {
    content[at / 1024 * 1024 + bytes.below(16)] = static_cast<char>(bytes.byte());
  } else if (kind % 8 == 4) {
    content[at] = static_cast<char>(content[at] ^ (1 << bytes.below(8)));
  } else if (kind % 8 == 5) {
    const auto run = bytes.take(bytes.byte());
    for (std::size_t i = 0; i < run.size() && at + i < content.size(); ++i) content[at + i] = static_cast<char>(run[i]);
  } else if (kind % 8 == 6) {
    const std::size_t from = bytes.little<std::uint32_t>() % content.size(), size = 1U << bytes.below(11);
    for (std::size_t i = 0; i < size && std::max(at, from) + i < content.size(); ++i)
      content[at + i] = content[from + i];
  } else if (kind >= 224) {
    content.resize(1 + at);
  }
}

void checkStore(bool verifies) {
  auto opened = DiskStore::open(folder(), kBound);
  if (!opened) {
    require(opened.error().code == Errc::kMachine && !opened.error().message.empty(), "an error says why");
    return;
  }
  DiskStore& store = **opened;
  for (std::uint64_t i = 0; i < kImages; ++i) {
    const auto read = store.read(keyNumber(i));
    if (read && *read) require(sameImage(**read, imageNumber(i, kCodeBytes)), "an image that is read was written");
  }
  const auto fact = store.readFact("speed");
  if (fact && *fact) require(**fact == "12.5", "a fact that is read was written");
  const auto listed = store.list();
  const auto totals = store.totals();
  if (verifies) {
    const auto checked = store.verify();
    if (checked) require(checked->bad.size() <= std::max<std::size_t>(checked->images, 64), "bad images are among all");
  }
  const Status written = store.write(keyNumber(7), imageNumber(7, kCodeBytes));
  if (!written) return;
  const auto again = store.read(keyNumber(7));
  if (again && *again) require(sameImage(**again, imageNumber(7, kCodeBytes)), "an image that is read was written");
  const auto cleared = store.clear();
  if (cleared) require(store.list().value().empty(), "a cleared store is empty");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<char> kSound = soundFile();
  ByteReader bytes(data, size);
  const std::uint8_t options = bytes.byte();
  std::vector<char> content = kSound;
  while (!bytes.isEmpty() && content.size() > 1) change(content, bytes);
  for (const char* const beside : {"-wal", "-shm", "-journal"}) std::filesystem::remove(file() + beside);
  const int descriptor = open(file().c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const auto written = write(descriptor, content.data(), content.size());
  require(written == static_cast<ssize_t>(content.size()), "the file is written");
  close(descriptor);
  checkStore(options % 4 == 0);
  return 0;
}
