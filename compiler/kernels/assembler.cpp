#include "compiler/kernels/assembler.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <mutex>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/Program.h>
#include <llvm/Support/raw_ostream.h>

#include "compiler/loader/shared_library.h"
#include "compiler/lowering/llvm_scope.h"

namespace srjit {
namespace {

// The entries of nvJitLink that are used: ENTRY(name, (parameter types)). Source: nvJitLink.h of CUDA 13.0; these names
// without a version are exported since 12.0. Every entry returns an int, 0 for success.
#define SRJIT_NVJITLINK(ENTRY)                                                                                   \
  ENTRY(nvJitLinkVersion, (unsigned* major, unsigned* minor))                                                    \
  ENTRY(nvJitLinkCreate, (void** handle, std::uint32_t option_count, const char** options))                      \
  ENTRY(nvJitLinkDestroy, (void** handle))                                                                       \
  ENTRY(nvJitLinkAddData, (void* handle, int input_type, const void* data, std::size_t bytes, const char* name)) \
  ENTRY(nvJitLinkComplete, (void* handle))                                                                       \
  ENTRY(nvJitLinkGetLinkedCubinSize, (void* handle, std::size_t* bytes))                                         \
  ENTRY(nvJitLinkGetLinkedCubin, (void* handle, void* cubin))                                                    \
  ENTRY(nvJitLinkGetErrorLogSize, (void* handle, std::size_t* bytes))                                            \
  ENTRY(nvJitLinkGetErrorLog, (void* handle, char* log))                                                         \
  ENTRY(nvJitLinkGetInfoLogSize, (void* handle, std::size_t* bytes))                                             \
  ENTRY(nvJitLinkGetInfoLog, (void* handle, char* log))

// nvJitLink, loaded at run time.
struct NvJitLink {
  static constexpr int kInputPtx = 2;

#define SRJIT_DECLARE(name, parameters) int(*name) parameters = nullptr;
  SRJIT_NVJITLINK(SRJIT_DECLARE)
#undef SRJIT_DECLARE

  std::string path;  ///< as it was loaded

  std::string versionText() const {
    unsigned major = 0, minor = 0;
    nvJitLinkVersion(&major, &minor);
    return fmt::format("{}.{}", major, minor);
  }

  /// Loaded at the first call. The error says of each place why it could not be.
  static const Result<NvJitLink>& find() {
    static const Result<NvJitLink> library = SharedLibrary::openFirst(
        {findToolkit().nvjitlink, std::string("libnvJitLink.so.13"), std::string("libnvJitLink.so.12")}, bindAll);
    return library;
  }

 private:
  static Result<NvJitLink> bindAll(const SharedLibrary& library) {
    NvJitLink entries;
    entries.path = library.name();
#define SRJIT_BIND(name, parameters) \
  if (const Status status = library.bind(entries.name, #name); !status) return status.error();
    SRJIT_NVJITLINK(SRJIT_BIND)
#undef SRJIT_BIND
    return entries;
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

Result<KernelImage> assembleWithNvJitLink(const NvJitLink& library, std::string_view ptx, std::string_view arch,
                                          bool keeps_lines) {
  const std::string arch_option = fmt::format("-arch={}", arch);
  const char* options[] = {arch_option.c_str(), "-Xptxas=-v", "-lineinfo"};
  const unsigned count = keeps_lines ? 3 : 2;
  void* handle = nullptr;
  if (const auto code = library.nvJitLinkCreate(&handle, count, options); code != 0) {
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
  KernelImage made;
  std::size_t size = 0;
  auto code =
      library.nvJitLinkAddData(handle, NvJitLink::kInputPtx, terminated.c_str(), terminated.size() + 1, "srjit.ptx");
  if (code == 0) code = library.nvJitLinkComplete(handle);
  if (code == 0) code = library.nvJitLinkGetLinkedCubinSize(handle, &size);
  if (code == 0) {
    made.code.resize(size);
    code = library.nvJitLinkGetLinkedCubin(handle, made.code.data());
  }
  const std::string errors = log(library.nvJitLinkGetErrorLogSize, library.nvJitLinkGetErrorLog);
  made.kernels = parseReport(log(library.nvJitLinkGetInfoLogSize, library.nvJitLinkGetInfoLog));
  library.nvJitLinkDestroy(&handle);
  if (code != 0)
    return Error{
        Errc::kCompile, fmt::format("nvJitLink cannot assemble for {} (error {}): {}", arch, code, errors), {}};
  return made;
}

/// The temporary files that exist, and the programs that run. abandonPrograms() keeps the mutex.
struct Outside {
  std::mutex mutex;
  std::set<std::string> files;
  std::set<pid_t> programs;  ///< not yet reaped, so no other process has their number

  static Outside& all() {
    static Outside outside;
    return outside;
  }
};

// Waits until a child has ended, and leaves it to be reaped.
void waitForEndOf(pid_t child) {
  siginfo_t how{};
  while (waitid(P_PID, static_cast<id_t>(child), &how, WEXITED | WNOWAIT) != 0 && errno == EINTR) continue;
}

/// A file that is removed with the object.
class TemporaryFile {
 public:
  TemporaryFile() = default;
  TemporaryFile(TemporaryFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFile& operator=(TemporaryFile&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~TemporaryFile() {
    if (path_.empty()) return;
    const std::lock_guard lock(Outside::all().mutex);
    unlink(path_.c_str());
    Outside::all().files.erase(path_);
  }
  static Result<TemporaryFile> create(llvm::StringRef suffix, std::string_view content = {}) {
    int descriptor = -1;
    TemporaryFile file;
    if (const auto error = file.make(suffix, descriptor)) {
      return Error{Errc::kIo, "cannot create a temporary file: " + error.message(), {}};
    }
    llvm::raw_fd_ostream stream(descriptor, true);
    stream << llvm::StringRef(content.data(), content.size());
    stream.close();
    if (stream.has_error()) {
      Error error{Errc::kIo, fmt::format("cannot write {}: {}", file.path_, stream.error().message()), {}};
      stream.clear_error();
      return error;
    }
    return file;
  }
  llvm::StringRef path() const { return path_; }
  Result<std::string> read() const {
    auto buffer = llvm::MemoryBuffer::getFile(path_);
    if (!buffer) return Error{Errc::kIo, fmt::format("cannot read {}: {}", path_, buffer.getError().message()), {}};
    return (*buffer)->getBuffer().str();
  }

 private:
  std::error_code make(llvm::StringRef suffix, int& descriptor) {
    llvm::SmallString<128> path;
    const std::lock_guard lock(Outside::all().mutex);
    if (const auto error = llvm::sys::fs::createTemporaryFile("srjit", suffix, descriptor, path)) return error;
    path_ = path.str().str();
    Outside::all().files.insert(path_);
    return {};
  }

  std::string path_;
};

// Runs a program with its standard output and standard error in a file, and gives its exit status, negative where it
// could not be run or crashed.
int runInto(llvm::StringRef log, const std::vector<llvm::StringRef>& words, std::string& failure) {
  Outside& outside = Outside::all();
  llvm::sys::ProcessInfo program;
  {
    const std::lock_guard lock(outside.mutex);
    bool has_failed = false;
    program = llvm::sys::ExecuteNoWait(words[0], words, std::nullopt, {llvm::StringRef(""), log, log}, 0, &failure,
                                       &has_failed);
    if (has_failed) return -1;
    outside.programs.insert(program.Pid);
  }
  waitForEndOf(program.Pid);
  const std::lock_guard lock(outside.mutex);
  outside.programs.erase(program.Pid);
  return llvm::sys::Wait(program, std::nullopt, &failure).ReturnCode;
}

// Runs a program; its standard output and standard error together are the result.
Result<std::string> runProgram(const std::string& program, std::vector<std::string> arguments) {
  auto output = TemporaryFile::create("log");
  if (!output) return std::move(output).error();
  arguments.insert(arguments.begin(), program);
  std::string failure;
  const int status = runInto(output->path(), {arguments.begin(), arguments.end()}, failure);
  auto text = output->read();
  if (!text) return text;
  if (status != 0) {
    return Error{Errc::kCompile, fmt::format("{} failed with status {}: {}{}", program, status, failure, *text), {}};
  }
  return text;
}

Result<KernelImage> assembleWithPtxas(const std::string& ptxas, std::string_view ptx, std::string_view arch,
                                      bool keeps_lines) {
  auto source = TemporaryFile::create("ptx", ptx);
  if (!source) return std::move(source).error();
  auto object = TemporaryFile::create("cubin");
  if (!object) return std::move(object).error();
  std::vector<std::string> words{"-v", fmt::format("-arch={}", arch), source->path().str(), "-o", object->path().str()};
  if (keeps_lines) words.emplace_back("-lineinfo");
  const auto report = runProgram(ptxas, std::move(words));
  if (!report) return report.error();
  const auto image = object->read();
  if (!image) return image.error();
  return KernelImage{.code = bytesOf(*image), .kernels = parseReport(*report)};
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

Result<KernelImage> assemble(std::string_view ptx, std::string_view arch, bool keeps_lines) {
  const LlvmScope scope;  // for its files and processes
  if (const Result<NvJitLink>& library = NvJitLink::find())
    return assembleWithNvJitLink(*library, ptx, arch, keeps_lines);
  if (const std::string& ptxas = findToolkit().ptxas; !ptxas.empty())
    return assembleWithPtxas(ptxas, ptx, arch, keeps_lines);
  return Error{Errc::kMachine,
               "no assembler for GPU code: neither libnvJitLink.so nor ptxas was found (install the CUDA toolkit or "
               "set CUDA_HOME; in Python, pip install 'srjit[cu13]')",
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

void abandonPrograms() {
  Outside& outside = Outside::all();
  outside.mutex.lock();
  for (const pid_t program : outside.programs) kill(program, SIGKILL);
  for (const pid_t program : outside.programs) waitForEndOf(program);  // until then it may make a file
  for (const std::string& path : outside.files) unlink(path.c_str());
}

namespace {

namespace fs = std::filesystem;

/// The entries of a list with colons between them; none where the variable is not set.
std::vector<fs::path> pathsIn(const char* variable) {
  std::vector<fs::path> paths;
  const char* const value = std::getenv(variable);
  std::istringstream entries(value != nullptr ? value : "");
  for (std::string entry; std::getline(entries, entry, ':');) {
    if (!entry.empty()) paths.emplace_back(entry);
  }
  return paths;
}

std::string firstExisting(const std::vector<fs::path>& roots, std::initializer_list<const char*> names) {
  for (const fs::path& root : roots) {
    for (const char* const name : names) {
      std::error_code ignored;
      if (fs::is_regular_file(root / name, ignored)) return (root / name).string();
    }
  }
  return {};
}

Toolkit search() {
  std::vector<fs::path> roots;
  for (const char* const variable : {"SRJIT_CUDA_HOME", "CUDA_HOME", "CUDA_PATH"}) {
    if (const char* const value = std::getenv(variable); value != nullptr && *value != '\0') roots.emplace_back(value);
  }
  for (const fs::path& packages : pathsIn("SRJIT_PYTHON_PACKAGES")) {
    for (const char* const package : {"cu13", "nvjitlink", "cuda_nvrtc"})
      roots.push_back(packages / "nvidia" / package);
  }
  for (const char* const usual :
       {"/usr/local/cuda", "/opt/cuda", "/usr/lib/nvidia-cuda-toolkit", "/usr/lib/cuda", "/usr"}) {
    roots.emplace_back(usual);
  }
  std::vector<fs::path> programs;
  for (const fs::path& root : roots) programs.push_back(root / "bin");
  std::ranges::copy(pathsIn("PATH"), std::back_inserter(programs));
  Toolkit toolkit;
  toolkit.nvjitlink =
      firstExisting(roots, {"lib64/libnvJitLink.so", "lib64/libnvJitLink.so.13", "lib64/libnvJitLink.so.12",
                            "lib/libnvJitLink.so.13", "lib/libnvJitLink.so.12",
                            "targets/x86_64-linux/lib/libnvJitLink.so", "lib/x86_64-linux-gnu/libnvJitLink.so",
                            "lib/x86_64-linux-gnu/libnvJitLink.so.13", "lib/x86_64-linux-gnu/libnvJitLink.so.12"});
  toolkit.nvrtc = firstExisting(
      roots, {"lib64/libnvrtc.so", "lib64/libnvrtc.so.13", "lib64/libnvrtc.so.12", "lib/libnvrtc.so.13",
              "lib/libnvrtc.so.12", "targets/x86_64-linux/lib/libnvrtc.so", "lib/x86_64-linux-gnu/libnvrtc.so",
              "lib/x86_64-linux-gnu/libnvrtc.so.13", "lib/x86_64-linux-gnu/libnvrtc.so.12"});
  toolkit.ptxas = firstExisting(programs, {"ptxas"});
  toolkit.nvdisasm = firstExisting(programs, {"nvdisasm"});
  return toolkit;
}

}  // namespace

const Toolkit& findToolkit() {
  static const Toolkit toolkit = search();
  return toolkit;
}

}  // namespace srjit
