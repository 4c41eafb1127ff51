// The interface that makes machine code. It separates making kernels from running them: its implementation is LLVM with
// an assembler, and tests have one that makes models of kernels.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/interpreter/handler_table.h"
#include "compiler/kernels/assembler.h"
#include "compiler/lowering/source_map.h"
#include "compiler/nvptx/options.h"
#include "ir/error.h"
#include "passes/dag.h"

namespace srjit {

/// Makes images. Thread-safe and parallel.
class ImageMaker {
 public:
  virtual ~ImageMaker() = default;

  /// The kernels of compiler/nvptx/kernels.h and compiler/interpreter/kernel.h, for options.arch. Errors: as there, and
  /// the assembler's.
  virtual Result<KernelImage> rows(std::span<const Dag> dags, const DeviceOptions& options) const = 0;
  virtual Result<KernelImage> interpreter(const HandlerTable& table, const DeviceOptions& options) const = 0;
  virtual Result<KernelImage> totals(const DeviceOptions& options) const = 0;
  /// Those of compiler/interpreter/lanes/arguments.h.
  virtual Result<KernelImage> lanes(const DeviceOptions& options) const = 0;

  /// As compilerIdentity(). Part of every cache key.
  virtual std::string identity() const = 0;
};

/// What decides the bits of LLVM's objects besides the arguments: a hash of this library's sources and tables up to the
/// compiler, its version, LLVM's version, and the kind of machine. Thread-safe.
std::string buildIdentity();
/// The same for images: also the assembler with its file's size and time. Made at the first call; later ones copy it.
/// Thread-safe.
std::string compilerIdentity();

/// LLVM and the assembler that was found; PTX where there is none. With a directory of `listings`, rows kernels name
/// the lines of writeGraphListing(), which is written there before; a failure to do so is an error of the image.
std::unique_ptr<ImageMaker> llvmImageMaker(const std::string& listings = {});

/// The graphs of kernels, as a text that profilers and debuggers show beside machine code.
struct GraphListing {
  /// printDag() of each graph, below a line with the name of its kernel. Literals that are hoisted and parameters are
  /// those of these graphs: graphs that differ only in them may have the same code.
  std::string text;
  /// By graph: the lines of its operators.
  std::vector<SourceMap> sources;
};

/// Of graphs that become the kernels of one module. `file` is how code names the text: for profilers an absolute path.
GraphListing listGraphs(std::span<const Dag> dags, std::string_view file);

/// Writes the text to a file of `directory`, which is made if it is missing. Its name is a digest of the text. An
/// existing file is complete, and stays. Thread-safe; several processes, also of several hosts, may use one directory.
/// Errors: kIo.
Result<GraphListing> writeGraphListing(std::span<const Dag> dags, const std::filesystem::path& directory);

}  // namespace srjit
