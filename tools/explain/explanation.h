// What sr-jit makes of a few expressions, stage by stage, as plain data: what `sr-jit explain` prints, writes as JSON
// and embeds in its page.
//
// Every node has one id in all stages: an operator the number that printDag() gives it (%3; NodeNumbers keeps it from
// graph to graph), a leaf its own text (x0, p0@1, 2.5). Expressions and rows count as in docs/command.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/numeric.h"

namespace srjit::explain {

using Id = std::string;
using Ids = std::vector<Id>;

/// A token of an expression, which is also a node of its tree.
struct SourceToken {
  std::size_t first, size;  ///< its own bytes in the text
  Id node;                  ///< in the first graph
  std::string label;        ///< the operator's name, or the leaf
  std::vector<std::size_t> operands;
};

struct Source {
  std::string text;  ///< infix
  std::vector<SourceToken> tokens;
};

/// How far the number of a node may be from that of exact arithmetic, over the sample of rows: evaluateBounded()
/// (ir/reference.h), a running error bound (N. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., 2002,
/// 3.3). With value v and bound e in a row, `absolute` is the largest e, and `relative` the largest e / |v|. Infinite
/// where nothing is promised for some row.
struct ErrorBound {
  double absolute, relative;
};

struct NodeFacts {
  Id id;
  std::string text;   ///< an operator: its name and operands, as printDag() writes them, "mul %1, x0"; a leaf: its id
  std::string infix;  ///< what it computes; empty if that is long
  std::string kind;   ///< "operator", "variable", "parameter" or "literal"
  Ids operands;
  unsigned weight = 0;              ///< of an operator: codeWeight(), about its instructions per row on a GPU
  std::optional<ErrorBound> bound;  ///< of the nodes of the last graph
};

/// A rule that fired (passes/rewrite_log.h).
struct Fired {
  std::string pattern, replacement, keeps;
  Id before, after;  ///< the term that was replaced, which no graph need have, and what stands for it
  std::uint32_t depth;
};

struct GraphLine {
  Id id;
  std::string text;
};

/// A graph as printDag() prints it, and what the pass before it did.
struct Graph {
  std::string name;  ///< the pass, or "input"
  std::string doc, keeps;
  std::vector<GraphLine> lines;                   ///< operators, in the order of evaluation
  std::vector<std::pair<std::string, Id>> roots;  ///< "root 0", or what a derivative is; and its node
  std::vector<Fired> fired;
  std::vector<std::pair<Id, Id>> replaced;  ///< by rules, or since operands were
  Ids added, removed;                       ///< operators, against the graph before
  Ids moved;      ///< operators of both that stand elsewhere: those beside a longest common order
  Ids respelled;  ///< operators of both whose text is another one, as where a literal became a parameter

  bool changed() const {
    return !added.empty() || !removed.empty() || !moved.empty() || !respelled.empty() || !fired.empty();
  }
};

/// What the direct tier's instruction says besides its text (compiler/sass/instruction.h).
struct MachineFacts {
  std::string pipe;
  unsigned latency;
  bool variable_latency;  ///< waited for by a barrier; else by stalls
  unsigned stall;
  bool yield;
  std::vector<unsigned> waits;                          ///< barriers that it waits for
  std::optional<unsigned> write_barrier, read_barrier;  ///< that it sets
  unsigned live;                                        ///< registers whose values are needed then or later
};

/// A line of a stage's text.
struct Line {
  std::string text;
  Ids nodes;
  std::optional<MachineFacts> machine;
  bool is_instruction = false;
};

/// A number that a stage has, as "instructions", 54.
struct Count {
  std::string what;
  double value;
};

struct Stage {
  std::string name;
  std::string short_title;  ///< for heads of tables
  std::string title, note;
  std::string comment;  ///< what a comment begins with in this text
  std::vector<Line> lines;
  std::vector<Count> counts;
};

/// What a tier took here. Each time is the least of several.
struct Time {
  std::string device, tier;
  double compile_seconds;   ///< from expressions to code, its first evaluation not included
  double evaluate_seconds;  ///< of all rows
  std::size_t rows;
};

struct Explanation {
  std::string version;
  Precision precision = Precision::kF32;
  Math math = Math::kPrecise;
  std::string architecture;
  std::string sample;  ///< where the rows of error bounds and times are from
  std::vector<Source> sources;
  std::vector<NodeFacts> nodes;  ///< of all graphs and rules, each once
  std::vector<Graph> graphs;     ///< as given, then after each pass
  Graph gradient;                ///< with derivatives by all parameters; none: no root
  std::vector<Stage> stages;
  std::vector<Time> times;
  std::vector<std::string> notices;  ///< what is left out, and why
};

}  // namespace srjit::explain
