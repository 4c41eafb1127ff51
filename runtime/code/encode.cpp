#include "runtime/code/encode.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include "compiler/interpreter/bytecode.h"
#include "compiler/nvptx/options.h"
#include "ir/ops.h"
#include "runtime/evaluation/optimized_dag.h"
#include "runtime/platform/clock.h"

namespace srjit {
namespace {

/// What the columns and slots of a program may take of a block's shared memory: three and two parts of seven, so that
/// two are left for tokens. With four teams, which share the columns of one strip, there is room for four times as many
/// columns as with one; slots are of each team. What keeps to that can be launched so (chooseGeometry).
struct InterpreterLimits {
  std::size_t columns, slots;

  InterpreterLimits(std::size_t shared_bytes, Precision precision) {
    const std::size_t seventh = shared_bytes / 7;
    const std::size_t strip_bytes =
        std::size_t{kBlockThreads / kBlockWarps} * 4 * static_cast<std::size_t>(bytesOf(precision));
    columns = 3 * seventh / strip_bytes;
    slots = 2 * seventh / (kBlockWarps * strip_bytes);
  }
};

// Graphs of so many expressions are the fastest to make, since their hash tables stay in a near cache; fewer where that
// keeps all threads busy.
constexpr std::size_t kMaxEncodedChunk = 1024, kMinEncodedChunk = 64;

/// Adjacent chosen expressions with one graph.
struct Chunk {
  std::size_t first, last;  // of the chosen
  std::size_t section;
  std::size_t tokens;  // of the expressions
  std::optional<Dag> dag = {};
  std::optional<Error> error = {};
  // What the graph has:
  std::vector<bool> operators = std::vector<bool>(allOps().size());
  std::vector<bool> variables = {};
  Bytecode code = {};
  std::vector<std::uint32_t> lengths = {};  // of the programs
  ParameterTable parameters = {};
  std::vector<Failure> failures = {};
};

struct SectionDraft {
  std::size_t first, last;               // of the chosen
  std::vector<std::uint32_t> columns;    // staged columns
  std::vector<std::uint32_t> staged_as;  // by variable
};

class ProgramEncoder {
 public:
  explicit ProgramEncoder(const CodeRequest& request)
      : request_(request),
        source_(request.source),
        limits_(request.queue.cuda->limits().shared_bytes_per_block, request.source.precision) {}

  DeviceCode run() {
    const Stopwatch passes;
    findSections();
    makeGraphs();
    stageColumns();
    code_.report.seconds_passes = passes.seconds();
    const Stopwatch encoding;
    encodeChunks();
    link();
    code_.report.seconds_codegen = encoding.seconds();
    return std::move(code_);
  }

 private:
  // One section for all, unless they have too many variables. Then neighbours share one as long as their columns fit.
  void findSections() {
    const std::size_t count = request_.chosen.size();
    if (source_.variables <= limits_.columns) {
      if (count > 0) sections_.push_back({0, count, {}, {}});
      return;
    }
    std::vector<std::size_t> seen(source_.variables, SIZE_MAX);  // the number of the section that has the column
    std::vector<std::uint32_t> fresh;
    std::size_t columns = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto tokens = source_.expressions[request_.chosen[i]].tokens();
      const auto findFresh = [&] {
        fresh.clear();
        for (const Token& token : tokens) {
          if (token.kind == Token::Kind::kVariable && seen[token.index] != sections_.size())
            fresh.push_back(token.index);
        }
        std::sort(fresh.begin(), fresh.end());
        fresh.erase(std::unique(fresh.begin(), fresh.end()), fresh.end());
      };
      findFresh();
      if (i == 0 || columns + fresh.size() > limits_.columns) {
        sections_.push_back({i, i, {}, {}});
        columns = 0;
        findFresh();
      }
      for (const std::uint32_t variable : fresh) seen[variable] = sections_.size();
      columns += fresh.size();
      sections_.back().last = i + 1;
    }
  }

  void makeGraphs() {
    const std::size_t size = std::clamp(request_.chosen.size() / (std::size_t{4} * request_.threads) + 1,
                                        kMinEncodedChunk, kMaxEncodedChunk);
    struct Range {
      std::size_t first, last, section;
    };
    std::vector<Range> ranges;
    for (std::size_t s = 0; s < sections_.size(); ++s) {
      for (std::size_t first = sections_[s].first; first < sections_[s].last; first += size) {
        ranges.push_back({first, std::min(first + size, sections_[s].last), s});
      }
    }
    std::vector<std::vector<Chunk>> made(ranges.size());
    tbb::parallel_for(std::size_t{0}, ranges.size(),
                      [&](std::size_t i) { makeGraph(ranges[i].first, ranges[i].last, ranges[i].section, made[i]); });
    for (std::vector<Chunk>& chunks : made) {
      std::move(chunks.begin(), chunks.end(), std::back_inserter(chunks_));
    }
  }

  /// Adjacent chosen expressions; in `copies` unless they are adjacent in the source, too.
  std::span<const Expression> membersOf(std::size_t first, std::size_t last, std::vector<Expression>& copies) const {
    const auto chosen = request_.chosen.subspan(first, last - first);
    if (chosen.back() - chosen.front() + 1 == chosen.size()) {
      return std::span(source_.expressions).subspan(chosen.front(), chosen.size());
    }
    for (const std::uint32_t e : chosen) copies.push_back(source_.expressions[e]);
    return copies;
  }

  void makeGraph(std::size_t first, std::size_t last, std::size_t section, std::vector<Chunk>& made) const {
    std::vector<Expression> copies;
    const std::span<const Expression> members = membersOf(first, last, copies);
    optimizedDags(members, request_.graphSource(), Tier::kInterpret,
                  [&](std::size_t begin, std::size_t count, Result<Dag> dag) {
                    Chunk& chunk = made.emplace_back(Chunk{first + begin, first + begin + count, section, 0});
                    for (const Expression& member : members.subspan(begin, count)) chunk.tokens += member.size();
                    if (dag) {
                      takeGraph(std::move(*dag), chunk);
                    } else {
                      chunk.error = std::move(dag).error();
                    }
                  });
  }

  static void takeGraph(Dag dag, Chunk& chunk) {
    chunk.variables.resize(dag.variableCount());
    for (const Node& node : dag.nodes()) {
      if (node.kind == Token::Kind::kOp) chunk.operators[static_cast<std::size_t>(node.op)] = true;
      if (node.kind == Token::Kind::kVariable) chunk.variables[node.index] = true;
    }
    chunk.dag.emplace(std::move(dag));
  }

  void stageColumns() {
    std::vector<bool> used_ops(allOps().size());
    std::size_t variables = 0;  // values of subtrees may be among them
    for (const Chunk& chunk : chunks_) variables = std::max(variables, chunk.variables.size());
    for (SectionDraft& section : sections_) section.staged_as.assign(variables, EncodeOptions::kNotStaged);
    for (const Chunk& chunk : chunks_) {
      code_.report.tokens += chunk.tokens;
      if (!chunk.dag) continue;
      code_.report.nodes += chunk.dag->size();
      for (std::size_t op = 0; op < used_ops.size(); ++op) used_ops[op] = used_ops[op] || chunk.operators[op];
      for (std::size_t v = 0; v < chunk.variables.size(); ++v) {
        if (chunk.variables[v]) sections_[chunk.section].staged_as[v] = 0;
      }
    }
    for (SectionDraft& section : sections_) {
      for (std::uint32_t v = 0; v < section.staged_as.size(); ++v) {
        if (section.staged_as[v] == EncodeOptions::kNotStaged) continue;
        section.staged_as[v] = static_cast<std::uint32_t>(section.columns.size());
        section.columns.push_back(v);
      }
    }
    std::vector<Op> ops;
    for (std::size_t op = 0; op < used_ops.size(); ++op) {
      if (used_ops[op]) ops.push_back(static_cast<Op>(op));
    }
    code_.interpreter.emplace();
    code_.interpreter->family = familyOf(ops);
  }

  void encodeChunks() {
    const HandlerTable& table = request_.store.table({code_.interpreter->family, 8});
    tbb::parallel_for(std::size_t{0}, chunks_.size(), [&](std::size_t c) { encodeChunk(chunks_[c], table); });
  }

  void encodeChunk(Chunk& chunk, const HandlerTable& table) const {
    const auto expressionOf = [&](std::size_t member) { return request_.chosen[chunk.first + member]; };
    if (!chunk.dag) {
      chunk.failures.push_back({expressionOf(0), *chunk.error});
      return;
    }
    const SectionDraft& section = sections_[chunk.section];
    const EncodeOptions options{.columns = section.staged_as,
                                .staged_columns = static_cast<std::uint32_t>(section.columns.size()),
                                .parameters = {},
                                .max_slots = static_cast<std::uint32_t>(limits_.slots)};
    Encoder encoder(*chunk.dag, table);
    for (std::size_t member = 0; member < chunk.dag->roots().size(); ++member) {
      const NodeId root = chunk.dag->roots()[member];
      const std::uint32_t expression = expressionOf(member);
      const std::size_t before = chunk.code.tokens.size();
      Status encoded = section.columns.size() > limits_.columns
                           ? Status(tooManyColumns(section.columns.size()))
                           : encoder.encode({&root, 1}, {&expression, 1}, options, chunk.code);
      if (encoded) {
        chunk.lengths.push_back(static_cast<std::uint32_t>(chunk.code.tokens.size() - before));
      } else {
        chunk.failures.push_back({expression, std::move(encoded).error()});
      }
    }
    for (const ParameterSource& parameter : chunk.dag->parameters()) {
      chunk.parameters.add(parameter,
                           parameter.isLiteral() ? 0 : source_.parameter_offsets[expressionOf(parameter.expression)]);
    }
    chunk.dag.reset();
  }

  Error tooManyColumns(std::size_t wanted) const {
    return {Errc::kUnsupported,
            fmt::format("{} columns, but the interpreter takes at most {} on this device", wanted, limits_.columns),
            {}};
  }

  // Puts the chunks behind one another and copies them to the device.
  void link() {
    InterpreterCode& code = *code_.interpreter;
    std::size_t programs = 0, parameters = 0;
    for (const Chunk& part : chunks_) {
      programs += part.lengths.size();
      parameters += part.parameters.size();
    }
    code.offsets.reserve(programs + 1);
    code.offsets.push_back(0);
    code_.parameters.reserve(parameters);
    std::vector<std::uint32_t> first_parameter, map;
    std::size_t chunk = 0;
    for (const SectionDraft& draft : sections_) {
      InterpreterSection section{.first_program = static_cast<std::uint32_t>(code.programs()),
                                 .map_offset = static_cast<std::uint32_t>(map.size()),
                                 .staged_columns = static_cast<std::uint32_t>(draft.columns.size())};
      map.insert(map.end(), draft.columns.begin(), draft.columns.end());
      for (; chunk < chunks_.size() && chunks_[chunk].first < draft.last; ++chunk) {
        const Chunk& part = chunks_[chunk];
        first_parameter.push_back(static_cast<std::uint32_t>(code_.parameters.size()));
        code_.parameters.append(part.parameters);
        section.slots = std::max(section.slots, part.code.slots);
        for (const std::uint32_t length : part.lengths) {
          if (length > UINT32_MAX - code.offsets.back()) throw std::length_error("more than 2^32 tokens");
          code.offsets.push_back(code.offsets.back() + length);
        }
        code_.failures.insert(code_.failures.end(), part.failures.begin(), part.failures.end());
      }
      section.programs = static_cast<std::uint32_t>(code.programs()) - section.first_program;
      if (section.programs > 0) code.sections.push_back(section);
    }
    if (code.programs() == 0) {
      code_.interpreter.reset();
      return;
    }
    upload(first_parameter, map);
  }

  void upload(const std::vector<std::uint32_t>& first_parameter, const std::vector<std::uint32_t>& map) {
    InterpreterCode& code = *code_.interpreter;
    const std::size_t token_bytes = code.offsets.back() * sizeof(DeviceToken);
    const std::size_t offset_bytes = code.offsets.size() * sizeof(std::uint32_t);
    const std::size_t map_bytes = map.size() * sizeof(std::uint32_t);
    const DeviceQueue& queue = request_.queue;
    const CurrentContext current(*queue.cuda);
    const std::shared_ptr<PinnedBuffer> staging = queue.pinned.take(token_bytes + offset_bytes + map_bytes);
    auto* const bytes = static_cast<std::byte*>(staging->data());
    auto* const tokens = reinterpret_cast<DeviceToken*>(bytes);
    std::vector<std::size_t> places{0};
    for (const Chunk& chunk : chunks_) places.push_back(places.back() + chunk.code.tokens.size());
    tbb::parallel_for(std::size_t{0}, chunks_.size(), [&](std::size_t c) {
      std::transform(chunks_[c].code.tokens.begin(), chunks_[c].code.tokens.end(), tokens + places[c],
                     [&](DeviceToken token) {
                       const bool parameter = token.code >> DeviceToken::kArgumentShift == DeviceToken::kParameter;
                       if (parameter) token.argument += first_parameter[c];
                       return token;
                     });
    });
    auto* const words = reinterpret_cast<std::uint32_t*>(bytes + token_bytes);
    std::copy(map.begin(), map.end(), std::copy(code.offsets.begin(), code.offsets.end(), words));
    code.memory = DeviceBuffer(queue.uploads, token_bytes + offset_bytes + map_bytes);
    code.tokens = code.memory.address();
    code.program_offsets = code.tokens + token_bytes;
    code.column_map = code.program_offsets + offset_bytes;
    queue.uploads->copyToDevice(code.tokens, bytes, token_bytes + offset_bytes + map_bytes);
    queue.uploads->synchronize();
  }

  const CodeRequest& request_;
  const ProgramSource& source_;
  InterpreterLimits limits_;
  std::vector<SectionDraft> sections_;
  std::vector<Chunk> chunks_;
  DeviceCode code_;
};

}  // namespace

std::size_t stagedColumnLimit(const DeviceLimits& limits, Precision precision) {
  return InterpreterLimits(limits.shared_bytes_per_block, precision).columns;
}

DeviceCode encodeForDevice(const CodeRequest& request) { return ProgramEncoder(request).run(); }

}  // namespace srjit
