#include "compiler/kernels/graph_listing.h"

#include <system_error>

#include <fmt/format.h>
#include <llvm/Support/raw_ostream.h>

#include "compiler/kernels/key.h"
#include "compiler/lowering/llvm_scope.h"
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

/// Writes a file that appears complete, or not at all.
std::error_code writeWhole(const fs::path& file, const std::string& text) {
  return llvm::errorToErrorCode(llvm::writeToOutput(file.string(), [&](llvm::raw_ostream& out) -> llvm::Error {
    auto& stream = static_cast<llvm::raw_fd_ostream&>(out);
    stream << text;
    stream.flush();
    const std::error_code failure = stream.error();
    stream.clear_error();
    return llvm::errorCodeToError(failure);
  }));
}

}  // namespace

Result<GraphListing> writeGraphListing(std::span<const Dag> dags, const fs::path& directory) {
  const LlvmScope scope;
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
