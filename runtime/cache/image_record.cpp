#include "runtime/cache/image_record.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <llvm/Support/xxhash.h>

#include "runtime/platform/json_text.h"

namespace srjit {

std::string textOfFacts(const std::vector<KernelFacts>& kernels) {
  std::string text = "[";
  for (const KernelFacts& facts : kernels) {
    text += fmt::format("{}[{},{},{},{},{}]", text.size() > 1 ? "," : "", quotedJson(facts.name), facts.registers,
                        facts.stack_bytes, facts.spill_store_bytes, facts.spill_load_bytes);
  }
  return text + "]";
}

std::optional<std::vector<KernelFacts>> factsIn(const std::string& text) {
  using Kind = JsonEvent::Kind;
  constexpr std::array kRow = {Kind::kBeginArray, Kind::kText,  Kind::kWhole, Kind::kWhole,
                               Kind::kWhole,      Kind::kWhole, Kind::kEnd};
  const std::optional<std::vector<JsonEvent>> events = readJson(text);
  if (!events || events->size() < 2 || events->front().kind != Kind::kBeginArray) return std::nullopt;
  std::span<const JsonEvent> rows = std::span(*events).subspan(1, events->size() - 2);
  std::vector<KernelFacts> kernels;
  for (; !rows.empty(); rows = rows.subspan(kRow.size())) {
    if (rows.size() < kRow.size() || !std::ranges::equal(rows.first(kRow.size()), kRow, {}, &JsonEvent::kind)) {
      return std::nullopt;
    }
    const auto number = [&](std::size_t i) { return static_cast<unsigned>(rows[i].whole); };
    kernels.push_back({rows[1].text, number(2), number(3), number(4), number(5)});
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
