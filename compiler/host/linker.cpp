#include "compiler/host/linker.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <llvm/ExecutionEngine/JITLink/JITLink.h>
#include <llvm/Support/Memory.h>

#include "compiler/loader/shared_library.h"
#include "compiler/lowering/llvm_scope.h"

namespace srjit {
namespace {

namespace jitlink = llvm::jitlink;
using llvm::orc::ExecutorAddr;

llvm::Error linkFault(const std::string& text) { return llvm::createStringError(llvm::inconvertibleErrorCode(), text); }

Error cannotLink(const std::string& why) { return {Errc::kCompile, "cannot link: " + why, {}}; }

/// Hands out parts of blocks of memory, which is writable until protect(). The parts of one object are in one block,
/// since it addresses its constants relative to its code.
class CodeMemory final : public jitlink::JITLinkMemoryManager {
 public:
  /// The first block has this size at least.
  explicit CodeMemory(std::size_t bytes) : least_(bytes) {}

  void allocate(const jitlink::JITLinkDylib*, jitlink::LinkGraph& graph, OnAllocatedFunction then) override {
    jitlink::BasicLayout layout(graph);
    std::size_t bytes = 0;
    llvm::Align alignment(kAlignment);
    for (auto& [group, segment] : layout.segments()) {
      alignment = std::max(alignment, segment.Alignment);
      bytes = llvm::alignTo(bytes, segment.Alignment) + segment.ContentSize + segment.ZeroFillSize;
    }
    auto taken = take(bytes, alignment);
    if (!taken) return then(taken.takeError());
    std::size_t offset = 0;
    for (auto& [group, segment] : layout.segments()) {
      offset = llvm::alignTo(offset, segment.Alignment);
      segment.WorkingMem = *taken + offset;
      segment.Addr = ExecutorAddr::fromPtr(segment.WorkingMem);
      offset += segment.ContentSize + segment.ZeroFillSize;
    }
    if (auto failed = layout.apply()) return then(std::move(failed));
    then(std::make_unique<Part>());
  }

  void deallocate(std::vector<FinalizedAlloc>, OnDeallocatedFunction then) override { then(llvm::Error::success()); }

  /// Makes all blocks executable, and read-only.
  std::error_code protect() const {
    for (const llvm::sys::OwningMemoryBlock& block : blocks_) {
      constexpr auto kAccess = llvm::sys::Memory::MF_READ | llvm::sys::Memory::MF_EXEC;
      if (auto failed = llvm::sys::Memory::protectMappedMemory(block.getMemoryBlock(), kAccess)) return failed;
    }
    return {};
  }

 private:
  static constexpr std::uint64_t kAlignment = 64;  // a line of the caches

  /// Blocks are owned, protected and released as wholes.
  struct Part final : InFlightAlloc {
    void abandon(OnAbandonedFunction then) override { then(llvm::Error::success()); }
    void finalize(OnFinalizedFunction then) override { then(FinalizedAlloc(ExecutorAddr())); }
  };

  llvm::Expected<char*> take(std::size_t bytes, llvm::Align alignment) {
    const auto start = [&] { return next_ + llvm::offsetToAlignedAddr(next_, alignment); };
    constexpr std::size_t kMost = std::size_t{1} << 30;  // far above the size of any code
    if (bytes > kMost) return llvm::createStringError("an object of %zu bytes", bytes);
    if (blocks_.empty() || start() > end_ || bytes > static_cast<std::size_t>(end_ - start())) {
      std::error_code failed;
      llvm::sys::OwningMemoryBlock block(
          llvm::sys::Memory::allocateMappedMemory(std::max(least_, bytes + alignment.value()), nullptr,
                                                  llvm::sys::Memory::MF_READ | llvm::sys::Memory::MF_WRITE, failed));
      if (failed) return llvm::errorCodeToError(failed);
      next_ = static_cast<char*>(block.base());
      end_ = next_ + block.allocatedSize();
      blocks_.push_back(std::move(block));
    }
    char* const begin = start();
    next_ = begin + bytes;
    return begin;
  }

  const std::size_t least_;
  std::vector<llvm::sys::OwningMemoryBlock> blocks_;
  char *next_ = nullptr, *end_ = nullptr;  ///< the free part of the last block
};

/// Address of a function of libm or libc, which code calls where the processor has no instruction for an operation;
/// null without one.
void* libraryFunction(const std::string& name) {
  const Result<SharedLibrary> library = SharedLibrary::open("libm.so.6");
  return library ? library->find(name.c_str()) : nullptr;
}

/// The link of one object.
class Linking final : public jitlink::JITLinkContext {
 public:
  struct Outcome {
    void* function = nullptr;
    std::string failure;  ///< empty if it succeeded
  };
  Linking(CodeMemory& memory, Outcome& outcome) : JITLinkContext(nullptr), memory_(memory), outcome_(outcome) {}

  jitlink::JITLinkMemoryManager& getMemoryManager() override { return memory_; }
  void notifyFailed(llvm::Error failed) override { outcome_.failure = llvm::toString(std::move(failed)); }
  void notifyFinalized(jitlink::JITLinkMemoryManager::FinalizedAlloc part) override { part.release(); }

  void lookup(const LookupMap& names, std::unique_ptr<jitlink::JITLinkAsyncLookupContinuation> then) override {
    jitlink::AsyncLookupResult found;
    for (const auto& [name, flags] : names) {
      void* const address = libraryFunction(name.str());
      if (address == nullptr) return then->run(linkFault("libm.so.6 lacks " + name.str()));
      found[name] = {ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
    }
    then->run(std::move(found));
  }

  llvm::Error notifyResolved(jitlink::LinkGraph& graph) override {
    for (const jitlink::Symbol* symbol : graph.defined_symbols()) {
      if (symbol->hasName() && symbol->getName() == kHostFunction) {
        outcome_.function = symbol->getAddress().toPtr<void*>();
      }
    }
    return outcome_.function == nullptr ? linkFault(std::string("the object lacks ") + kHostFunction)
                                        : llvm::Error::success();
  }

 private:
  CodeMemory& memory_;
  Outcome& outcome_;
};

/// The address of the object's function.
Result<void*> linkInto(CodeMemory& memory, const std::vector<std::byte>& object) {
  const llvm::StringRef bytes(reinterpret_cast<const char*>(object.data()), object.size());
  auto graph = jitlink::createLinkGraphFromObject(llvm::MemoryBufferRef(bytes, kHostFunction));
  if (!graph) return cannotLink(llvm::toString(graph.takeError()));
  Linking::Outcome outcome;
  jitlink::link(std::move(*graph), std::make_unique<Linking>(memory, outcome));
  if (!outcome.failure.empty()) return cannotLink(outcome.failure);
  return outcome.function;
}

}  // namespace

Result<LinkedCode> linkObjects(std::span<const HostObject> objects) {
  // Code and constants of an object are shorter than its file.
  std::size_t bytes = 0;
  for (const HostObject& object : objects) bytes += object->size();
  const auto memory = std::make_shared<CodeMemory>(bytes);
  LinkedCode code{{}, memory};
  for (const HostObject& object : objects) {
    const LlvmScope scope;
    const Result<void*> function = linkInto(*memory, *object);
    if (!function) return function.error();
    code.functions.push_back(*function);
  }
  if (const std::error_code failed = memory->protect()) return cannotLink(failed.message());
  return code;
}

}  // namespace srjit
