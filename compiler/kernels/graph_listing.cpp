#include "compiler/kernels/graph_listing.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "compiler/kernels/key.h"
#include "passes/pass.h"

namespace srjit {

namespace fs = std::filesystem;

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
fs::path fileOf(const std::string& text, const fs::path& directory) {
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
std::error_code writeWhole(const fs::path& file, std::string_view text) {
  std::string part = file.string() + ".XXXXXX";
  const int descriptor = mkstemp(part.data());
  if (descriptor < 0) return {errno, std::generic_category()};
  std::error_code failure = writeAndClose(descriptor, text);
  if (!failure) fs::rename(part, file, failure);
  if (failure) unlink(part.c_str());
  return failure;
}

}  // namespace

Result<GraphListing> writeGraphListing(std::span<const Dag> dags, const fs::path& directory) {
  std::error_code failure;
  const fs::path place = fs::absolute(directory, failure);
  if (!failure) fs::create_directories(place, failure);
  const std::string text = listGraphs(dags, "").text;
  const fs::path file = fileOf(text, place);
  if (!failure && !fs::exists(file, failure) && !failure) failure = writeWhole(file, text);
  if (!failure) return listGraphs(dags, file.string());
  return Error{Errc::kIo, fmt::format("cannot write the listing {}: {}", file.string(), failure.message()), {}};
}

}  // namespace srjit
