#include "compiler/sass/cubin.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "compiler/sass/cubin_format.h"

namespace srjit {
namespace {

using namespace cubin;

/// Bytes of an image that may be cut anywhere.
class Image {
 public:
  explicit Image(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  std::optional<T> at(std::uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  std::span<const std::byte> part(std::uint64_t offset, std::uint64_t size) const {
    if (offset > bytes_.size() || bytes_.size() - offset < size) return {};
    return bytes_.subspan(offset, size);
  }
  std::size_t size() const { return bytes_.size(); }
  /// The text from `offset` to the next 0.
  std::string_view name(std::uint64_t offset) const {
    const auto rest = part(offset, bytes_.size() - std::min<std::uint64_t>(offset, bytes_.size()));
    const auto end = std::ranges::find(rest, std::byte{});
    return {reinterpret_cast<const char*>(rest.data()), static_cast<std::size_t>(end - rest.begin())};
  }

 private:
  std::span<const std::byte> bytes_;
};

struct NamedSection {
  std::string_view name;
  elf::Elf64_Shdr header;
};

/// Calls `use(attribute, value)` for every record of an .nv.info section; `value` views the bytes after its head, or
/// the two bytes of the head that are the value.
template <class Use>
void forEachAttribute(std::span<const std::byte> info, Use use) {
  constexpr std::size_t kHead = 4;
  for (std::size_t at = 0; at + kHead <= info.size();) {
    const auto format = static_cast<std::uint8_t>(info[at]);
    const auto attribute = static_cast<std::uint8_t>(info[at + 1]);
    if (format != EIFMT_SVAL) {
      use(attribute, Image(info.subspan(at + 2, 2)));
      at += kHead;
      continue;
    }
    std::uint16_t size = 0;
    std::memcpy(&size, info.data() + at + 2, sizeof size);
    if (info.size() - at - kHead < size) return;
    use(attribute, Image(info.subspan(at + kHead, size)));
    at += kHead + size;
  }
}

void readKernelInfo(std::span<const std::byte> info, CubinKernel& kernel) {
  constexpr unsigned kSizeShift = 18;
  // A kernel has at most 32,764 bytes of parameters (PTX ISA, ".param"), most of 4 bytes or more.
  constexpr std::size_t kMostParameters = 8192;
  forEachAttribute(info, [&](std::uint8_t attribute, const Image& value) {
    if (attribute == EIATTR_PARAM_CBANK) {
      kernel.parameter_base = value.at<std::uint16_t>(4).value_or(0);
    } else if (attribute == EIATTR_KPARAM_INFO) {
      const std::size_t number = value.at<std::uint16_t>(4).value_or(0);
      if (number >= kMostParameters) return;
      if (number >= kernel.parameter_bytes.size()) kernel.parameter_bytes.resize(number + 1);
      kernel.parameter_bytes[number] = static_cast<std::uint16_t>(value.at<std::uint32_t>(8).value_or(0) >> kSizeShift);
    } else if (attribute == EIATTR_EXIT_INSTR_OFFSETS) {
      for (std::size_t at = 0; const auto exit = value.at<std::uint32_t>(at); at += sizeof *exit) {
        kernel.exits.push_back(*exit);
      }
    } else if (attribute == EIATTR_MAX_THREADS) {
      kernel.max_threads = value.at<std::array<std::uint32_t, 3>>(0).value_or(std::array<std::uint32_t, 3>{});
    }
  });
}

Error damaged(std::string_view what) { return Error{Errc::kCompile, fmt::format("not a cubin: {}", what), {}}; }

/// Sections with nothing in the image have the size 0. The others do not overlap, so all reads together are no larger
/// than the image.
Result<std::vector<NamedSection>> sectionsOf(const Image& image, const elf::Elf64_Ehdr& header) {
  std::vector<NamedSection> sections;
  std::uint64_t bytes = 0;
  const auto names =
      image.at<elf::Elf64_Shdr>(header.e_shoff + std::uint64_t{header.e_shstrndx} * sizeof(elf::Elf64_Shdr));
  if (!names) return damaged("no section names");
  for (std::size_t s = 0; s < header.e_shnum; ++s) {
    auto section = image.at<elf::Elf64_Shdr>(header.e_shoff + s * sizeof(elf::Elf64_Shdr));
    if (!section) return damaged("the section headers are truncated");
    if (section->sh_type == elf::SHT_NOBITS || section->sh_type == elf::SHT_NULL) section->sh_size = 0;
    if (section->sh_size != 0 && image.part(section->sh_offset, section->sh_size).empty()) {
      return damaged(fmt::format("section {} is truncated", s));
    }
    bytes += section->sh_size;
    if (bytes > image.size()) return damaged("its sections overlap");
    sections.push_back({image.name(names->sh_offset + section->sh_name), *section});
  }
  return sections;
}

/// The registers of each function symbol, by the section that it is in.
void readRegisters(const Image& image, std::span<const NamedSection> sections, std::span<CubinKernel> kernels,
                   std::span<const std::size_t> kernel_sections) {
  for (const NamedSection& info : sections) {
    if (info.name != ".nv.info" || info.header.sh_link >= sections.size()) continue;
    const elf::Elf64_Shdr& symbols = sections[info.header.sh_link].header;
    forEachAttribute(image.part(info.header.sh_offset, info.header.sh_size), [&](std::uint8_t attribute,
                                                                                 const Image& value) {
      if (attribute != EIATTR_REGCOUNT) return;
      const auto symbol =
          image.at<elf::Elf64_Sym>(symbols.sh_offset + value.at<std::uint32_t>(0).value_or(0) * sizeof(elf::Elf64_Sym));
      if (!symbol) return;
      const auto found = std::ranges::find(kernel_sections, std::size_t{symbol->st_shndx});
      if (found == kernel_sections.end()) return;
      kernels[static_cast<std::size_t>(found - kernel_sections.begin())].registers =
          value.at<std::uint32_t>(4).value_or(0);
    });
  }
}

}  // namespace

std::span<const sass::Word> CubinKernel::body() const {
  constexpr std::uint64_t kNop = 0x918, kBranch = 0x947, kOpcode = 0xfff;
  std::size_t end = code.size();
  while (end > 0 && (code[end - 1].low & kOpcode) == kNop) --end;
  if (end > 0 && (code[end - 1].low & kOpcode) == kBranch) --end;
  return std::span(code).first(end);
}

Result<CubinContents> readCubin(std::span<const std::byte> bytes) {
  const Image image(bytes);
  const auto header = image.at<elf::Elf64_Ehdr>(0);
  if (!header || !header->checkMagic() || header->getFileClass() != elf::ELFCLASS64 ||
      header->getDataEncoding() != elf::ELFDATA2LSB || header->e_machine != elf::EM_CUDA) {
    return damaged("bad ELF header");
  }
  auto sections = sectionsOf(image, *header);
  if (!sections) return std::move(sections).error();
  CubinContents contents;
  contents.architecture =
      (header->e_ident[elf::EI_ABIVERSION] >= kAbiVersion ? header->e_flags >> kArchitectureShift : header->e_flags) &
      elf::EF_CUDA_SM;
  std::vector<std::size_t> kernel_sections;
  constexpr std::string_view kText = ".text.", kConstants = ".nv.constant0.", kInfos = ".nv.info.";
  for (std::size_t s = 0; s < sections->size(); ++s) {
    const NamedSection& section = (*sections)[s];
    if (!section.name.starts_with(kText)) continue;
    CubinKernel& kernel = contents.kernels.emplace_back();
    kernel_sections.push_back(s);
    kernel.name = section.name.substr(kText.size());
    kernel.code.resize(section.header.sh_size / sizeof(sass::Word));
    const auto code = image.part(section.header.sh_offset, kernel.code.size() * sizeof(sass::Word));
    if (!code.empty()) std::memcpy(kernel.code.data(), code.data(), code.size());
    for (const NamedSection& other : *sections) {
      const auto content = image.part(other.header.sh_offset, other.header.sh_size);
      if (other.name.starts_with(kInfos) && other.name.substr(kInfos.size()) == kernel.name) {
        readKernelInfo(content, kernel);
      } else if (other.name.starts_with(kConstants) && other.name.substr(kConstants.size()) == kernel.name) {
        kernel.constants = content;
      }
    }
  }
  readRegisters(image, *sections, contents.kernels, kernel_sections);
  return contents;
}

}  // namespace srjit
