#include <algorithm>
#include <map>
#include <optional>

#include "compiler/direct/emitter.h"
#include "compiler/sass/cubin_writer.h"
#include "compiler/sass/listing.h"
#include "compiler/target/architecture.h"
#include "tools/explain/liveness.h"
#include "tools/explain/stages.h"

namespace srjit::explain {
namespace {

std::string_view nameOfPipe(sass::Pipe pipe) {
  switch (pipe) {
    case sass::Pipe::kFma:
      return "fma";
    case sass::Pipe::kAlu:
      return "alu";
    case sass::Pipe::kSpecial:
      return "special";
    case sass::Pipe::kDouble:
      return "double";
    case sass::Pipe::kMemory:
      return "memory";
    case sass::Pipe::kUniform:
      return "uniform";
    case sass::Pipe::kControl:
      return "control";
  }
  __builtin_unreachable();
}

MachineFacts factsOfWord(const sass::Instruction& instruction, unsigned architecture, unsigned live) {
  const sass::FormInfo& form = sass::infoOf(instruction.form);
  const sass::Control& control = instruction.control;
  MachineFacts facts;
  facts.pipe = nameOfPipe(form.pipe);
  facts.latency = form.latency;
  facts.variable_latency = sass::timingOf(instruction.form, architecture) == sass::Timing::kVariable;
  facts.stall = control.stall;
  facts.yield = control.yield;
  for (unsigned barrier = 0; barrier < sass::kBarriers; ++barrier) {
    if ((control.wait_mask >> barrier & 1) != 0) facts.waits.push_back(barrier);
  }
  if (control.write_barrier != sass::kNoBarrier) facts.write_barrier = control.write_barrier;
  if (control.read_barrier != sass::kNoBarrier) facts.read_barrier = control.read_barrier;
  facts.live = live;
  return facts;
}

void addDirectCounts(Stage& stage, unsigned registers) {
  double instructions = 0, of_nodes = 0, cycles = 0, live = 0;
  std::map<std::string, double> pipes;
  for (const Line& line : stage.lines) {
    if (!line.machine) continue;
    ++instructions;
    live = std::max(live, static_cast<double>(line.machine->live));
    cycles += line.machine->stall;
    if (line.nodes.empty()) continue;
    ++of_nodes;
    ++pipes[line.machine->pipe];
  }
  stage.counts = {{"instructions", instructions},
                  {"instructions of nodes", of_nodes},
                  {"rows at once", kWarpLanes},
                  {"issue cycles of the code without waits for barriers", cycles},
                  {"registers that the kernel declares", static_cast<double>(registers)},
                  {"most registers live at once", live}};
  for (const auto& [pipe, count] : pipes) stage.counts.push_back({"instructions of nodes on the pipe " + pipe, count});
}

}  // namespace

Result<Stage> directStage(const Request& request, const FinalGraph& graph) {
  DirectOptions options;
  options.architecture = architectureOf(request.architecture).number;
  options.precision = request.precision;
  options.math = request.math;
  Result<DirectEmitter> emitter = DirectEmitter::create(options);
  if (!emitter) return emitter.error();
  DirectTrace trace;
  const DirectPart part = emitter->emit(graph.dag, trace);
  if (!part.refused.empty()) return Error{Errc::kUnsupported, "an expression " + tooLongText(options), {}};
  const Result<DirectImage> image = joinDirect({&part, 1}, options);
  if (!image) return image.error();
  const std::size_t prologue = image->words.size() - part.words.size();
  // Padding at the end is left out.
  std::size_t size = image->words.size();
  const auto code = sass::decodeAll(image->words, options.architecture);
  while (size > 0 && code[size - 1] && code[size - 1]->form == sass::Form::kNop) --size;
  std::vector<std::size_t> groups;
  for (const DirectGroup& group : image->groups) groups.push_back(group.code / sizeof(sass::Word));
  const std::vector<unsigned> live = liveRegisters({code.data(), size}, groups);

  CubinKernel kernel;
  kernel.name = kDirectKernel;
  kernel.registers = image->registers;
  kernel.code.assign(image->words.begin(), image->words.begin() + static_cast<std::ptrdiff_t>(size));
  Stage stage{
      "direct", "direct", "machine code of the direct tier", "as sr-jit sass --tier direct prints it, decoded", ";",
      {},       {}};
  const std::string text = sass::listing(kernel, options.architecture, {}, false);
  std::size_t word = 0;
  for (std::size_t first = text.find('\n') + 1; first < text.size();) {  // behind the line about the kernel
    const std::size_t end = text.find('\n', first);
    Line& line = stage.lines.emplace_back(Line{text.substr(first, end - first), {}, {}, false});
    first = end + 1;
    if (!line.text.starts_with("  0x")) continue;
    line.is_instruction = true;
    if (code[word]) line.machine = factsOfWord(*code[word], options.architecture, live[word]);
    if (word >= prologue) {
      for (const NodeId node : trace.nodes[word - prologue]) line.nodes.push_back(graph.ids[node]);
    }
    ++word;
  }
  addDirectCounts(stage, image->registers);
  return stage;
}

}  // namespace srjit::explain
