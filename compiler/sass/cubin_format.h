// The parts of a cubin that other ELF images lack, under NVIDIA's names. Records and numbers of ELF itself are LLVM's,
// copied to and from the bytes of an image (both are little endian); only the reader and the writer of cubins include
// this.
//
// Sources: the names of section types, attributes and formats are those that `cuobjdump -elf` and nvdisasm of CUDA 13.0
// print (the names of attributes are also in ptxas itself). NVIDIA documents no numbers: they are those of the cubins
// that ptxas 13.0 writes, and agree with the lists of redplait/denvdis (EIATTR_*, SHT_CUDA_*), of XLA's
// stream_executor/cuda (EIFMT_*) and of cuda-gdb (STO_CUDA_ENTRY). What begins with k here has no public name.
#pragma once

#include <cstdint>

#include <llvm/BinaryFormat/ELF.h>

namespace srjit::cubin {

namespace elf = llvm::ELF;
static_assert(sizeof(elf::Elf64_Ehdr) == 64 && sizeof(elf::Elf64_Shdr) == 64 && sizeof(elf::Elf64_Phdr) == 56 &&
              sizeof(elf::Elf64_Sym) == 24);

// What identifies images of CUDA 13; ELFOSABI_CUDA is that of earlier ones. The number of the architecture is in
// e_flags, from kArchitectureShift on; before kAbiVersion in the lowest byte. EF_CUDA_SM has its bits.
inline constexpr std::uint8_t kOsAbi = 0x41, kAbiVersion = 8;
inline constexpr unsigned kArchitectureShift = 8;

enum : std::uint32_t {  // types of sections
  SHT_CUDA_INFO = elf::SHT_LOPROC,
  SHT_CUDA_CALLGRAPH = elf::SHT_LOPROC + 0x01,
  SHT_CUDA_RELOCINFO = elf::SHT_LOPROC + 0x0b,
  SHT_CUDA_COMPAT = elf::SHT_LOPROC + 0x86,
};
inline constexpr std::uint64_t kCuInfoFlag = 0x1000000, kTkInfoFlag = 0x2000000;  ///< of the notes .note.nv.*
inline constexpr std::uint32_t kCuInfoNote = 1000, kTkInfoNote = 2000;            ///< types of these notes

inline constexpr std::uint8_t STO_CUDA_ENTRY = 0x10;  ///< the symbol is a kernel
inline constexpr std::uint8_t kReservedShared = 0xa0;

// Attributes in .nv.info sections: format, identifier, then 16 bits that are the value or the number of bytes after.
enum : std::uint8_t { EIFMT_NVAL = 1, EIFMT_BVAL = 2, EIFMT_HVAL = 3, EIFMT_SVAL = 4 };
enum : std::uint8_t {
  EIATTR_MAX_THREADS = 0x05,
  EIATTR_PARAM_CBANK = 0x0a,
  EIATTR_FRAME_SIZE = 0x11,
  EIATTR_MIN_STACK_SIZE = 0x12,
  EIATTR_KPARAM_INFO = 0x17,
  EIATTR_CBANK_PARAM_SIZE = 0x19,
  EIATTR_MAXREG_COUNT = 0x1b,
  EIATTR_EXIT_INSTR_OFFSETS = 0x1c,
  EIATTR_REGCOUNT = 0x2f,
  EIATTR_SW2861232_WAR = 0x35,
  EIATTR_SW_WAR = 0x36,
  EIATTR_CUDA_API_VERSION = 0x37,
  EIATTR_VRC_CTA_INIT_COUNT = 0x4a,
  EIATTR_SPARSE_MMA_MASK = 0x50,
  EIATTR_MERCURY_ISA_VERSION = 0x5f,
};

// The two entries of .nv.rel.action, which ptxas 13.0 writes alike into every cubin before Hopper. No public tool names
// their fields.
inline constexpr std::uint64_t kRelocationActions[] = {0x73, 0x3605002511000000};

}  // namespace srjit::cubin
