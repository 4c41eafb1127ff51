#include <algorithm>
#include <bitset>
#include <map>

#include "compiler/direct/emitter.h"
#include "compiler/sass/cubin.h"
#include "compiler/target/architecture.h"
#include "tools/explain/stages.h"

namespace srjit::explain {
namespace {

using Registers = std::bitset<256>;

void addRange(Registers& set, std::uint8_t first, unsigned count) {
  if (first == sass::kZero) return;
  for (unsigned r = first; r < first + count && r < sass::kZero; ++r) set.set(r);
}

/// What one instruction does to registers, and what may follow it.
struct Effect {
  Registers reads, writes;
  bool always_writes = false;  ///< it is not guarded
  std::vector<std::size_t> next;
};

Effect effectOf(const sass::Instruction& i, std::size_t at, std::size_t size, std::span<const std::size_t> targets) {
  Effect effect;
  const sass::FormInfo& form = sass::infoOf(i.form);
  if (form.pipe != sass::Pipe::kUniform) addRange(effect.writes, i.destination, form.result_registers);
  for (std::size_t s = 0; s < i.sources.size(); ++s) addRange(effect.reads, i.sources[s], form.source_registers[s]);
  effect.always_writes = i.guard == sass::kTrue;
  const bool may_pass = i.guard != sass::kTrue;
  if (i.form == sass::Form::kBra) {
    const auto offset = static_cast<std::int32_t>(i.immediate) / static_cast<std::int32_t>(sizeof(sass::Word));
    const std::ptrdiff_t target = static_cast<std::ptrdiff_t>(at) + 1 + offset;
    if (target >= 0 && target < static_cast<std::ptrdiff_t>(size))
      effect.next.push_back(static_cast<std::size_t>(target));
    if (!may_pass) return effect;
  } else if (i.form == sass::Form::kBrx) {
    effect.next.assign(targets.begin(), targets.end());
    return effect;
  } else if (i.form == sass::Form::kExit && !may_pass) {
    return effect;
  }
  if (at + 1 < size) effect.next.push_back(at + 1);
  return effect;
}

/// In the order of sass::Pipe.
constexpr const char* kPipes[] = {"fma", "alu", "special", "double", "memory", "uniform", "control"};

Json factsOfWord(const sass::Instruction& instruction, unsigned architecture, unsigned live) {
  const sass::FormInfo& form = sass::infoOf(instruction.form);
  const sass::Control& control = instruction.control;
  const bool is_variable = sass::timingOf(instruction.form, architecture) == sass::Timing::kVariable;
  Json waits = Json::array();
  for (unsigned barrier = 0; barrier < sass::kBarriers; ++barrier) {
    if ((control.wait_mask >> barrier & 1) != 0) waits.push_back(barrier);
  }
  Json facts{{"pipe", kPipes[static_cast<std::size_t>(form.pipe)]},
             {"latency", form.latency},
             {"timing", is_variable ? "variable" : "fixed"},
             {"stall", control.stall},
             {"yield", control.yield},
             {"waits", std::move(waits)}};
  if (control.write_barrier != sass::kNoBarrier) facts["write_barrier"] = control.write_barrier;
  if (control.read_barrier != sass::kNoBarrier) facts["read_barrier"] = control.read_barrier;
  facts["live"] = live;
  return facts;
}

void addDirectCounts(Stage& stage, unsigned registers) {
  double instructions = 0, of_nodes = 0, cycles = 0, live = 0;
  std::map<std::string, double> pipes;
  for (const Line& line : stage.lines) {
    if (line.machine.is_null()) continue;
    ++instructions;
    live = std::max(live, line.machine["live"].get<double>());
    cycles += line.machine["stall"].get<double>();
    if (line.nodes.empty()) continue;
    ++of_nodes;
    ++pipes[line.machine["pipe"].get<std::string>()];
  }
  stage.counts = {{"instructions", instructions},
                  {"instructions of nodes", of_nodes},
                  {"rows at once", kWarpLanes},
                  {"issue cycles of the code without waits for barriers", cycles},
                  {"registers that the kernel declares", static_cast<double>(registers)},
                  {"most registers live at once", live}};
  for (const auto& [pipe, count] : pipes) stage.counts.emplace_back("instructions of nodes on the pipe " + pipe, count);
}

}  // namespace

std::vector<unsigned> liveRegisters(std::span<const std::optional<sass::Instruction>> code,
                                    std::span<const std::size_t> targets) {
  std::vector<Effect> effects(code.size());
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (code[i]) {
      effects[i] = effectOf(*code[i], i, code.size(), targets);
    } else if (i + 1 < code.size()) {
      effects[i].next.push_back(i + 1);
    }
  }
  std::vector<Registers> before(code.size()), after(code.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = code.size(); i-- > 0;) {
      Registers live;
      for (const std::size_t next : effects[i].next) live |= before[next];
      after[i] = live;
      if (effects[i].always_writes) live &= ~effects[i].writes;
      live |= effects[i].reads;
      changed |= live != before[i];
      before[i] = live;
    }
  }
  std::vector<unsigned> counts;
  for (std::size_t i = 0; i < code.size(); ++i) {
    counts.push_back(static_cast<unsigned>((before[i] | after[i] | effects[i].writes).count()));
  }
  return counts;
}

Result<Json> directStage(const Request& request, const FinalGraph& graph) {
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
  Stage stage{"direct", "direct", "machine code of the direct tier", "as sr-jit sass --tier direct prints it, decoded",
              ";"};
  const std::string text = sass::listing(kernel, options.architecture, {}, false);
  std::size_t word = 0;
  for (const std::string& printed : splitLines(text.substr(text.find('\n') + 1))) {  // behind the line about the kernel
    Line& line = stage.lines.emplace_back(Line{printed, {}, printed.starts_with("  0x")});
    if (!line.is_instruction) continue;
    if (code[word]) line.machine = factsOfWord(*code[word], options.architecture, live[word]);
    if (word >= prologue) {
      for (const NodeId node : trace[word - prologue]) line.nodes.push_back(graph.ids[node]);
    }
    ++word;
  }
  addDirectCounts(stage, image->registers);
  return stage.json();
}

}  // namespace srjit::explain
