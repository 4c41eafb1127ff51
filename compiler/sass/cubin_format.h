// The records of a cubin, as structs that are copied to and from its bytes (both are little endian).
#pragma once

#include <cstdint>

namespace srjit::cubin {

struct FileHeader {
  std::uint8_t identity[16];
  std::uint16_t type, machine;
  std::uint32_t version;
  std::uint64_t entry, segments_at, sections_at;
  std::uint32_t flags;
  std::uint16_t header_bytes, segment_bytes, segments, section_bytes, sections, names_section;
};
struct SectionHeader {
  std::uint32_t name, type;
  std::uint64_t flags, address, offset, bytes;
  std::uint32_t link, info;
  std::uint64_t alignment, entry_bytes;
};
struct SegmentHeader {
  std::uint32_t type, flags;
  std::uint64_t offset, virtual_address, physical_address, file_bytes, memory_bytes, alignment;
};
struct Symbol {
  std::uint32_t name;
  std::uint8_t info, other;
  std::uint16_t section;
  std::uint64_t value, bytes;
};
static_assert(sizeof(FileHeader) == 64 && sizeof(SectionHeader) == 64 && sizeof(SegmentHeader) == 56 &&
              sizeof(Symbol) == 24);

inline constexpr std::uint8_t kAbi = 0x41, kAbiVersion = 8;  ///< CUDA 13
inline constexpr std::uint16_t kExecutable = 2, kMachine = 190;

enum SectionType : std::uint32_t {
  kProgram = 1,
  kSymbols = 2,
  kStrings = 3,
  kNote = 7,
  kNothing = 8,
  kInfo = 0x70000000,
  kCallGraph = 0x70000001,
  kRelocationAction = 0x7000000b,
  kCompatibility = 0x70000086,
};
enum SectionFlag : std::uint64_t {
  kWritten = 1,
  kAllocated = 2,
  kCode = 4,
  kHasInfo = 0x40,
  kNoteFlag = 0x1000000,
  kToolNoteFlag = 0x2000000
};
enum SegmentType : std::uint32_t { kLoad = 1, kHeaders = 6 };
enum SegmentFlag : std::uint32_t { kExecute = 1, kWrite = 2, kRead = 4 };

// Attributes in .nv.info sections: format, identifier, then 16 bits that are the value or the number of bytes after.
enum class AttributeFormat : std::uint8_t { kNone = 1, kByte = 2, kHalf = 3, kSized = 4 };
enum class Attribute : std::uint8_t {
  kMaxThreads = 0x05,
  kParameterBank = 0x0a,
  kFrameSize = 0x11,
  kMinStackSize = 0x12,
  kParameter = 0x17,
  kParameterBytes = 0x19,
  kMaxRegisters = 0x1b,
  kExits = 0x1c,
  kRegisters = 0x2f,
  kRequiredSlots = 0x35,
  kWorkarounds = 0x36,
  kApiVersion = 0x37,
  kBlackwellMask = 0x4a,
  kSparseMask = 0x50,
  kIsaVersion = 0x5f,
};

}  // namespace srjit::cubin
