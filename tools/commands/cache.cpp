#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "ir/text/lexer.h"
#include "runtime/cache/kernels.h"
#include "tools/commands.h"
#include "tools/options.h"
#include "tools/report.h"

namespace srjit {
namespace {

enum class CacheAction { kStats, kList, kVerify, kClear };

struct CacheCommand {
  CacheAction action = CacheAction::kStats;
  std::string directory;
  bool json = false;
};

/// As ISO 8601 has it, in UTC.
std::string timeText(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", parts);
}

/// By ImageForm.
constexpr const char* kForms[] = {"cubin", "ptx", "object"};

struct Usage {
  unsigned registers = 0;  ///< the most of all kernels
  unsigned spills = 0;     ///< bytes stored and loaded by all kernels
};

Usage usageOf(const StoredImage& image) {
  Usage usage;
  for (const KernelFacts& kernel : image.kernels) {
    usage.registers = std::max(usage.registers, kernel.registers);
    usage.spills += kernel.spill_store_bytes + kernel.spill_load_bytes;
  }
  return usage;
}

std::string statsText(const std::string& directory, const std::vector<StoredImage>& images, bool json) {
  std::uint64_t bytes = 0;
  double seconds = 0;
  for (const StoredImage& image : images) {
    bytes += image.bytes;
    seconds += image.seconds;
  }
  if (json) {
    return dump({{"directory", directory}, {"images", images.size()}, {"bytes", bytes}, {"seconds", seconds}});
  }
  return fmt::format(
      "directory  {}\nimages     {}\nbytes      {}\nseconds    {:.3f} of one core, that making them took\n",
      text::printable(directory), images.size(), bytes, seconds);
}

std::string listText(const std::vector<StoredImage>& images, bool json) {
  if (json) {
    Json list = Json::array();
    for (const StoredImage& image : images) {
      const Usage usage = usageOf(image);
      list.push_back({{"title", image.key.title},
                      {"bytes", image.bytes},
                      {"form", kForms[static_cast<std::size_t>(image.form)]},
                      {"kernels", image.kernels.size()},
                      {"registers", usage.registers},
                      {"spill_bytes", usage.spills},
                      {"seconds", image.seconds},
                      {"last_used", timeText(image.used)}});
    }
    return dump(list);
  }
  std::string text = fmt::format("{:>10} {:>9} {:>11} {:>8}  {:<20}  title\n", "bytes", "registers", "spill bytes",
                                 "seconds", "last used");
  for (const StoredImage& image : images) {
    const Usage usage = usageOf(image);
    text += fmt::format("{:>10} {:>9} {:>11} {:>8.3f}  {:<20}  {}{}\n", image.bytes, usage.registers, usage.spills,
                        image.seconds, timeText(image.used), text::printable(image.key.title),
                        image.form == ImageForm::kPtx ? " (PTX)" : "");
  }
  return text;
}

std::string verifyText(const StoreCheck& found, bool json) {
  // "file_remade" is from when all images were in one file; programs may read it.
  if (json) return dump({{"images", found.images}, {"bad", found.bad}, {"file_remade", false}});
  std::string text = fmt::format("{} images checked, {} bad and removed\n", found.images, found.bad.size());
  for (const std::string& title : found.bad) text += fmt::format("bad: {}\n", text::printable(title));
  return text;
}

std::string clearText(const std::string& directory, std::uint64_t bytes, bool json) {
  if (json) return dump({{"directory", directory}, {"removed_bytes", bytes}});
  return fmt::format("removed {} bytes from {}\n", bytes, text::printable(directory));
}

ExitStatus run(const CacheCommand& command) {
  const std::filesystem::path directory =
      command.directory.empty() ? cacheDirectory() : std::filesystem::path(command.directory);
  if (directory.empty()) {
    throwError(failure(Errc::kMachine, "there is no directory for a cache: {}; give --cache-dir", kNoCacheDirectory));
  }
  const bool looks = command.action == CacheAction::kStats || command.action == CacheAction::kList;
  const auto cache =
      KernelCache::open({.directory = directory, .access = looks ? StoreAccess::kLook : StoreAccess::kMend});
  const bool json = command.json;
  switch (command.action) {
    case CacheAction::kStats:
      return writeResults(statsText(directory.string(), cache->list().value(), json));
    case CacheAction::kList:
      return writeResults(listText(cache->list().value(), json));
    case CacheAction::kVerify:
      return writeResults(verifyText(cache->verify().value(), json));
    case CacheAction::kClear:
      return writeResults(clearText(directory.string(), cache->clear().value(), json));
  }
  return kDone;
}

}  // namespace

Runner defineCache(CLI::App& app) {
  auto command = std::make_shared<CacheCommand>();
  addChoice(app, "action", command->action,
            {{"stats", CacheAction::kStats},
             {"list", CacheAction::kList},
             {"verify", CacheAction::kVerify},
             {"clear", CacheAction::kClear}},
            "count the images; list them, the last used first; check all checksums and remove what is bad; remove all");
  app.add_option("--cache-dir", command->directory,
                 "the cache's directory; else $SRJIT_CACHE_DIR, $XDG_CACHE_HOME/sr-jit or ~/.cache/sr-jit")
      ->type_name("DIR");
  addJsonOption(app, command->json);
  app.footer(
      "Registers are the most of an image's kernels, spill bytes their sum; times are UTC.\n"
      "stats and list change nothing; verify and clear change a cache of sr-jit that no other user may write, and no\n"
      "other file. The exit status is 3 if the disk cannot be read or is not trusted, and 0 although images were bad.\n"
      "Examples:\n"
      "  sr-jit cache\n"
      "  sr-jit cache list --json\n"
      "  sr-jit cache verify --cache-dir /scratch/kernels\n"
      "  sr-jit cache clear");
  return [command] { return run(*command); };
}

}  // namespace srjit
