#include "compiler/sass/cubin_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include <tbb/parallel_for.h>

#include "compiler/sass/cubin_format.h"
#include "compiler/target/architecture.h"
#include "ir/rounding.h"

namespace srjit {
namespace {

using namespace cubin;

constexpr std::uint32_t kApiVersion = 130;  // CUDA 13.0, whose format this is
constexpr std::size_t kCodeAlignment = 128, kFetchedAhead = 128;
constexpr std::uint32_t kParameterSpace = 0x1f000;  // in a parameter's record, below its size
constexpr unsigned kParameterSizeShift = 18;

/// Bytes that grow.
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

  void attribute(Attribute identifier) { head(AttributeFormat::kNone, identifier, 0); }
  void byteAttribute(Attribute identifier, std::uint8_t value) { head(AttributeFormat::kByte, identifier, value); }
  void halfAttribute(Attribute identifier, std::uint16_t value) { head(AttributeFormat::kHalf, identifier, value); }
  template <class... T>
  void attributeOf(Attribute identifier, const T&... values) {
    head(AttributeFormat::kSized, identifier, static_cast<std::uint16_t>((sizeof(T) + ...)));
    (add(values), ...);
  }
  void attributeOfList(Attribute identifier, std::span<const std::uint32_t> values) {
    head(AttributeFormat::kSized, identifier, static_cast<std::uint16_t>(values.size_bytes()));
    for (const std::uint32_t value : values) add(value);
  }

  std::string_view bytes() const { return bytes_; }

 private:
  void head(AttributeFormat format, Attribute identifier, std::uint16_t value) {
    add(format).add(identifier).add(value);
  }
  std::string bytes_;
};

/// A section, with its content unless that is code.
struct Section {
  std::string name;
  SectionHeader header = {};
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

/// Where sections and symbols have their numbers, which refer to one another.
class Plan {
 public:
  Plan(std::span<const KernelDescription> kernels, unsigned architecture)
      : kernels_(kernels), architecture_(architectureOf(architecture)), form_(infoOf(architecture_.generation)) {
    const auto count = static_cast<std::uint32_t>(kernels.size());
    infos_ = form_.has_recent_layout ? 8 : 7;
    call_graph_ = infos_ + count;
    if (form_.has_recent_layout) {
      texts_ = call_graph_ + 1;
      reserved_ = texts_ + count;
      constants_ = reserved_ + 1;
    } else {
      constants_ = call_graph_ + 2;
      texts_ = constants_ + count;
    }
    first_global_ = 1 + 2 * count + 1;
    functions_ = first_global_ + (form_.has_recent_layout ? 2 : 0);
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
  const GenerationInfo& form_;
  std::uint32_t infos_ = 0, call_graph_ = 0, texts_ = 0, constants_ = 0, reserved_ = 0;
  std::uint32_t first_global_ = 0, functions_ = 0;
  std::vector<Section> sections_;
};

constexpr std::uint8_t symbolInfo(unsigned binding, unsigned type) {
  return static_cast<std::uint8_t>(binding << 4 | type);
}

void Plan::addSymbols() {
  constexpr unsigned kLocal = 0, kGlobal = 1, kWeak = 2;
  constexpr unsigned kNoType = 0, kObject = 1, kFunction = 2, kSection = 3;
  constexpr std::uint8_t kEntry = 0x10, kReserved = 0xa0;
  Bytes names, symbols;
  names.addName("");
  symbols.add(Symbol{});
  const auto sectionSymbol = [&](const std::string& name, std::size_t section) {
    symbols.add(
        Symbol{names.addName(name), symbolInfo(kLocal, kSection), 0, static_cast<std::uint16_t>(section), 0, 0});
  };
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    sectionSymbol(".text." + kernels_[k].name, texts_ + k);
    sectionSymbol(".nv.constant0." + kernels_[k].name, constants_ + k);
  }
  sectionSymbol(".nv.callgraph", call_graph_);
  if (form_.has_recent_layout) {
    const std::uint64_t offset = form_.reserved_bytes;
    symbols.add(
        Symbol{names.addName(".nv.reservedSmem.offset0"), symbolInfo(kWeak, kObject), 0, 0, offset, sizeof(float)});
    symbols.add(Symbol{names.addName("__nv_reservedSMEM_offset_0_alias"), symbolInfo(kWeak, kNoType), kReserved,
                       static_cast<std::uint16_t>(reserved_), offset, 0});
  }
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    symbols.add(Symbol{names.addName(kernels_[k].name), symbolInfo(kGlobal, kFunction), kEntry,
                       static_cast<std::uint16_t>(texts_ + k), 0, codeBytes(kernels_[k])});
  }
  add(".strtab", kStrings, 0, 0, 0, 1, 0, std::move(names));
  add(".symtab", kSymbols, 0, kStringSection, first_global_, 8, sizeof(Symbol), std::move(symbols));
}

constexpr std::uint32_t kNoteNameBytes = 12;
constexpr std::string_view kNoteName("NVIDIA Corp\0", kNoteNameBytes);

// Which tool made the image: a version of the record, then where its strings begin. Drivers refuse images without it.
Bytes Plan::toolContent() {
  constexpr std::uint32_t kToolInfo = 2000, kRecordVersion = 2;
  Bytes strings;
  std::array<std::uint32_t, 5> begins = {};
  std::size_t next = 0;
  for (const char* const text : {"", "sr-jit", "", "", ""}) begins[next++] = strings.addName(text);
  const auto bytes = static_cast<std::uint32_t>(sizeof kRecordVersion + sizeof begins + strings.bytes().size());
  Bytes note;
  note.add(kNoteNameBytes).add(static_cast<std::uint32_t>(roundUp(bytes, 4))).add(kToolInfo).add(kNoteName);
  note.add(kRecordVersion).add(begins).add(strings.bytes());
  note.padTo(roundUp(note.bytes().size(), 4));
  return note;
}

Bytes Plan::noteContent() const {
  constexpr std::uint32_t kContentBytes = 8, kCuInfo = 1000;
  Bytes note;
  note.add(kNoteNameBytes).add(kContentBytes).add(kCuInfo).add(kNoteName);
  note.add(std::uint16_t{2}).add(static_cast<std::uint16_t>(architecture_.number)).add(kApiVersion);
  return note;
}

Bytes Plan::infoContent() const {
  Bytes info;
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    info.attributeOf(Attribute::kRegisters, function(k), std::uint32_t{kernels_[k].registers});
    info.attributeOf(Attribute::kFrameSize, function(k), std::uint32_t{0});
    info.attributeOf(Attribute::kMinStackSize, function(k), std::uint32_t{0});
  }
  return info;
}

Bytes Plan::compatibilityContent() const {
  constexpr std::uint8_t kRecords[] = {2, 9, 0, 0, 2, 2, 1, 0, 2, 5, 5, 0,  3, 7,
                                       1, 1, 2, 3, 0, 0, 2, 6, 1, 0, 4, 11, 8, 0};
  Bytes content;
  for (const std::uint8_t byte : kRecords) content.add(byte);
  return content.add(architecture_.compatibility).add(std::uint32_t{0});
}

Bytes Plan::kernelInfo(std::size_t k) const {
  const KernelDescription& kernel = kernels_[k];
  std::uint16_t bytes = 0;
  const std::vector<std::uint16_t> offsets = offsetsOf(kernel.parameter_bytes, bytes);
  const auto base = static_cast<std::uint16_t>(sass::constantBankOf(architecture_.number).parameters);
  Bytes info;
  info.attributeOf(Attribute::kApiVersion, kApiVersion);
  if (!form_.has_recent_layout) info.attribute(Attribute::kRequiredSlots);
  info.attributeOf(Attribute::kParameterBank, constantSymbol(k), base, bytes);
  info.halfAttribute(Attribute::kParameterBytes, bytes);
  for (std::size_t p = offsets.size(); p-- > 0;) {
    info.attributeOf(Attribute::kParameter, std::uint32_t{0}, static_cast<std::uint16_t>(p), offsets[p],
                     std::uint32_t{kernel.parameter_bytes[p]} << kParameterSizeShift | kParameterSpace);
  }
  if (form_.has_recent_layout) info.halfAttribute(Attribute::kSparseMask, 0);
  info.halfAttribute(Attribute::kMaxRegisters, 255);
  info.halfAttribute(Attribute::kIsaVersion, form_.has_recent_layout ? 0x101 : 0);
  if (form_.has_masks) info.byteAttribute(Attribute::kBlackwellMask, 0);
  info.attributeOfList(Attribute::kExits, kernel.exits);
  if (kernel.max_threads[0] != 0) info.attributeOf(Attribute::kMaxThreads, kernel.max_threads);
  if (form_.has_recent_layout) info.attributeOf(Attribute::kWorkarounds, architecture_.workarounds);
  return info;
}

void Plan::addTexts() {
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    const std::uint32_t registers = form_.has_recent_layout ? 0 : kernels_[k].registers << 24;
    add(".text." + kernels_[k].name, kProgram, kAllocated | kCode, kSymbolSection, function(k) | registers,
        kCodeAlignment, 0, {});
    sections_.back().kernel = &kernels_[k];
    sections_.back().header.bytes = codeBytes(kernels_[k]);
  }
}

void Plan::addConstants() {
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    std::uint16_t bytes = 0;
    offsetsOf(kernels_[k].parameter_bytes, bytes);
    Bytes content;
    content.padTo(sass::constantBankOf(architecture_.number).parameters + bytes);
    add(".nv.constant0." + kernels_[k].name, kProgram, kAllocated | kHasInfo, 0, texts_ + static_cast<std::uint32_t>(k),
        4, 0, std::move(content));
  }
}

std::vector<Section> Plan::sections() {
  sections_.emplace_back();
  add(".shstrtab", kStrings, 0, 0, 0, 1, 0, {});
  addSymbols();
  add(".note.nv.tkinfo", kNote, kToolNoteFlag, 0, 0, 4, 0, toolContent());
  add(".note.nv.cuinfo", kNote, kNoteFlag, 0, 0, 4, 0, noteContent());
  add(".nv.info", kInfo, 0, kSymbolSection, 0, 4, 0, infoContent());
  if (form_.has_recent_layout) add(".nv.compat", kCompatibility, 0, 0, 0, 4, 0, compatibilityContent());
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    add(".nv.info." + kernels_[k].name, kInfo, kHasInfo, kSymbolSection, texts_ + static_cast<std::uint32_t>(k), 4, 0,
        kernelInfo(k));
  }
  Bytes graph;
  for (std::int32_t end = -1; end >= -4; --end) graph.add(std::int32_t{0}).add(end);
  add(".nv.callgraph", kCallGraph, 0, kSymbolSection, 0, 4, 8, std::move(graph));
  if (form_.has_recent_layout) {
    addTexts();
    add(".nv.shared.reserved.0", kNothing, kWritten | kAllocated, 0, 0, 1, 0, {});
    sections_.back().header.bytes = form_.reserved_bytes;
    addConstants();
  } else {
    Bytes action;
    action.add(std::uint64_t{0x73}).add(std::uint64_t{0x3605002511000000});
    add(".nv.rel.action", kRelocationAction, 0, 0, 0, 8, 8, std::move(action));
    addConstants();
    addTexts();
  }
  Bytes names;
  for (Section& section : sections_) section.header.name = names.addName(section.name);
  sections_[1].header.bytes = names.bytes().size();
  sections_[1].content = std::move(names);
  return std::move(sections_);
}

/// Gives every section its place; returns where the last one ends.
std::size_t placeSections(std::vector<Section>& sections) {
  std::size_t at = sizeof(FileHeader);
  for (Section& section : sections) {
    if (section.header.type == 0) continue;
    at = roundUp(at, section.header.alignment);
    section.header.offset = at;
    if (section.header.type != kNothing) at += section.header.bytes;
  }
  return at;
}

/// The segments that the driver loads: since Hopper one for code, reserved shared memory and constants each.
std::vector<SegmentHeader> segmentsOf(const std::vector<Section>& sections, bool recent, std::size_t headers_at) {
  const auto segment = [](std::uint32_t type, std::uint32_t flags, std::size_t begin, std::size_t end,
                          std::size_t memory) {
    return SegmentHeader{type, flags, begin, 0, 0, end - begin, memory, 8};
  };
  const auto around = [&](std::uint32_t flags, auto belongs) {
    std::size_t begin = 0, end = 0;
    for (const Section& section : sections) {
      if (!belongs(section.header)) continue;
      if (end == 0) begin = section.header.offset;
      end = section.header.offset + section.header.bytes;
    }
    return segment(kLoad, flags, begin, end, end - begin);
  };
  const std::size_t header_bytes = (recent ? 5 : 3) * sizeof(SegmentHeader);
  const std::uint32_t header_flags = recent ? kRead : kRead | kExecute;
  const auto headers = segment(kHeaders, header_flags, headers_at, headers_at + header_bytes, header_bytes);
  auto loaded_headers = headers;
  loaded_headers.type = kLoad;
  if (!recent) {
    return {headers, around(kRead | kExecute, [](const SectionHeader& s) { return (s.flags & kAllocated) != 0; }),
            loaded_headers};
  }
  auto shared = around(kRead | kWrite, [](const SectionHeader& s) { return s.type == kNothing; });
  shared.file_bytes = 0;
  return {headers, loaded_headers,
          around(kRead | kExecute, [](const SectionHeader& s) { return (s.flags & kCode) != 0; }), shared,
          around(kRead, [](const SectionHeader& s) { return s.flags == (kAllocated | kHasInfo); })};
}

FileHeader fileHeader(unsigned architecture, std::size_t sections_at, std::size_t sections, std::size_t segments) {
  FileHeader header = {};
  constexpr std::uint8_t kIdentity[] = {0x7f, 'E', 'L', 'F', 2, 1, 1, kAbi, kAbiVersion};
  std::memcpy(header.identity, kIdentity, sizeof kIdentity);
  header.type = kExecutable;
  header.machine = kMachine;
  header.version = 1;
  header.segments_at = sections_at + sections * sizeof(SectionHeader);
  header.sections_at = sections_at;
  header.flags = 0x6000000 | architecture << 8 | infoOf(architectureOf(architecture).generation).flags;
  header.header_bytes = sizeof(FileHeader);
  header.segment_bytes = sizeof(SegmentHeader);
  header.segments = static_cast<std::uint16_t>(segments);
  header.section_bytes = sizeof(SectionHeader);
  header.sections = static_cast<std::uint16_t>(sections);
  header.names_section = 1;
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
  const bool recent = infoOf(architectureOf(architecture).generation).has_recent_layout;
  const std::vector<SegmentHeader> segments =
      segmentsOf(sections, recent, sections_at + sections.size() * sizeof(SectionHeader));
  image.resize(sections_at + sections.size() * sizeof(SectionHeader) + segments.size() * sizeof(SegmentHeader));
  ImageWriter writer(image);
  writer.put(fileHeader(architecture, sections_at, sections.size(), segments.size()));
  for (const Section& section : sections) {
    if (section.header.type == 0 || section.header.type == kNothing) continue;
    writer.padTo(section.header.offset);
    writer.putBytes(std::as_bytes(std::span(section.content.bytes())));
    if (section.kernel != nullptr) putCode(writer, *section.kernel, architecture);
  }
  writer.padTo(sections_at);
  for (const Section& section : sections) writer.put(section.header);
  for (const SegmentHeader& segment : segments) writer.put(segment);
}

}  // namespace srjit
