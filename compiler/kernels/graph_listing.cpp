#include "compiler/kernels/graph_listing.h"

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "compiler/kernels/key.h"
#include "compiler/lowering/kernel_name.h"
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

Result<GraphListing> writeGraphListing(std::span<const Dag> dags, const fs::path& directory) {
  static std::atomic<unsigned> written = 0;
  const std::string text = listGraphs(dags, "").text;
  const Digest digest = DigestBuilder().add(text).finish();
  std::string name;
  for (const std::uint8_t byte : std::span(digest).first(8)) name += fmt::format("{:02x}", byte);
  std::error_code failure;
  fs::create_directories(directory, failure);
  const fs::path place = fs::absolute(directory), file = place / (name + ".txt");
  if (fs::exists(file)) return listGraphs(dags, file.string());
  const fs::path part = place / fmt::format(".{}-{}-{}.part", name, getpid(), written++);
  std::ofstream stream(part, std::ios::binary);
  stream << text;
  stream.close();
  if (stream) {
    fs::rename(part, file, failure);
    if (!failure) return listGraphs(dags, file.string());
  } else {
    failure = std::error_code(errno, std::generic_category());
  }
  std::error_code ignored;
  fs::remove(part, ignored);
  return Error{Errc::kIo, fmt::format("cannot write the listing {}: {}", file.string(), failure.message()), {}};
}

}  // namespace srjit
