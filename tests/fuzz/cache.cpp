// Decodes any bytes to an image and changes of its file in a kernel cache. Invariants: an image or a fact that is read
// is one that was written, else it is a miss or an error; afterwards the directory can be used.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
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

constexpr std::uint64_t kBound = 1 << 20;
const std::string kValue = "12.5";

/// In memory where there is such a folder.
std::string folder() {
  static const Scratch kScratch = [] {
    if (std::filesystem::is_directory("/dev/shm")) setenv("TMPDIR", "/dev/shm", 1);
    return Scratch();
  }();
  return kScratch.path("");
}

/// An image with names and numbers from the input.
KernelImage anyImage(ByteReader& bytes) {
  KernelImage image = imageNumber(bytes.byte(), bytes.byte());
  image.seconds = std::abs(bytes.number());
  if (!(image.seconds < 1e9)) image.seconds = 0;
  image.kernels.resize(bytes.below(3));
  for (KernelFacts& facts : image.kernels) {
    facts = {"", bytes.little<std::uint32_t>(), bytes.byte(), bytes.byte(), bytes.byte()};
    for (const std::uint8_t byte : bytes.take(bytes.below(16))) facts.name += static_cast<char>(byte);
  }
  return image;
}

/// Bytes of the head of the file or of all, runs of bytes, a new length.
void change(std::string& content, ByteReader& bytes) {
  const std::uint8_t kind = bytes.byte();
  const std::size_t at = bytes.little<std::uint32_t>() % content.size();
  if (kind % 8 < 3) {
    content[kind % 8 == 0 ? at % 100 % content.size() : at] = static_cast<char>(bytes.byte());
  } else if (kind % 8 < 5) {
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

void rewrite(const std::string& path, ByteReader& bytes) {
  std::string content = contentOf(path);
  require(!content.empty(), "a file is written");
  for (unsigned i = bytes.below(5); i > 0 && content.size() > 1; --i) change(content, bytes);
  const int descriptor = open(path.c_str(), O_WRONLY | O_TRUNC);
  require(write(descriptor, content.data(), content.size()) == static_cast<ssize_t>(content.size()),
          "the file is written");
  close(descriptor);
}

void checkStore(const KernelImage& image, bool verifies) {
  const auto store = DiskStore::open(folder(), kBound).value();
  const auto check = [&](std::uint64_t number, const KernelImage& written) {
    const auto read = store->read(keyNumber(number));
    require(read.ok() || !read.error().message.empty(), "an error says why");
    if (read && *read) require(sameImage(**read, written), "an image that is read was written");
  };
  if (verifies) {
    const auto checked = store->verify();
    if (checked) require(checked->bad.size() <= checked->images && checked->images <= 1, "there is one image");
  }
  check(0, image);
  const auto fact = store->readFact("speed");
  if (fact && *fact) require(**fact == kValue, "a fact that is read was written");
  const auto listed = store->list();
  if (listed) require(listed->size() <= 1, "there is one image");
  const KernelImage other = imageNumber(7, 300);
  require(store->write(keyNumber(7), other).ok(), "an image is written");
  check(7, other);
  const auto cleared = store->clear();
  if (cleared) require(store->list().value().empty(), "a cleared store is empty");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ByteReader bytes(data, size);
  const std::uint8_t options = bytes.byte();
  for (const auto& entry : std::filesystem::directory_iterator(folder())) std::filesystem::remove(entry.path());
  const KernelImage image = anyImage(bytes);
  {
    const auto store = DiskStore::open(folder(), kBound).value();
    require(store->write(keyNumber(0), image).ok(), "images are written");
    require(store->writeFact("speed", kValue).ok(), "facts are written");
    const auto read = store->read(keyNumber(0));
    require(read && *read && sameImage(**read, image), "an image reads back");
  }
  rewrite(folder() + "/" + imageFile(0), bytes);
  rewrite(folder() + "/" + factFile("speed"), bytes);
  checkStore(image, options % 4 == 0);
  return 0;
}
