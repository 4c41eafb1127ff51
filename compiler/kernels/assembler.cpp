#include "compiler/kernels/assembler.h"

#include <dlfcn.h>

#include <charconv>
#include <cstring>
#include <sstream>

#include <fmt/format.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/FileUtilities.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/Program.h>
#include <llvm/Support/raw_ostream.h>

#include "compiler/lowering/llvm_scope.h"
#include "compiler/nvptx/toolkit.h"

namespace srjit {
namespace {

// nvJitLink, loaded at run time; the prototypes follow nvJitLink.h of CUDA 13.0 (the unversioned names are exported
// since 12.0).
struct NvJitLink {
  using Handle = void*;
  using Code = int;
  static constexpr int kInputPtx = 2;

  std::string versionText() const {
    unsigned major = 0, minor = 0;
    version(&major, &minor);
    return fmt::format("{}.{}", major, minor);
  }

  Code (*version)(unsigned*, unsigned*);
  Code (*create)(Handle*, std::uint32_t, const char**);
  Code (*destroy)(Handle*);
  Code (*addData)(Handle, int, const void*, std::size_t, const char*);
  Code (*complete)(Handle);
  Code (*cubinSize)(Handle, std::size_t*);
  Code (*cubin)(Handle, void*);
  Code (*errorLogSize)(Handle, std::size_t*);
  Code (*errorLog)(Handle, char*);
  Code (*infoLogSize)(Handle, std::size_t*);
  Code (*infoLog)(Handle, char*);

  std::string path;  ///< as it was loaded

  /// Loaded at the first call. The error says of each place why it could not be.
  static const Result<NvJitLink>& find() {
    static const Result<NvJitLink> library = load();
    return library;
  }

 private:
  static Result<NvJitLink> load() {
    std::string faults;
    for (const std::string& name :
         {findToolkit().nvjitlink, std::string("libnvJitLink.so.13"), std::string("libnvJitLink.so.12")}) {
      if (name.empty()) continue;
      Result<NvJitLink> library = load(name);
      if (library) return library;
      faults += (faults.empty() ? "" : "; ") + library.error().message;
    }
    return Error{Errc::kMachine, std::move(faults), {}};
  }

  static Result<NvJitLink> load(const std::string& name) {
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return Error{Errc::kMachine, dlerror(), {}};
    NvJitLink library{};
    library.path = name;
    std::string missing;
    const auto bind = [&](auto& entry, const char* symbol_name) {
      void* const symbol = dlsym(handle, symbol_name);
      std::memcpy(&entry, &symbol, sizeof symbol);
      if (symbol == nullptr) missing = symbol_name;
    };
    bind(library.version, "nvJitLinkVersion");
    bind(library.create, "nvJitLinkCreate");
    bind(library.destroy, "nvJitLinkDestroy");
    bind(library.addData, "nvJitLinkAddData");
    bind(library.complete, "nvJitLinkComplete");
    bind(library.cubinSize, "nvJitLinkGetLinkedCubinSize");
    bind(library.cubin, "nvJitLinkGetLinkedCubin");
    bind(library.errorLogSize, "nvJitLinkGetErrorLogSize");
    bind(library.errorLog, "nvJitLinkGetErrorLog");
    bind(library.infoLogSize, "nvJitLinkGetInfoLogSize");
    bind(library.infoLog, "nvJitLinkGetInfoLog");
    if (missing.empty()) return library;
    dlclose(handle);
    return Error{Errc::kMachine, fmt::format("{} lacks {}", name, missing), {}};
  }
};

// The number right before `unit` in `line`, 0 if there is none.
unsigned numberBefore(std::string_view line, std::string_view unit) {
  const std::size_t end = line.find(unit);
  if (end == std::string_view::npos) return 0;
  const std::size_t begin = line.find_last_not_of("0123456789", end - 1) + 1;
  unsigned number = 0;
  std::from_chars(line.data() + begin, line.data() + end, number);
  return number;
}

// The report of `ptxas -v`.
std::vector<KernelFacts> parseReport(const std::string& report) {
  std::vector<KernelFacts> kernels;
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kEntry = "Compiling entry function '";
    if (const std::size_t at = line.find(kEntry); at != std::string::npos) {
      const std::size_t begin = at + kEntry.size();
      kernels.push_back({line.substr(begin, line.find('\'', begin) - begin)});
    } else if (kernels.empty()) {
      continue;
    } else if (line.find(" bytes stack frame") != std::string::npos) {
      kernels.back().stack_bytes = numberBefore(line, " bytes stack frame");
      kernels.back().spill_store_bytes = numberBefore(line, " bytes spill stores");
      kernels.back().spill_load_bytes = numberBefore(line, " bytes spill loads");
    } else if (line.find("Used ") != std::string::npos) {
      kernels.back().registers = numberBefore(line, " registers");
    }
  }
  return kernels;
}

std::vector<std::byte> bytesOf(llvm::StringRef text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

Result<Cubin> assembleWithNvJitLink(const NvJitLink& library, std::string_view ptx, std::string_view arch) {
  const std::string arch_option = fmt::format("-arch={}", arch);
  const char* options[] = {arch_option.c_str(), "-Xptxas=-v"};
  NvJitLink::Handle handle = nullptr;
  if (const auto code = library.create(&handle, 2, options); code != 0) {
    return Error{Errc::kCompile, fmt::format("nvJitLink refused its options for {} (error {})", arch, code), {}};
  }
  const auto log = [&](auto sizeOf, auto textOf) {
    std::size_t size = 0;
    if (sizeOf(handle, &size) != 0 || size == 0) return std::string();
    std::string text(size, '\0');
    if (textOf(handle, text.data()) != 0) return std::string();
    return text.substr(0, text.find('\0'));
  };
  const std::string terminated(ptx);
  Cubin made;
  std::size_t size = 0;
  auto code = library.addData(handle, NvJitLink::kInputPtx, terminated.c_str(), terminated.size() + 1, "srjit.ptx");
  if (code == 0) code = library.complete(handle);
  if (code == 0) code = library.cubinSize(handle, &size);
  if (code == 0) {
    made.image.resize(size);
    code = library.cubin(handle, made.image.data());
  }
  const std::string errors = log(library.errorLogSize, library.errorLog);
  made.kernels = parseReport(log(library.infoLogSize, library.infoLog));
  library.destroy(&handle);
  if (code != 0)
    return Error{
        Errc::kCompile, fmt::format("nvJitLink cannot assemble for {} (error {}): {}", arch, code, errors), {}};
  return made;
}

/// A file that is removed with the object.
class TemporaryFile {
 public:
  static Result<TemporaryFile> create(llvm::StringRef suffix, std::string_view content = {}) {
    TemporaryFile file;
    int descriptor = -1;
    if (const auto error = llvm::sys::fs::createTemporaryFile("srjit", suffix, descriptor, file.path_)) {
      return Error{Errc::kIo, "cannot create a temporary file: " + error.message(), {}};
    }
    file.remover_ = std::make_unique<llvm::FileRemover>(file.path_);
    llvm::raw_fd_ostream stream(descriptor, true);
    stream << llvm::StringRef(content.data(), content.size());
    stream.close();
    if (stream.has_error()) {
      Error error{Errc::kIo, fmt::format("cannot write {}: {}", file.path_.str().str(), stream.error().message()), {}};
      stream.clear_error();
      return error;
    }
    return file;
  }
  llvm::StringRef path() const { return path_; }
  Result<std::string> read() const {
    auto buffer = llvm::MemoryBuffer::getFile(path_);
    if (!buffer)
      return Error{Errc::kIo, fmt::format("cannot read {}: {}", path_.str().str(), buffer.getError().message()), {}};
    return (*buffer)->getBuffer().str();
  }

 private:
  llvm::SmallString<128> path_;
  std::unique_ptr<llvm::FileRemover> remover_;
};

// Runs a program; its standard output and standard error together are the result.
Result<std::string> runProgram(const std::string& program, std::vector<std::string> arguments) {
  auto output = TemporaryFile::create("log");
  if (!output) return std::move(output).error();
  arguments.insert(arguments.begin(), program);
  const std::vector<llvm::StringRef> references(arguments.begin(), arguments.end());
  std::string failure;
  const int status = llvm::sys::ExecuteAndWait(program, references, std::nullopt,
                                               {llvm::StringRef(""), output->path(), output->path()}, 0, 0, &failure);
  auto text = output->read();
  if (!text) return text;
  if (status != 0) {
    return Error{Errc::kCompile, fmt::format("{} failed with status {}: {}{}", program, status, failure, *text), {}};
  }
  return text;
}

Result<Cubin> assembleWithPtxas(const std::string& ptxas, std::string_view ptx, std::string_view arch) {
  auto source = TemporaryFile::create("ptx", ptx);
  if (!source) return std::move(source).error();
  auto object = TemporaryFile::create("cubin");
  if (!object) return std::move(object).error();
  const auto report =
      runProgram(ptxas, {"-v", fmt::format("-arch={}", arch), source->path().str(), "-o", object->path().str()});
  if (!report) return report.error();
  const auto image = object->read();
  if (!image) return image.error();
  return Cubin{bytesOf(*image), parseReport(*report)};
}

}  // namespace

std::string_view assemblerName() {
  static const std::string name = [] {
    const Result<NvJitLink>& library = NvJitLink::find();
    return library ? "nvJitLink " + library->versionText() : findToolkit().ptxas;
  }();
  return name;
}

Result<std::string> describeNvJitLink() {
  const Result<NvJitLink>& library = NvJitLink::find();
  if (!library) return library.error();
  return fmt::format("{}, version {}", library->path, library->versionText());
}

Result<std::string> describeProgram(const std::string& path) {
  const LlvmScope scope;
  Result<std::string> text = runProgram(path, {"--version"});
  return text ? Result<std::string>(path) : std::move(text);
}

Result<Cubin> assemble(std::string_view ptx, std::string_view arch) {
  const LlvmScope scope;  // for its files and processes
  if (const Result<NvJitLink>& library = NvJitLink::find()) return assembleWithNvJitLink(*library, ptx, arch);
  if (const std::string& ptxas = findToolkit().ptxas; !ptxas.empty()) return assembleWithPtxas(ptxas, ptx, arch);
  return Error{Errc::kMachine,
               "no assembler for GPU code: neither libnvJitLink.so nor ptxas was found (install the CUDA toolkit or "
               "set CUDA_HOME)",
               {}};
}

Result<std::string> disassemble(std::span<const std::byte> cubin) {
  const LlvmScope scope;
  const std::string& nvdisasm = findToolkit().nvdisasm;
  if (nvdisasm.empty()) {
    return Error{Errc::kMachine, "nvdisasm was not found (install the CUDA toolkit or set CUDA_HOME)", {}};
  }
  auto file = TemporaryFile::create("cubin", {reinterpret_cast<const char*>(cubin.data()), cubin.size()});
  if (!file) return std::move(file).error();
  return runProgram(nvdisasm, {"-c", file->path().str()});
}

}  // namespace srjit
