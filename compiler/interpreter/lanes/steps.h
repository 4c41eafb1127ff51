// What a lane does with an expression: a thread of the device, or of the host where a test models one. It needs no
// memory but its words of shared memory (laneWords()).
#pragma once

#include <cstddef>
#include <cstdint>

#include "compiler/interpreter/lanes/arguments.h"

namespace srjit {

/// An expression that was checked.
struct CheckedTree {
  std::uint64_t begin = 0;    ///< its first token among all
  std::uint32_t tokens = 0;   ///< 0 with a fault
  std::uint32_t numbers = 0;  ///< tokens that are constants or parameters
  DeviceFault fault = DeviceFault::kNone;
};

/// Expression `e` of the launch. Reads nothing outside of the arrays.
CheckedTree checkTree(const TreeArguments& arguments, std::uint32_t e);

/// CheckedTree::begin of an expression without a fault.
std::uint64_t firstTokenOf(const TreeArguments& arguments, std::uint32_t e);

/// The words of a lane: those of the lanes of a block take turns, so that accesses of a warp have no bank conflicts.
struct LaneWords {
  std::uint32_t* first;
  std::uint32_t stride;
  std::uint32_t& operator[](std::uint32_t i) const { return first[std::size_t{i} * stride]; }
};

/// Reads the nodes of a checked expression. Gives the number of tokens of its program. `first_number` is where its
/// numbers go among `numbers`, which is written.
std::uint32_t readTree(const TreeArguments& arguments, const CheckedTree& tree, std::uint32_t first_number,
                       LaneWords words);

/// Writes the program of an expression that was read to `to`: `tokens` of them; its value is output `e`. False if
/// kLaneSlots are too few; the program then has any value.
bool writeTree(const TreeArguments& arguments, const CheckedTree& tree, std::uint32_t first_number, std::uint32_t e,
               LaneWords words, DeviceToken* to, std::uint32_t tokens);

/// Sets the sums of an expression without a program to 0: the kernel that adds them reads those of all.
void clearSums(const TreeArguments& arguments, std::uint32_t e);

/// Writes loss `e`.
void writeLoss(const LossArguments& arguments, std::uint32_t e);

}  // namespace srjit
