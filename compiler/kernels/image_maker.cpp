#include "compiler/kernels/image_maker.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <llvm/Config/llvm-config.h>

#include "compiler/interpreter/kernel.h"
#include "compiler/kernels/assembler.h"
#include "compiler/kernels/key.h"
#include "compiler/nvptx/kernels.h"
#include "passes/pass.h"

namespace srjit {

/// Hash of the sources; the build makes it (compiler/CMakeLists.txt).
extern const char* const kSourceHash;

namespace {

/// Tells builds of an assembler apart that have one name; reading all of it would take too long.
std::string stampOfFile(const std::string& path) {
  std::error_code failure;
  const auto size = std::filesystem::file_size(path, failure);
  if (failure) return "none";
  const auto time = std::filesystem::last_write_time(path, failure).time_since_epoch();
  return fmt::format("{} {}", size, failure ? 0 : std::chrono::duration_cast<std::chrono::seconds>(time).count());
}

double threadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double wallSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class LlvmImageMaker final : public ImageMaker {
 public:
  explicit LlvmImageMaker(const std::string& listings) {
    std::error_code failure;  // without a working directory writeGraphListing() fails
    if (!listings.empty()) listings_ = std::filesystem::absolute(listings, failure).string();
    if (failure) listings_ = listings;
  }

  Result<KernelImage> rows(std::span<const Dag> dags, const DeviceOptions& options) const override {
    if (listings_.empty()) return make(options, [&] { return rowsPtx(dags, options); });
    const Result<GraphListing> listing = writeGraphListing(dags, listings_);
    if (!listing) return listing.error();
    return make(options, [&] { return rowsPtx(dags, options, listing->sources); });
  }
  Result<KernelImage> interpreter(const HandlerTable& table, const DeviceOptions& options) const override {
    return make(options, [&] { return interpreterPtx(table, options); });
  }
  Result<KernelImage> totals(const DeviceOptions& options) const override {
    return make(options, [&] { return totalsPtx(options); });
  }
  Result<KernelImage> lanes(const DeviceOptions& options) const override {
    return make(options, [&] { return lanesPtx(options); });
  }
  std::string identity() const override {
    return listings_.empty() ? compilerIdentity() : compilerIdentity() + ", listings in " + listings_;
  }

 private:
  static KernelImage asPtx(const std::string& ptx, double seconds) {
    const auto text = std::as_bytes(std::span(ptx.c_str(), ptx.size() + 1));
    return {.code = {text.begin(), text.end()}, .form = ImageForm::kPtx, .kernels = {}, .seconds = seconds};
  }

  template <class MakePtx>
  Result<KernelImage> make(const DeviceOptions& options, const MakePtx& makePtx) const {
    const double begin = threadSeconds();
    const Result<std::string> ptx = makePtx();
    if (!ptx) return ptx.error();
    const std::string& machine = options.machine.empty() ? options.arch : options.machine;
    // An assembler in a process of its own takes no time of this thread, which waits for it.
    const bool in_process = assemblerName().starts_with("nvJitLink");
    const double between = threadSeconds(), start = wallSeconds();
    Result<KernelImage> image =
        assemblerName().empty() ? Result<KernelImage>(Error{}) : assemble(*ptx, machine, !listings_.empty());
    // An assembler that is older than the device may lack its architecture; the device's driver supports it.
    if (!image && (assemblerName().empty() || machine != options.arch)) return asPtx(*ptx, threadSeconds() - begin);
    if (image) image->seconds = between - begin + (in_process ? threadSeconds() - between : wallSeconds() - start);
    return image;
  }

  std::string listings_;  ///< absolute, since the working directory may change; empty: none
};

}  // namespace

std::string buildIdentity() {
  return fmt::format("sr-jit {} {}; LLVM {} on {}", SRJIT_VERSION, kSourceHash, LLVM_VERSION_STRING, LLVM_HOST_TRIPLE);
}

std::string compilerIdentity() {
  static const std::string identity = [] {
    const Toolkit& toolkit = findToolkit();
    const bool links = assemblerName().starts_with("nvJitLink");
    return fmt::format("{}; assembler {} ({})", buildIdentity(), assemblerName(),
                       stampOfFile(links ? toolkit.nvjitlink : toolkit.ptxas));
  }();
  return identity;
}

std::unique_ptr<ImageMaker> llvmImageMaker(const std::string& listings) {
  return std::make_unique<LlvmImageMaker>(listings);
}

GraphListing listGraphs(std::span<const Dag> dags, std::string_view file) {
  GraphListing listing;
  unsigned line = 1;
  for (std::size_t i = 0; i < dags.size(); ++i) {
    listing.text += fmt::format("{}{}:\n", i == 0 ? "" : "\n", rowsKernelName(i));
    line += i == 0 ? 1 : 2;
    SourceMap& source = listing.sources.emplace_back(SourceMap{std::string(file), "", {}});
    for (NodeId id = 0; id < dags[i].size(); ++id) {
      const bool has_line = dags[i].node(id).kind == Token::Kind::kOp;
      source.places.push_back(has_line ? SourcePlace{line++, 1} : SourcePlace{});
    }
    listing.text += printDag(dags[i]);
    line += static_cast<unsigned>(dags[i].roots().size());
  }
  return listing;
}

namespace {

/// The file of a text in a directory.
std::filesystem::path fileOf(const std::string& text, const std::filesystem::path& directory) {
  const Digest digest = DigestBuilder().add(text).finish();
  std::string name;
  for (const std::uint8_t byte : std::span(digest).first(8)) name += fmt::format("{:02x}", byte);
  return directory / (name + ".txt");
}

/// Writes all of the text and closes the file.
std::error_code writeAndClose(int descriptor, std::string_view text) {
  std::error_code failure;
  while (!text.empty() && !failure) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written >= 0) text.remove_prefix(static_cast<std::size_t>(written));
    if (written < 0 && errno != EINTR) failure.assign(errno, std::generic_category());
  }
  if (close(descriptor) != 0 && !failure) failure.assign(errno, std::generic_category());
  return failure;
}

/// Writes a file that appears complete, or not at all.
std::error_code writeWhole(const std::filesystem::path& file, std::string_view text) {
  std::string part = file.string() + ".XXXXXX";
  const int descriptor = mkstemp(part.data());
  if (descriptor < 0) return {errno, std::generic_category()};
  std::error_code failure = writeAndClose(descriptor, text);
  if (!failure) std::filesystem::rename(part, file, failure);
  if (failure) unlink(part.c_str());
  return failure;
}

}  // namespace

Result<GraphListing> writeGraphListing(std::span<const Dag> dags, const std::filesystem::path& directory) {
  std::error_code failure;
  const std::filesystem::path place = std::filesystem::absolute(directory, failure);
  if (!failure) std::filesystem::create_directories(place, failure);
  const std::string text = listGraphs(dags, "").text;
  const std::filesystem::path file = fileOf(text, place);
  if (!failure && !std::filesystem::exists(file, failure) && !failure) failure = writeWhole(file, text);
  if (!failure) return listGraphs(dags, file.string());
  return Error{Errc::kIo, fmt::format("cannot write the listing {}: {}", file.string(), failure.message()), {}};
}

}  // namespace srjit
