#include "tests/gpu_model/kernels.h"

#include <bit>
#include <cstring>

#include <nlohmann/json.hpp>

#include "compiler/interpreter/kernel.h"
#include "compiler/lowering/source_map.h"
#include "compiler/nvptx/kernels.h"
#include "tests/gpu_model/lanes/models.h"
#include "tests/gpu_model/programs.h"
#include "tests/gpu_model/ptx_machine.h"

namespace srjit {
namespace {

using Json = nlohmann::json;

// An image is this word and an object: kind, architecture and options, then facts and content of each kernel.
constexpr std::string_view kStart = "srjit-model ";

std::string imageOf(const char* kind, const DeviceOptions& options, bool is_ptx, Json kernels) {
  Json image = {{"kind", kind},
                {"ptx", is_ptx},
                {"arch", options.arch},
                {"precision", options.precision},
                {"math", options.math},
                {"rows_per_thread", options.rows_per_thread},
                {"strided", options.strided_columns},
                {"kernels", std::move(kernels)}};
  if (options.loss) image["loss"] = {options.loss->term, options.loss->weighted, options.loss->skip_invalid};
  return std::string(kStart) + image.dump();
}

Json kernelOf(const KernelFacts& facts, const std::string& name, Json content = {}) {
  return {{"facts", {name, facts.registers, facts.stack_bytes, facts.spill_store_bytes, facts.spill_load_bytes}},
          {"content", std::move(content)}};
}

KernelFacts factsOf(const Json& kernel) {
  const Json& facts = kernel.at("facts");
  return {facts.at(0), facts.at(1), facts.at(2), facts.at(3), facts.at(4)};
}

Json contentOf(const Dag& dag) {
  Json nodes = Json::array();
  for (const Node& node : dag.nodes()) {
    nodes.push_back({node.kind, node.op, node.index, std::bit_cast<std::uint64_t>(node.value), node.operands});
  }
  return {{"parameters", dag.parameters().size()}, {"nodes", std::move(nodes)}, {"roots", dag.roots()}};
}

ModelGraph graphOf(const Json& content) {
  ModelGraph graph{.nodes = {}, .roots = content.at("roots"), .parameters = content.at("parameters")};
  for (const Json& fields : content.at("nodes")) {
    Node node;
    node.kind = fields.at(0);
    node.op = fields.at(1);
    node.index = fields.at(2);
    node.value = std::bit_cast<double>(fields.at(3).get<std::uint64_t>());
    node.operands = fields.at(4);
    if (node.isOperator()) node.operand_count = static_cast<std::uint8_t>(arityOf(node.op));
    graph.nodes.push_back(node);
  }
  return graph;
}

HandlerTable tableOf(const Json& content, const ModelOptions& options, Math math) {
  InterpreterSpec spec;
  spec.precision = options.precision;
  spec.math = math;
  spec.rows_per_thread = options.rows_per_thread;
  spec.depth = content.at("depth");
  spec.ops = content.at("ops").get<std::vector<Op>>();
  return HandlerTable(std::move(spec));
}

std::vector<std::unique_ptr<KernelModel>> modelsOf(const Json& image) {
  ModelOptions options{.precision = image.at("precision"),
                       .rows_per_thread = image.at("rows_per_thread"),
                       .loss = {},
                       .strided_columns = image.at("strided")};
  if (image.contains("loss")) {
    const Json& loss = image["loss"];
    options.loss = LossSpec{.term = loss.at(0), .weighted = loss.at(1), .skip_invalid = loss.at(2)};
  }
  const std::string kind = image.at("kind");
  std::vector<std::unique_ptr<KernelModel>> models;
  for (const Json& kernel : image.at("kernels")) {
    KernelFacts facts = factsOf(kernel);
    const Json& content = kernel.at("content");
    if (kind == "rows") {
      models.push_back(makeRowsModel(graphOf(content), options, std::move(facts)));
    } else if (kind == "interpreter") {
      models.push_back(makeInterpreterModel(tableOf(content, options, image.at("math")), options, std::move(facts)));
    } else if (kind == "totals") {
      models.push_back(makeTotalsModel(options, std::move(facts)));
    } else {
      models.push_back(models.empty() ? makeTreesModel(std::move(facts)) : makeLossesModel(std::move(facts)));
    }
  }
  return models;
}

}  // namespace

std::string rowsModel(std::span<const Dag> dags, const DeviceOptions& options, bool is_ptx,
                      std::vector<KernelFacts> facts) {
  facts.resize(dags.size());
  Json kernels = Json::array();
  for (std::size_t i = 0; i < dags.size(); ++i) {
    kernels.push_back(kernelOf(facts[i], rowsKernelName(i), contentOf(dags[i])));
  }
  return imageOf("rows", options, is_ptx, std::move(kernels));
}

std::string interpreterModel(const HandlerTable& table, const DeviceOptions& options, bool is_ptx, KernelFacts facts) {
  Json content = {{"depth", table.spec().depth}, {"ops", table.spec().ops}};
  return imageOf("interpreter", options, is_ptx,
                 Json::array({kernelOf(facts, kInterpreterKernel, std::move(content))}));
}

std::string totalsModel(const DeviceOptions& options, bool is_ptx, KernelFacts facts) {
  return imageOf("totals", options, is_ptx, Json::array({kernelOf(facts, kTotalsKernel)}));
}

std::string lanesModel(const DeviceOptions& options, bool is_ptx, std::span<const KernelFacts> facts) {
  Json kernels = Json::array();
  for (const KernelFacts& of : facts) kernels.push_back(kernelOf(of, of.name));
  return imageOf("lanes", options, is_ptx, std::move(kernels));
}

std::optional<ModelImage> readModel(const char* text) {
  // Other images may not be null-terminated.
  if (std::strncmp(text, kStart.data(), kStart.size()) != 0) return readPtx(text);
  const Json image = Json::parse(text + kStart.size(), nullptr, false);
  if (image.is_discarded()) return std::nullopt;
  return ModelImage{image.at("ptx"), image.at("arch"), modelsOf(image)};
}

}  // namespace srjit
