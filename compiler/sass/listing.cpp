#include "compiler/sass/listing.h"

#include <map>

#include <fmt/format.h>

#include "compiler/sass/print.h"

namespace srjit::sass {
namespace {

/// Where the branch at `index` goes, as an instruction; nothing if it is none or leaves the code.
std::optional<std::size_t> targetOf(const std::optional<Instruction>& i, std::size_t index, std::size_t size) {
  if (!i || i->form != Form::kBra) return std::nullopt;
  const std::int64_t to = static_cast<std::int64_t>(index) + 1 +
                          static_cast<std::int32_t>(i->immediate) / static_cast<std::int64_t>(sizeof(Word));
  if (to < 0 || to >= static_cast<std::int64_t>(size)) return std::nullopt;
  return static_cast<std::size_t>(to);
}

std::map<std::size_t, std::string> labelsOf(std::span<const std::optional<Instruction>> code,
                                            std::span<const std::uint32_t> indirect_targets) {
  std::map<std::size_t, std::string> labels;
  for (std::size_t t = 0; t < indirect_targets.size(); ++t) {
    labels.emplace(indirect_targets[t], fmt::format(".T{}", t));
  }
  std::map<std::size_t, bool> targets;
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (const auto to = targetOf(code[i], i, code.size())) targets.emplace(*to, true);
  }
  std::size_t number = 0;
  for (const auto& [to, is_target] : targets) labels.emplace(to, fmt::format(".L{}", number++));
  return labels;
}

}  // namespace

std::vector<std::optional<Instruction>> decodeAll(std::span<const Word> words, unsigned architecture) {
  std::vector<std::optional<Instruction>> code;
  code.reserve(words.size());
  for (const Word& word : words) code.push_back(decode(word, architecture));
  return code;
}

std::string listing(const CubinKernel& kernel, unsigned architecture, std::span<const std::uint32_t> indirect_targets,
                    bool with_control) {
  const auto code = decodeAll(kernel.code, architecture);
  const auto labels = labelsOf(code, indirect_targets);
  std::size_t parameters = 0;
  for (const std::uint16_t bytes : kernel.parameter_bytes) parameters += bytes;
  std::string text =
      fmt::format("{}: sm_{}, {} registers, {} bytes of parameters at c[0x0][0x{:x}], {} instructions\n", kernel.name,
                  architecture, kernel.registers, parameters, kernel.parameter_base, code.size());
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (const auto label = labels.find(i); label != labels.end()) text += label->second + ":\n";
    text += fmt::format("  0x{:04x}  ", i * sizeof(Word));
    if (!code[i]) {
      text += fmt::format("0x{:016x} 0x{:016x}", kernel.code[i].low, kernel.code[i].high);
    } else {
      const auto to = targetOf(code[i], i, code.size());
      text += print(*code[i], with_control, to ? &labels.at(*to) : nullptr);
    }
    text += '\n';
  }
  return text;
}

Result<std::string> listing(std::span<const std::byte> image, bool with_control) {
  const auto contents = readCubin(image);
  if (!contents) return contents.error();
  std::string text;
  for (const CubinKernel& kernel : contents->kernels) text += listing(kernel, contents->architecture, {}, with_control);
  return text;
}

}  // namespace srjit::sass
