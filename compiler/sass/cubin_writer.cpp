#include "compiler/sass/cubin.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include <tbb/parallel_for.h>

#include "compiler/sass/cubin_format.h"
#include "compiler/target/architecture.h"
#include "ir/numbers/rounding.h"

namespace srjit {
namespace {

using namespace cubin;

constexpr std::uint32_t kApiVersion = 130;        // CUDA 13.0, whose format this is
constexpr std::uint16_t kMercuryVersion = 0x101;  // 1.1
constexpr std::size_t kCodeAlignment = 128, kFetchedAhead = 128;
constexpr std::uint32_t kParameterSpace = 0x1f000;  // in a parameter's record, below its size
constexpr unsigned kParameterSizeShift = 18;

// Attributes in .nv.compat sections, in the same formats. The names are strings of nvlink 13.0. No tool prints the
// numbers. Those of three names follow from what ptxas 13.0 writes: 3 changes with tensormap.replace, 7 has the version
// that EIATTR_MERCURY_ISA_VERSION has, 9 is 1 for sm_90a and sm_100a, else 0. The other numbers follow from the order
// of nvlink's strings, in which these three have their places. Number 11 is behind nvlink's last name.
enum : std::uint8_t {
  EICOMPAT_ATTR_ISA_CLASS = 0x02,
  EICOMPAT_ATTR_INST_TENSORMAP_V1 = 0x03,
  EICOMPAT_ATTR_INST_TCGEN05_MMA = 0x05,
  EICOMPAT_ATTR_ENABLE_OPPORTUNISTIC_FINALIZATION = 0x06,
  EICOMPAT_ATTR_MERCURY_ISA_MAJOR_MINOR_VERSION = 0x07,
  EICOMPAT_ATTR_CUDA_ACCELERATOR_TARGET = 0x09,
  kCompatArchitecture = 0x0b,  ///< Architecture::compatibility, and 0
};

/// A growable byte buffer.
class Bytes {
 public:
  template <class T>
  Bytes& add(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Bytes& add(std::string_view text) {
    bytes_.append(text);
    return *this;
  }
  /// A name with its final 0; returns where it begins.
  std::uint32_t addName(std::string_view name) {
    const auto at = static_cast<std::uint32_t>(bytes_.size());
    add(name).add('\0');
    return at;
  }
  void padTo(std::size_t size) { bytes_.resize(size); }

  // The identifier is one of EIATTR_*, or of EICOMPAT_ATTR_* in .nv.compat sections.
  void attribute(std::uint8_t identifier) { head(EIFMT_NVAL, identifier, 0); }
  void byteAttribute(std::uint8_t identifier, std::uint8_t value) { head(EIFMT_BVAL, identifier, value); }
  void halfAttribute(std::uint8_t identifier, std::uint16_t value) { head(EIFMT_HVAL, identifier, value); }
  template <class... T>
  void attributeOf(std::uint8_t identifier, const T&... values) {
    head(EIFMT_SVAL, identifier, static_cast<std::uint16_t>((sizeof(T) + ...)));
    (add(values), ...);
  }
  void attributeOfList(std::uint8_t identifier, std::span<const std::uint32_t> values) {
    head(EIFMT_SVAL, identifier, static_cast<std::uint16_t>(values.size_bytes()));
    for (const std::uint32_t value : values) add(value);
  }

  std::string_view bytes() const { return bytes_; }

 private:
  void head(std::uint8_t format, std::uint8_t identifier, std::uint16_t value) {
    add(format).add(identifier).add(value);
  }
  std::string bytes_;
};

/// A section; code is not in `content` but in `kernel`.
struct Section {
  std::string name;
  elf::Elf64_Shdr header = {};
  Bytes content;
  const KernelDescription* kernel = nullptr;
};

std::size_t codeWords(const KernelDescription& kernel) {
  std::size_t words = 0;
  for (const auto& piece : kernel.code) words += piece.size();
  return words;
}

std::size_t codeBytes(const KernelDescription& kernel) {
  return roundUp((codeWords(kernel) + 1) * sizeof(sass::Word) + kFetchedAhead, kCodeAlignment);
}

/// Where parameters begin: aligned to their sizes, structs to 8 bytes.
std::vector<std::uint16_t> offsetsOf(const std::vector<std::uint16_t>& sizes, std::uint16_t& end) {
  constexpr std::size_t kMaxAlignment = 8;
  std::vector<std::uint16_t> offsets;
  end = 0;
  for (const std::uint16_t size : sizes) {
    offsets.push_back(
        static_cast<std::uint16_t>(roundUp(end, std::min<std::size_t>(std::bit_ceil(size), kMaxAlignment))));
    end = static_cast<std::uint16_t>(offsets.back() + size);
  }
  return offsets;
}

/// Numbers sections and symbols, since they refer to one another.
class Plan {
 public:
  Plan(std::span<const KernelDescription> kernels, unsigned architecture)
      : kernels_(kernels), architecture_(architectureOf(architecture)) {
    const auto count = static_cast<std::uint32_t>(kernels.size());
    infos_ = architecture_.has_recent_layout ? 8 : 7;
    call_graph_ = infos_ + count;
    if (architecture_.has_recent_layout) {
      texts_ = call_graph_ + 1;
      reserved_ = texts_ + count;
      constants_ = reserved_ + 1;
    } else {
      constants_ = call_graph_ + 2;
      texts_ = constants_ + count;
    }
    first_global_ = 1 + 2 * count + 1;
    functions_ = first_global_ + (architecture_.has_recent_layout ? 2 : 0);
  }

  std::vector<Section> sections();

 private:
  static constexpr std::uint32_t kStringSection = 2, kSymbolSection = 3;

  std::uint32_t textSymbol(std::size_t kernel) const { return static_cast<std::uint32_t>(1 + 2 * kernel); }
  std::uint32_t constantSymbol(std::size_t kernel) const { return textSymbol(kernel) + 1; }
  std::uint32_t function(std::size_t kernel) const { return functions_ + static_cast<std::uint32_t>(kernel); }

  void add(std::string name, std::uint32_t type, std::uint64_t flags, std::uint32_t link, std::uint32_t info,
           std::uint64_t alignment, std::uint64_t entry_bytes, Bytes content) {
    Section section;
    section.name = std::move(name);
    section.header = {0, type, flags, 0, 0, content.bytes().size(), link, info, alignment, entry_bytes};
    section.content = std::move(content);
    sections_.push_back(std::move(section));
  }
  void addSymbols();
  static Bytes toolContent();
  Bytes noteContent() const;
  Bytes infoContent() const;
  Bytes compatibilityContent() const;
  Bytes kernelInfo(std::size_t kernel) const;
  void addTexts();
  void addConstants();

  std::span<const KernelDescription> kernels_;
  const Architecture& architecture_;
  std::uint32_t infos_ = 0, call_graph_ = 0, texts_ = 0, constants_ = 0, reserved_ = 0;
  std::uint32_t first_global_ = 0, functions_ = 0;
  std::vector<Section> sections_;
};

constexpr std::uint8_t symbolInfo(unsigned binding, unsigned type) {
  return static_cast<std::uint8_t>(binding << 4 | type);
}

void Plan::addSymbols() {
  Bytes names, symbols;
  names.addName("");
  symbols.add(elf::Elf64_Sym{});
  const auto sectionSymbol = [&](const std::string& name, std::size_t section) {
    symbols.add(elf::Elf64_Sym{names.addName(name), symbolInfo(elf::STB_LOCAL, elf::STT_SECTION), 0,
                               static_cast<std::uint16_t>(section), 0, 0});
  };
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    sectionSymbol(".text." + kernels_[k].name, texts_ + k);
    sectionSymbol(".nv.constant0." + kernels_[k].name, constants_ + k);
  }
  sectionSymbol(".nv.callgraph", call_graph_);
  if (architecture_.has_recent_layout) {
    const std::uint64_t offset = architecture_.reserved_bytes;
    symbols.add(elf::Elf64_Sym{names.addName(".nv.reservedSmem.offset0"), symbolInfo(elf::STB_WEAK, elf::STT_OBJECT), 0,
                               0, offset, sizeof(float)});
    symbols.add(elf::Elf64_Sym{names.addName("__nv_reservedSMEM_offset_0_alias"),
                               symbolInfo(elf::STB_WEAK, elf::STT_NOTYPE), kReservedShared,
                               static_cast<std::uint16_t>(reserved_), offset, 0});
  }
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    symbols.add(elf::Elf64_Sym{names.addName(kernels_[k].name), symbolInfo(elf::STB_GLOBAL, elf::STT_FUNC),
                               STO_CUDA_ENTRY, static_cast<std::uint16_t>(texts_ + k), 0, codeBytes(kernels_[k])});
  }
  add(".strtab", elf::SHT_STRTAB, 0, 0, 0, 1, 0, std::move(names));
  add(".symtab", elf::SHT_SYMTAB, 0, kStringSection, first_global_, 8, sizeof(elf::Elf64_Sym), std::move(symbols));
}

constexpr std::uint32_t kNoteNameBytes = 12;
constexpr std::string_view kNoteName("NVIDIA Corp\0", kNoteNameBytes);

// Which tool made the image: a version of the record, then where its strings begin. Drivers refuse images without it.
Bytes Plan::toolContent() {
  constexpr std::uint32_t kRecordVersion = 2;
  Bytes strings;
  std::array<std::uint32_t, 5> begins = {};
  std::size_t next = 0;
  for (const char* const text : {"", "sr-jit", "", "", ""}) begins[next++] = strings.addName(text);
  const auto bytes = static_cast<std::uint32_t>(sizeof kRecordVersion + sizeof begins + strings.bytes().size());
  Bytes note;
  note.add(kNoteNameBytes).add(static_cast<std::uint32_t>(roundUp(bytes, 4))).add(kTkInfoNote).add(kNoteName);
  note.add(kRecordVersion).add(begins).add(strings.bytes());
  note.padTo(roundUp(note.bytes().size(), 4));
  return note;
}

Bytes Plan::noteContent() const {
  constexpr std::uint32_t kContentBytes = 8;
  Bytes note;
  note.add(kNoteNameBytes).add(kContentBytes).add(kCuInfoNote).add(kNoteName);
  note.add(std::uint16_t{2}).add(static_cast<std::uint16_t>(architecture_.number)).add(kApiVersion);
  return note;
}

Bytes Plan::infoContent() const {
  Bytes info;
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    info.attributeOf(EIATTR_REGCOUNT, function(k), std::uint32_t{kernels_[k].registers});
    info.attributeOf(EIATTR_FRAME_SIZE, function(k), std::uint32_t{0});
    info.attributeOf(EIATTR_MIN_STACK_SIZE, function(k), std::uint32_t{0});
  }
  return info;
}

// What ptxas writes for code without tensor maps and tensor cores of the fifth generation.
Bytes Plan::compatibilityContent() const {
  Bytes content;
  content.byteAttribute(EICOMPAT_ATTR_CUDA_ACCELERATOR_TARGET, 0);
  content.byteAttribute(EICOMPAT_ATTR_ISA_CLASS, 1);
  content.byteAttribute(EICOMPAT_ATTR_INST_TCGEN05_MMA, 5);
  content.halfAttribute(EICOMPAT_ATTR_MERCURY_ISA_MAJOR_MINOR_VERSION, kMercuryVersion);
  content.byteAttribute(EICOMPAT_ATTR_INST_TENSORMAP_V1, 0);
  content.byteAttribute(EICOMPAT_ATTR_ENABLE_OPPORTUNISTIC_FINALIZATION, 1);
  content.attributeOf(kCompatArchitecture, architecture_.compatibility, std::uint32_t{0});
  return content;
}

Bytes Plan::kernelInfo(std::size_t k) const {
  const KernelDescription& kernel = kernels_[k];
  std::uint16_t bytes = 0;
  const std::vector<std::uint16_t> offsets = offsetsOf(kernel.parameter_bytes, bytes);
  const auto base = static_cast<std::uint16_t>(architecture_.parameters);
  Bytes info;
  info.attributeOf(EIATTR_CUDA_API_VERSION, kApiVersion);
  if (!architecture_.has_recent_layout) info.attribute(EIATTR_SW2861232_WAR);
  info.attributeOf(EIATTR_PARAM_CBANK, constantSymbol(k), base, bytes);
  info.halfAttribute(EIATTR_CBANK_PARAM_SIZE, bytes);
  for (std::size_t p = offsets.size(); p-- > 0;) {
    info.attributeOf(EIATTR_KPARAM_INFO, std::uint32_t{0}, static_cast<std::uint16_t>(p), offsets[p],
                     std::uint32_t{kernel.parameter_bytes[p]} << kParameterSizeShift | kParameterSpace);
  }
  if (architecture_.has_recent_layout) info.halfAttribute(EIATTR_SPARSE_MMA_MASK, 0);
  info.halfAttribute(EIATTR_MAXREG_COUNT, 255);
  info.halfAttribute(EIATTR_MERCURY_ISA_VERSION, architecture_.has_recent_layout ? kMercuryVersion : 0);
  if (architecture_.has_masks) info.byteAttribute(EIATTR_VRC_CTA_INIT_COUNT, 0);
  info.attributeOfList(EIATTR_EXIT_INSTR_OFFSETS, kernel.exits);
  if (kernel.max_threads[0] != 0) info.attributeOf(EIATTR_MAX_THREADS, kernel.max_threads);
  if (architecture_.has_recent_layout) info.attributeOf(EIATTR_SW_WAR, architecture_.workarounds);
  return info;
}

void Plan::addTexts() {
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    const std::uint32_t registers = architecture_.has_recent_layout ? 0 : kernels_[k].registers << 24;
    add(".text." + kernels_[k].name, elf::SHT_PROGBITS, elf::SHF_ALLOC | elf::SHF_EXECINSTR, kSymbolSection,
        function(k) | registers, kCodeAlignment, 0, {});
    sections_.back().kernel = &kernels_[k];
    sections_.back().header.sh_size = codeBytes(kernels_[k]);
  }
}

void Plan::addConstants() {
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    std::uint16_t bytes = 0;
    offsetsOf(kernels_[k].parameter_bytes, bytes);
    Bytes content;
    content.padTo(architecture_.parameters + bytes);
    add(".nv.constant0." + kernels_[k].name, elf::SHT_PROGBITS, elf::SHF_ALLOC | elf::SHF_INFO_LINK, 0,
        texts_ + static_cast<std::uint32_t>(k), 4, 0, std::move(content));
  }
}

std::vector<Section> Plan::sections() {
  sections_.emplace_back();
  add(".shstrtab", elf::SHT_STRTAB, 0, 0, 0, 1, 0, {});
  addSymbols();
  add(".note.nv.tkinfo", elf::SHT_NOTE, kTkInfoFlag, 0, 0, 4, 0, toolContent());
  add(".note.nv.cuinfo", elf::SHT_NOTE, kCuInfoFlag, 0, 0, 4, 0, noteContent());
  add(".nv.info", SHT_CUDA_INFO, 0, kSymbolSection, 0, 4, 0, infoContent());
  if (architecture_.has_recent_layout) add(".nv.compat", SHT_CUDA_COMPAT, 0, 0, 0, 4, 0, compatibilityContent());
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    add(".nv.info." + kernels_[k].name, SHT_CUDA_INFO, elf::SHF_INFO_LINK, kSymbolSection,
        texts_ + static_cast<std::uint32_t>(k), 4, 0, kernelInfo(k));
  }
  Bytes graph;
  for (std::int32_t end = -1; end >= -4; --end) graph.add(std::int32_t{0}).add(end);
  add(".nv.callgraph", SHT_CUDA_CALLGRAPH, 0, kSymbolSection, 0, 4, 8, std::move(graph));
  if (architecture_.has_recent_layout) {
    addTexts();
    add(".nv.shared.reserved.0", elf::SHT_NOBITS, elf::SHF_WRITE | elf::SHF_ALLOC, 0, 0, 1, 0, {});
    sections_.back().header.sh_size = architecture_.reserved_bytes;
    addConstants();
  } else {
    Bytes action;
    for (const std::uint64_t entry : kRelocationActions) action.add(entry);
    add(".nv.rel.action", SHT_CUDA_RELOCINFO, 0, 0, 0, 8, 8, std::move(action));
    addConstants();
    addTexts();
  }
  Bytes names;
  for (Section& section : sections_) section.header.sh_name = names.addName(section.name);
  sections_[1].header.sh_size = names.bytes().size();
  sections_[1].content = std::move(names);
  return std::move(sections_);
}

/// Assigns file offsets to all sections; returns the end of the last.
std::size_t placeSections(std::vector<Section>& sections) {
  std::size_t at = sizeof(elf::Elf64_Ehdr);
  for (Section& section : sections) {
    if (section.header.sh_type == elf::SHT_NULL) continue;
    at = roundUp(at, section.header.sh_addralign);
    section.header.sh_offset = at;
    if (section.header.sh_type != elf::SHT_NOBITS) at += section.header.sh_size;
  }
  return at;
}

/// The segments that the driver loads: since Hopper one for code, reserved shared memory and constants each.
std::vector<elf::Elf64_Phdr> segmentsOf(const std::vector<Section>& sections, bool recent, std::size_t headers_at) {
  const auto segment = [](std::uint32_t type, std::uint32_t flags, std::size_t begin, std::size_t end,
                          std::size_t memory) {
    return elf::Elf64_Phdr{type, flags, begin, 0, 0, end - begin, memory, 8};
  };
  const auto around = [&](std::uint32_t flags, auto belongs) {
    std::size_t begin = 0, end = 0;
    for (const Section& section : sections) {
      if (!belongs(section.header)) continue;
      if (end == 0) begin = section.header.sh_offset;
      end = section.header.sh_offset + section.header.sh_size;
    }
    return segment(elf::PT_LOAD, flags, begin, end, end - begin);
  };
  const std::size_t header_bytes = (recent ? 5 : 3) * sizeof(elf::Elf64_Phdr);
  std::uint32_t header_flags = elf::PF_R;
  if (!recent) header_flags |= elf::PF_X;
  const auto headers = segment(elf::PT_PHDR, header_flags, headers_at, headers_at + header_bytes, header_bytes);
  auto loaded_headers = headers;
  loaded_headers.p_type = elf::PT_LOAD;
  if (!recent) {
    return {headers,
            around(elf::PF_R | elf::PF_X, [](const elf::Elf64_Shdr& s) { return (s.sh_flags & elf::SHF_ALLOC) != 0; }),
            loaded_headers};
  }
  auto shared = around(elf::PF_R | elf::PF_W, [](const elf::Elf64_Shdr& s) { return s.sh_type == elf::SHT_NOBITS; });
  shared.p_filesz = 0;
  return {
      headers, loaded_headers,
      around(elf::PF_R | elf::PF_X, [](const elf::Elf64_Shdr& s) { return (s.sh_flags & elf::SHF_EXECINSTR) != 0; }),
      shared,
      around(elf::PF_R, [](const elf::Elf64_Shdr& s) { return s.sh_flags == (elf::SHF_ALLOC | elf::SHF_INFO_LINK); })};
}

elf::Elf64_Ehdr fileHeader(unsigned architecture, std::size_t sections_at, std::size_t sections, std::size_t segments) {
  elf::Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, elf::ElfMagic, elf::EI_CLASS);
  header.e_ident[elf::EI_CLASS] = elf::ELFCLASS64;
  header.e_ident[elf::EI_DATA] = elf::ELFDATA2LSB;
  header.e_ident[elf::EI_VERSION] = elf::EV_CURRENT;
  header.e_ident[elf::EI_OSABI] = kOsAbi;
  header.e_ident[elf::EI_ABIVERSION] = kAbiVersion;
  header.e_type = elf::ET_EXEC;
  header.e_machine = elf::EM_CUDA;
  header.e_version = elf::EV_CURRENT;
  header.e_phoff = sections_at + sections * sizeof(elf::Elf64_Shdr);
  header.e_shoff = sections_at;
  header.e_flags = 0x6000000 | architecture << kArchitectureShift | architectureOf(architecture).flags;
  header.e_ehsize = sizeof(elf::Elf64_Ehdr);
  header.e_phentsize = sizeof(elf::Elf64_Phdr);
  header.e_phnum = static_cast<std::uint16_t>(segments);
  header.e_shentsize = sizeof(elf::Elf64_Shdr);
  header.e_shnum = static_cast<std::uint16_t>(sections);
  header.e_shstrndx = 1;
  return header;
}

/// Fills an image of known size from its beginning to its end.
class ImageWriter {
 public:
  explicit ImageWriter(std::span<std::byte> image) : image_(image) {}

  template <class T>
  void put(const T& value) {
    putBytes(std::as_bytes(std::span(&value, 1)));
  }
  void putBytes(std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, image_.begin() + static_cast<std::ptrdiff_t>(at_));
    at_ += bytes.size();
  }
  /// Zeros up to there.
  void padTo(std::size_t offset) {
    std::fill(image_.begin() + static_cast<std::ptrdiff_t>(at_), image_.begin() + static_cast<std::ptrdiff_t>(offset),
              std::byte{0});
    at_ = offset;
  }
  /// All pieces, one behind the other; in parallel, since a population's code is as large as caches are.
  void putPieces(std::span<const std::span<const sass::Word>> pieces) {
    std::vector<std::size_t> offsets = {at_};
    for (const auto& piece : pieces) offsets.push_back(offsets.back() + piece.size_bytes());
    tbb::parallel_for(std::size_t{0}, pieces.size(), [&](std::size_t p) {
      std::ranges::copy(std::as_bytes(pieces[p]), image_.begin() + static_cast<std::ptrdiff_t>(offsets[p]));
    });
    at_ = offsets.back();
  }

 private:
  std::span<std::byte> image_;
  std::size_t at_ = 0;
};

// Code as it is, then a branch to itself, then NOPs.
void putCode(ImageWriter& image, const KernelDescription& kernel, unsigned architecture) {
  image.putPieces(kernel.code);
  sass::Instruction last;
  last.form = sass::Form::kBra;
  last.immediate = 0U - std::uint32_t{sizeof(sass::Word)};
  last.control.stall = 0;
  image.put(sass::encode(last, architecture));
  last.form = sass::Form::kNop;
  last.immediate = 0;
  const sass::Word nop = sass::encode(last, architecture);
  const std::size_t words = codeWords(kernel) + 1;
  for (std::size_t n = words * sizeof nop; n < codeBytes(kernel); n += sizeof nop) image.put(nop);
}

}  // namespace

std::vector<std::byte> writeCubin(std::span<const KernelDescription> kernels, unsigned architecture) {
  std::vector<std::byte> image;
  writeCubin(kernels, architecture, image);
  return image;
}

void writeCubin(std::span<const KernelDescription> kernels, unsigned architecture, std::vector<std::byte>& image) {
  std::vector<Section> sections = Plan(kernels, architecture).sections();
  const std::size_t sections_at = roundUp(placeSections(sections), 8);
  const bool recent = architectureOf(architecture).has_recent_layout;
  const std::vector<elf::Elf64_Phdr> segments =
      segmentsOf(sections, recent, sections_at + sections.size() * sizeof(elf::Elf64_Shdr));
  image.resize(sections_at + sections.size() * sizeof(elf::Elf64_Shdr) + segments.size() * sizeof(elf::Elf64_Phdr));
  ImageWriter writer(image);
  writer.put(fileHeader(architecture, sections_at, sections.size(), segments.size()));
  for (const Section& section : sections) {
    if (section.header.sh_type == elf::SHT_NULL || section.header.sh_type == elf::SHT_NOBITS) continue;
    writer.padTo(section.header.sh_offset);
    writer.putBytes(std::as_bytes(std::span(section.content.bytes())));
    if (section.kernel != nullptr) putCode(writer, *section.kernel, architecture);
  }
  writer.padTo(sections_at);
  for (const Section& section : sections) writer.put(section.header);
  for (const elf::Elf64_Phdr& segment : segments) writer.put(segment);
}

}  // namespace srjit
