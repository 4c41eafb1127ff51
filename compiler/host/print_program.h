// A program of the processor's interpreter as text.
#pragma once

#include <string>

#include "compiler/host/program.h"

namespace srjit {

/// A line per instruction, e.g. `slot0 = mul x0 parameter1`: x<column>, parameter<index in Dag::parameters()> with its
/// value in brackets if it is a literal, a constant as the shortest number that reads back, slot<number> of scratch
/// memory, root<number>. `move` copies. `program` must be encodeForHost(dag)'s.
std::string printProgram(const HostProgram& program, const Dag& dag);

}  // namespace srjit
