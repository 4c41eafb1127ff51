#include "runtime/cache/image_record.h"

#include <bit>
#include <utility>

#include <llvm/Support/xxhash.h>
#include <nlohmann/json.hpp>

namespace srjit {

std::string textOfFacts(const std::vector<KernelFacts>& kernels) {
  using nlohmann::json;
  json rows = json::array();
  for (const KernelFacts& facts : kernels) {
    rows.push_back({facts.name, facts.registers, facts.stack_bytes, facts.spill_store_bytes, facts.spill_load_bytes});
  }
  return rows.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<std::vector<KernelFacts>> factsIn(const std::string& text) {
  const nlohmann::json rows = nlohmann::json::parse(text, nullptr, false);
  if (!rows.is_array()) return std::nullopt;
  std::vector<KernelFacts> kernels;
  for (const nlohmann::json& row : rows) {
    if (!row.is_array() || row.size() != 5 || !row[0].is_string()) return std::nullopt;
    for (std::size_t i = 1; i < 5; ++i) {
      if (!row[i].is_number_unsigned()) return std::nullopt;
    }
    kernels.push_back({row[0].get<std::string>(), row[1].get<unsigned>(), row[2].get<unsigned>(),
                       row[3].get<unsigned>(), row[4].get<unsigned>()});
  }
  return kernels;
}

Digest checksumOf(const KernelKey& key, const KernelImage& image, std::string_view facts) {
  DigestBuilder digest;
  digest.add(std::as_bytes(std::span(key.digest)))
      .add(key.title)
      .add(image.is_ptx)
      .add(std::bit_cast<std::uint64_t>(image.seconds));
  // XXH3 of the code, since BLAKE3 would take as long as reading it, and damage is all that a checksum finds.
  const llvm::XXH128_hash_t code =
      llvm::xxh3_128bits(llvm::ArrayRef(reinterpret_cast<const std::uint8_t*>(image.code.data()), image.code.size()));
  return digest.add(facts).add(image.code.size()).add(code.low64).add(code.high64).finish();
}

bool ImageRecord::isSound() {
  if (checksumOf(key, image, facts) != checksum) return false;
  auto parsed = factsIn(facts);
  if (parsed) image.kernels = std::move(*parsed);
  return parsed.has_value();
}

}  // namespace srjit
