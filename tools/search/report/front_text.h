// A front as text, one formula after the other in the front's order. All functions are thread-safe.
#pragma once

#include <string>

#include "ir/text.h"
#include "tools/search/formulas/front.h"

namespace srjit::search {

/// A table as RFC 4180 has it, with lines that end in '\n': complexity,loss,held_out,formula. Numbers read back as they
/// are, held_out is empty where it is NaN, and the formula is infix.
std::string csvText(const Front& front, const ColumnNames& columns);

/// An array of objects with `complexity`, `loss`, `held_out` (null where it is not finite), `formula` (infix), `latex`,
/// `postfix` and `chosen` (Front::chosen()), and a line end.
std::string jsonText(const Front& front, const ColumnNames& columns);

/// A tabular of LaTeX, with the loss in three digits; needs the package amsmath.
std::string latexTable(const Front& front, const ColumnNames& columns);

}  // namespace srjit::search
