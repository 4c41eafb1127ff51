#include "tests/gpu_model/ptx_machine.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <map>
#include <regex>
#include <set>

#include <fmt/format.h>

#include "compiler/target/architecture.h"
#include "ir/numbers/rounding.h"
#include "tests/gpu_model/ptx_instructions.h"

namespace srjit {
namespace {

struct Operand {
  enum class Kind { kNumber, kRegister, kMemory, kLabel, kList };
  Kind kind = Kind::kNumber;
  std::uint64_t number = 0;        ///< kNumber; kMemory: offset from the register; kLabel: the instruction
  int place = -1;                  ///< kRegister, kMemory: the register, if any
  std::vector<Operand> list = {};  ///< kList: {a, b} or a|b
};

struct PtxInstruction {
  std::string opcode;     ///< as written
  std::string name = {};  ///< plainPtxName() of the opcode
  PtxFunction function = nullptr;
  int guard = -1;
  bool unless = false;
  std::vector<Operand> operands = {};
  std::vector<std::string> texts = {};  ///< texts of the operands
};

struct Program {
  std::string name;
  std::vector<std::string> parameters = {};
  std::vector<std::size_t> parameter_bytes = {};
  std::vector<PtxInstruction> code = {};
  std::map<std::string, std::uint64_t> labels = {};
  std::map<std::string, std::uint64_t> symbols = {};  ///< symbols of shared and local memory, with their addresses
  std::map<std::string, int> registers = {};
  std::size_t shared_bytes = 0, local_bytes = 0;

  int registerOf(const std::string& text) {
    return registers.try_emplace(text, static_cast<int>(registers.size())).first->second;
  }
};

// Shared and local memory have addresses that no pointer of a test has.
constexpr std::uint64_t kSharedBase = std::uint64_t{1} << 60, kLocalBase = std::uint64_t{2} << 60;

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

/// Splits at commas outside of brackets.
std::vector<std::string> splitOperands(const std::string& text) {
  std::vector<std::string> parts;
  int depth = 0;
  std::string part;
  for (const char c : text) {
    depth += c == '{' || c == '[';
    depth -= c == '}' || c == ']';
    if (c == ',' && depth == 0) {
      parts.push_back(trimmed(part));
      part.clear();
    } else {
      part += c;
    }
  }
  if (!trimmed(part).empty()) parts.push_back(trimmed(part));
  return parts;
}

class PtxReader {
 public:
  explicit PtxReader(Program& program) : program_(program) {}

  Operand operand(const std::string& text) {
    using OperandKind = Operand::Kind;
    if (text.front() == '{' || text.find('|') != std::string::npos) {
      Operand list{.kind = OperandKind::kList};
      std::string inner = text.front() == '{' ? text.substr(1, text.size() - 2) : text;
      std::ranges::replace(inner, '|', ',');
      for (const std::string& part : splitOperands(inner)) list.list.push_back(operand(part));
      return list;
    }
    if (text.front() == '[') return memory(trimmed(text.substr(1, text.size() - 2)));
    if (text.front() == '%' || program_.registers.contains(text)) {
      return {.kind = OperandKind::kRegister, .place = program_.registerOf(text)};
    }
    if (text.starts_with("0f") || text.starts_with("0d")) return {.number = std::stoull(text.substr(2), nullptr, 16)};
    if (std::isdigit(static_cast<unsigned char>(text.front())) || text.front() == '-') {
      return {.number = static_cast<std::uint64_t>(std::stoll(text, nullptr, 0))};
    }
    if (const auto symbol = program_.symbols.find(text); symbol != program_.symbols.end()) {
      return {.number = symbol->second};
    }
    const auto label = program_.labels.find(text);
    if (label == program_.labels.end()) throw ModelFault("PTX names " + text + ", which is not there");
    return {.kind = OperandKind::kLabel, .number = label->second};
  }

 private:
  Operand memory(const std::string& text) {
    Operand result{.kind = Operand::Kind::kMemory};
    const std::size_t plus = std::min(text.find('+'), text.size());
    const std::string base = trimmed(text.substr(0, plus));
    if (plus < text.size()) result.number = operand(trimmed(text.substr(plus + 1))).number;
    const auto parameter = std::ranges::find(program_.parameters, base);
    if (parameter != program_.parameters.end()) {
      result.number = static_cast<std::uint64_t>(parameter - program_.parameters.begin());
    } else if (base.front() == '%') {
      result.place = program_.registerOf(base);
    } else {
      result.number += operand(base).number;
    }
    return result;
  }

  Program& program_;
};

void declareMemory(const std::string& statement, Program& program) {
  static const std::regex kMemory(R"(\.(shared|local)\s+\.align\s+(\d+)\s+\.b8\s+(\S+)\[(\d+)\])");
  std::smatch found;
  if (!std::regex_match(statement, found, kMemory)) throw ModelFault("no model of the declaration " + statement);
  const bool shared = found[1] == "shared";
  std::size_t& bytes = shared ? program.shared_bytes : program.local_bytes;
  bytes = roundUp(bytes, std::stoul(found[2]));
  program.symbols[found[3]] = (shared ? kSharedBase : kLocalBase) + bytes;
  bytes += std::stoul(found[4]);
}

void readInstruction(const std::string& statement, Program& program) {
  static const std::regex kInstruction(R"((@(!?)(%\S+)\s+)?(\S+)\s*([\s\S]*))");
  std::smatch found;
  if (!std::regex_match(statement, found, kInstruction)) throw ModelFault("PTX that is no instruction: " + statement);
  PtxInstruction instruction{.opcode = found[4]};
  instruction.name = plainPtxName(instruction.opcode);
  instruction.function = findPtxFunction(instruction.name);
  if (found[1].matched) instruction.guard = program.registerOf(found[3]);
  instruction.unless = found[2].length() > 0;
  instruction.texts = splitOperands(found[5]);
  if (instruction.name == "mov.b64" && found[5].str().find('{') != std::string::npos) instruction.function = nullptr;
  program.code.push_back(std::move(instruction));
}

/// Without the braces of blocks, which have registers of their own.
std::string withoutBraces(std::string statement) {
  for (;;) {
    statement = trimmed(statement);
    if (!statement.starts_with('{') && !statement.starts_with('}')) return statement;
    statement.erase(0, 1);
  }
}

void readBody(const std::string& body, Program& program) {
  std::string statement;
  for (const char c : body) {
    if (c == ':') {
      program.labels[withoutBraces(statement)] = program.code.size();
      statement.clear();
    } else if (c != ';') {
      statement += c;
    } else {
      statement = withoutBraces(statement);
      if (statement.starts_with(".reg .b32 ")) program.registerOf(statement.substr(statement.rfind(' ') + 1));
      if (statement.starts_with(".shared") || statement.starts_with(".local")) {
        declareMemory(statement, program);
      } else if (statement.front() != '.') {
        readInstruction(statement, program);
      }
      statement.clear();
    }
  }
  PtxReader reader(program);
  for (PtxInstruction& instruction : program.code) {
    for (const std::string& text : instruction.texts) instruction.operands.push_back(reader.operand(text));
  }
}

Program readKernel(const std::string& name, const std::string& parameters, const std::string& body) {
  Program program{.name = name};
  static const std::regex kParameter(R"(\.param\s+\.u(\d+)\s+(\S+))");
  for (const std::string& text : splitOperands(parameters)) {
    std::smatch found;
    if (!std::regex_match(text, found, kParameter)) throw ModelFault("no model of the parameter " + text);
    program.parameters.push_back(found[2]);
    program.parameter_bytes.push_back(std::stoul(found[1]) / 8);
  }
  readBody(body, program);
  return program;
}

struct Thread {
  std::vector<std::uint64_t> registers;
  std::vector<std::byte> local;
  std::size_t at = 0;
  bool done = false;
};

/// One block. Its threads run one after another, each to the next barrier or shuffle.
class Block {
 public:
  Block(const Program& program, const ModelLaunch& launch, unsigned x, unsigned y, ModelMemory& memory)
      : program_(program), launch_(launch), memory_(memory), shared_(program.shared_bytes), threads_(launch.block[0]) {
    for (unsigned t = 0; t < threads_.size(); ++t) {
      threads_[t].registers.resize(program.registers.size());
      threads_[t].local.resize(program.local_bytes);
      set(threads_[t], "%tid.x", t);
      set(threads_[t], "%ntid.x", launch.block[0]);
      set(threads_[t], "%nctaid.x", launch.grid[0]);
      set(threads_[t], "%ctaid.x", x);
      set(threads_[t], "%ctaid.y", y);
    }
  }

  // Threads meet those of their warp, and at barriers those of their block.
  void run() {
    for (;;) {
      for (std::size_t first = 0; first < threads_.size(); first += kWarpLanes) {
        const auto warp =
            std::span(threads_).subspan(first, std::min<std::size_t>(kWarpLanes, threads_.size() - first));
        for (const PtxInstruction* at = meeting(warp); at != nullptr && at->name != "bar"; at = meeting(warp)) {
          meet(*at, warp);
        }
      }
      if (meeting(threads_) == nullptr) return;
      for (Thread& thread : threads_) ++thread.at;
    }
  }

 private:
  /// Where all of the threads wait that have not ended; null if all have.
  const PtxInstruction* meeting(std::span<Thread> threads) const {
    std::set<std::size_t> places;
    for (Thread& thread : threads) {
      if (!thread.done) advance(thread);
      if (!thread.done) places.insert(thread.at);
    }
    if (places.size() > 1) throw ModelFault(program_.name + ": threads wait in different places");
    return places.empty() ? nullptr : &program_.code[*places.begin()];
  }

  void set(Thread& thread, const std::string& name, std::uint64_t value) const {
    const auto found = program_.registers.find(name);
    if (found != program_.registers.end()) thread.registers[static_cast<std::size_t>(found->second)] = value;
  }

  static std::uint64_t& registerOf(Thread& thread, const Operand& operand) {
    return thread.registers[static_cast<std::size_t>(operand.place)];
  }
  static std::uint64_t valueOf(Thread& thread, const Operand& operand) {
    return operand.kind == Operand::Kind::kRegister ? registerOf(thread, operand) : operand.number;
  }

  std::byte* place(Thread& thread, const Operand& operand, std::size_t bytes) const {
    const std::uint64_t address = (operand.place < 0 ? 0 : registerOf(thread, operand)) + operand.number;
    const auto inside = [&](auto& storage, std::uint64_t base) {
      if (address - base + bytes > storage.size())
        throw ModelFault(program_.name + ": an access outside of its memory");
      return storage.data() + (address - base);
    };
    if (address >= kLocalBase) return inside(thread.local, kLocalBase);
    if (address >= kSharedBase) return inside(shared_, kSharedBase);
    return memory_.range(address, bytes);
  }

  void move(Thread& thread, const PtxInstruction& instruction, bool load) const {
    const std::size_t bytes = instruction.name.ends_with("64") ? 8 : instruction.name.ends_with("16") ? 2 : 4;
    Operand memory = instruction.operands[load ? 1 : 0];
    const Operand& value = instruction.operands[load ? 0 : 1];
    const std::vector<Operand> values = value.kind == Operand::Kind::kList ? value.list : std::vector<Operand>{value};
    for (const Operand& element : values) {
      std::byte* const at = place(thread, memory, bytes);
      std::uint64_t bits = load ? 0 : valueOf(thread, element);
      std::memcpy(load ? static_cast<void*>(&bits) : at, load ? at : static_cast<void*>(&bits), bytes);
      if (load) registerOf(thread, element) = bits;
      memory.number += bytes;
    }
  }

  // Between a register of 64 bits and two of 32, the lower half first.
  void join(Thread& thread, const PtxInstruction& instruction) const {
    const Operand &to = instruction.operands[0], &from = instruction.operands[1];
    if (to.kind == Operand::Kind::kList) {
      const std::uint64_t bits = valueOf(thread, from);
      for (std::size_t half = 0; half < 2; ++half) {
        registerOf(thread, to.list[half]) = static_cast<std::uint32_t>(bits >> (32 * half));
      }
    } else {
      registerOf(thread, to) = valueOf(thread, from.list.at(0)) | valueOf(thread, from.list.at(1)) << 32;
    }
  }

  // The result of an atomic addition is not modelled: a register that receives one is never read.
  void addAtomically(Thread& thread, const PtxInstruction& instruction) const {
    const Operand& memory = instruction.operands[instruction.operands.size() - 2];
    std::byte* const at = place(thread, memory, sizeof(double));
    double sum = 0;
    std::memcpy(&sum, at, sizeof sum);
    sum += std::bit_cast<double>(valueOf(thread, instruction.operands.back()));
    std::memcpy(at, &sum, sizeof sum);
  }

  /// Runs up to the next shuffle, vote or barrier, or the end.
  void advance(Thread& thread) const {
    for (;;) {
      const PtxInstruction& i = program_.code.at(thread.at);
      if (i.guard >= 0 && (thread.registers[static_cast<std::size_t>(i.guard)] != 0) == i.unless) {
        ++thread.at;
        continue;
      }
      if (i.name == "bar" || i.name.starts_with("shfl.") || i.name.starts_with("vote.")) return;
      ++thread.at;
      if (i.function != nullptr) {
        const auto operand = [&](std::size_t n) {
          return n < i.operands.size() ? valueOf(thread, i.operands[n]) : std::uint64_t{0};
        };
        registerOf(thread, i.operands[0]) = i.function(operand(1), operand(2), operand(3));
      } else if (i.name.starts_with("ld.param.")) {
        registerOf(thread, i.operands[0]) = launch_.arguments.at(i.operands[1].number);
      } else if (i.name.starts_with("ld.") || i.name.starts_with("st.")) {
        move(thread, i, i.name.starts_with("ld."));
      } else if (i.name == "mov.b64") {
        join(thread, i);
      } else if (i.name == "red.global.add.f64" || i.name == "atom.global.add.f64") {
        addAtomically(thread, i);
      } else if (i.name == "bra") {
        thread.at = i.operands[0].number;
      } else if (i.name == "exit" || i.name == "ret") {
        thread.done = true;
        return;
      } else {
        throw ModelFault("no model of the instruction " + i.opcode);
      }
    }
  }

  static void meet(const PtxInstruction& instruction, std::span<Thread> warp) {
    std::vector<std::uint64_t> values;
    for (Thread& thread : warp) values.push_back(valueOf(thread, instruction.operands[1]));
    const bool crosses = instruction.name == "shfl.bfly.b32", votes = instruction.name == "vote.all.pred";
    if (!crosses && !votes && instruction.name != "shfl.down.b32") {
      throw ModelFault("no model of the instruction " + instruction.opcode);
    }
    const bool all = std::ranges::all_of(values, [](std::uint64_t value) { return value != 0; });
    const Operand& to = instruction.operands[0];
    for (std::size_t t = 0; t < warp.size(); ++t) {
      const std::uint64_t lanes = votes ? 0 : valueOf(warp[t], instruction.operands[2]);
      const std::size_t from = crosses ? t ^ lanes : t + lanes;
      registerOf(warp[t], to.kind == Operand::Kind::kList ? to.list[0] : to) = votes ? static_cast<std::uint64_t>(all)
                                                                               : from < warp.size() ? values[from]
                                                                                                    : values[t];
      ++warp[t].at;
    }
  }

  const Program& program_;
  const ModelLaunch& launch_;
  ModelMemory& memory_;
  mutable std::vector<std::byte> shared_;
  std::vector<Thread> threads_;
};

class PtxModel final : public KernelModel {
 public:
  explicit PtxModel(Program program)
      : KernelModel({.name = program.name, .registers = 32, .stack_bytes = static_cast<unsigned>(program.local_bytes)}),
        program_(std::move(program)) {}

  std::vector<std::size_t> parameterBytes() const override { return program_.parameter_bytes; }

  void run(const ModelLaunch& launch, ModelMemory& memory) const override {
    for (unsigned y = 0; y < launch.grid[1]; ++y) {
      for (unsigned x = 0; x < launch.grid[0]; ++x) Block(program_, launch, x, y, memory).run();
    }
  }

 private:
  Program program_;
};

}  // namespace

std::optional<ModelImage> readPtx(const char* text) {
  // Other images may not be null-terminated.
  if (std::strncmp(text, "//", 2) != 0 && std::strncmp(text, ".version", 8) != 0) return std::nullopt;
  static const std::regex kComment("//[^\n]*");
  const std::string ptx = std::regex_replace(std::string(text), kComment, "");
  static const std::regex kTarget(R"(\.target\s+(sm_\d+))");
  std::smatch found;
  if (!std::regex_search(ptx, found, kTarget)) return std::nullopt;
  ModelImage image{.is_ptx = true, .arch = found[1], .kernels = {}};
  static const std::regex kEntry(R"(\.entry\s+(\w+)\s*\()");
  for (auto entry = std::sregex_iterator(ptx.begin(), ptx.end(), kEntry); entry != std::sregex_iterator(); ++entry) {
    const auto parameters = static_cast<std::size_t>(entry->position() + entry->length());
    const std::size_t parameters_end = ptx.find(')', parameters);
    const std::size_t body = ptx.find('{', parameters_end) + 1;
    // Only the last statement is a closing brace on a line of its own.
    const std::size_t end = ptx.find("\n}", body);
    image.kernels.push_back(std::make_unique<PtxModel>(
        readKernel((*entry)[1], ptx.substr(parameters, parameters_end - parameters), ptx.substr(body, end - body))));
  }
  return image;
}

}  // namespace srjit
