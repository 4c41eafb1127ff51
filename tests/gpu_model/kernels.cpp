#include "tests/gpu_model/kernels.h"

#include <bit>
#include <cstring>
#include <sstream>

#include "compiler/interpreter/kernel.h"
#include "compiler/lowering/source_map.h"
#include "compiler/nvptx/totals_kernel.h"
#include "tests/gpu_model/front_end/models.h"
#include "tests/gpu_model/programs.h"
#include "tests/gpu_model/ptx_machine.h"

namespace srjit {
namespace {

// The format, in words: kind of file, architecture, kind of image, options, then facts and contents of each kernel.
constexpr const char* kWordStart = "srjit-model-";
constexpr const char* kCubinWord = "srjit-model-cubin";
constexpr const char* kPtxWord = "srjit-model-ptx";
constexpr const char* kEndWord = "end";

class Writer {
 public:
  Writer(const char* kind, const DeviceOptions& options, bool is_ptx) {
    words(is_ptx ? kPtxWord : kCubinWord, options.arch, kind);
    const LossSpec loss = options.loss.value_or(LossSpec{});
    words(static_cast<int>(options.precision), static_cast<int>(options.math), options.rows_per_thread,
          options.strided_columns, options.loss.has_value(), static_cast<int>(loss.term), loss.weighted,
          loss.skip_invalid);
  }

  template <class... Word>
  void words(const Word&... word) {
    ((text_ << word << ' '), ...);
  }
  void facts(const KernelFacts& facts, const std::string& name) {
    words(name, facts.registers, facts.stack_bytes, facts.spill_store_bytes, facts.spill_load_bytes);
  }
  std::string finish() {
    words(kEndWord);
    return text_.str();
  }

 private:
  std::ostringstream text_;
};

class ModelReader {
 public:
  explicit ModelReader(const char* text) : text_(text) {}

  std::string word() {
    std::string value;
    text_ >> value;
    return value;
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    text_ >> value;
    return value;
  }
  KernelFacts facts() {
    KernelFacts facts;
    facts.name = word();
    for (unsigned* const fact :
         {&facts.registers, &facts.stack_bytes, &facts.spill_store_bytes, &facts.spill_load_bytes}) {
      *fact = static_cast<unsigned>(number());
    }
    return facts;
  }
  bool atEnd() { return word() == kEndWord && text_.good(); }
  bool good() const { return text_.good(); }

 private:
  std::istringstream text_;
};

void writeGraph(Writer& writer, const Dag& dag) {
  writer.words(dag.parameters().size(), dag.size(), dag.roots().size());
  for (const Node& node : dag.nodes()) {
    writer.words(static_cast<int>(node.kind), static_cast<int>(node.op), node.index,
                 std::bit_cast<std::uint64_t>(node.value), node.operands[0], node.operands[1], node.operands[2]);
  }
  for (const NodeId root : dag.roots()) writer.words(root);
}

ModelGraph readGraph(ModelReader& reader) {
  ModelGraph graph;
  graph.parameters = reader.number();
  const std::uint64_t nodes = reader.number(), roots = reader.number();
  for (std::uint64_t i = 0; i < nodes && reader.good(); ++i) {
    Node node;
    node.kind = static_cast<Token::Kind>(reader.number());
    node.op = static_cast<Op>(reader.number());
    if (node.isOperator()) node.operand_count = static_cast<std::uint8_t>(arityOf(node.op));
    node.index = static_cast<std::uint32_t>(reader.number());
    node.value = std::bit_cast<double>(reader.number());
    for (NodeId& operand : node.operands) operand = static_cast<NodeId>(reader.number());
    graph.nodes.push_back(node);
  }
  for (std::uint64_t i = 0; i < roots && reader.good(); ++i) {
    graph.roots.push_back(static_cast<NodeId>(reader.number()));
  }
  return graph;
}

HandlerTable readTable(ModelReader& reader, const ModelOptions& options, Math math) {
  InterpreterSpec spec;
  spec.precision = options.precision;
  spec.math = math;
  spec.rows_per_thread = options.rows_per_thread;
  spec.depth = static_cast<unsigned>(reader.number());
  const std::uint64_t ops = reader.number();
  for (std::uint64_t i = 0; i < ops && reader.good(); ++i) spec.ops.push_back(static_cast<Op>(reader.number()));
  return HandlerTable(std::move(spec));
}

}  // namespace

std::string rowsModel(std::span<const Dag> dags, const DeviceOptions& options, bool is_ptx,
                      std::vector<KernelFacts> facts) {
  Writer writer("rows", options, is_ptx);
  writer.words(dags.size());
  facts.resize(dags.size());
  for (std::size_t i = 0; i < dags.size(); ++i) {
    writer.facts(facts[i], rowsKernelName(i));
    writeGraph(writer, dags[i]);
  }
  return writer.finish();
}

std::string interpreterModel(const HandlerTable& table, const DeviceOptions& options, bool is_ptx, KernelFacts facts) {
  Writer writer("interpreter", options, is_ptx);
  writer.facts(facts, kInterpreterKernel);
  writer.words(table.spec().depth, table.spec().ops.size());
  for (const Op op : table.spec().ops) writer.words(static_cast<int>(op));
  return writer.finish();
}

std::string totalsModel(const DeviceOptions& options, bool is_ptx, KernelFacts facts) {
  Writer writer("totals", options, is_ptx);
  writer.facts(facts, kTotalsKernel);
  return writer.finish();
}

std::string frontEndModel(const DeviceOptions& options, bool is_ptx, std::span<const KernelFacts> facts) {
  Writer writer("front-end", options, is_ptx);
  for (const KernelFacts& of : facts) writer.facts(of, of.name);
  return writer.finish();
}

std::optional<ModelImage> readModel(const char* text) {
  // Other images may not be null-terminated.
  if (std::strncmp(text, kWordStart, std::strlen(kWordStart)) != 0) return readPtx(text);
  ModelReader reader(text);
  const std::string file = reader.word();
  if (file != kCubinWord && file != kPtxWord) return std::nullopt;
  ModelImage image{file == kPtxWord, reader.word(), {}};
  const std::string kind = reader.word();
  ModelOptions options;
  options.precision = static_cast<Precision>(reader.number());
  const auto math = static_cast<Math>(reader.number());
  options.rows_per_thread = static_cast<unsigned>(reader.number());
  options.strided_columns = reader.number() != 0;
  const bool has_loss = reader.number() != 0;
  LossSpec loss;
  loss.term = static_cast<LossTerm>(reader.number());
  loss.weighted = reader.number() != 0;
  loss.skip_invalid = reader.number() != 0;
  if (has_loss) options.loss = loss;
  if (kind == "rows") {
    const std::uint64_t kernels = reader.number();
    for (std::uint64_t i = 0; i < kernels && reader.good(); ++i) {
      KernelFacts facts = reader.facts();
      image.kernels.push_back(makeRowsModel(readGraph(reader), options, std::move(facts)));
    }
  } else if (kind == "interpreter") {
    KernelFacts facts = reader.facts();
    image.kernels.push_back(makeInterpreterModel(readTable(reader, options, math), options, std::move(facts)));
  } else if (kind == "totals") {
    image.kernels.push_back(makeTotalsModel(options, reader.facts()));
  } else if (kind == "front-end") {
    image.kernels.push_back(makeEncodeModel(reader.facts()));
    image.kernels.push_back(makeLinkModel(reader.facts()));
  }
  if (image.kernels.empty() || !reader.atEnd()) return std::nullopt;
  return image;
}

}  // namespace srjit
