// Words that reach deep states of parsers: names of operators, signs, extreme numbers, and the syntax of file formats.
#pragma once

#include <iterator>
#include <string>
#include <vector>

#include "ir/ops.h"
#include "tests/generators/population.h"

namespace srjit::fuzz {

// Divided, since an e would be a hexadecimal digit.
inline constexpr const char* kUmlauts =
    "gr\xc3\xb6\xc3\x9f"
    "e";
inline constexpr const char* kWords[] = {"x0",
                                         "x1",
                                         "x12",
                                         "p0",
                                         "p1",
                                         "pi",
                                         "inf",
                                         "nan",
                                         "0",
                                         "-0",
                                         "1",
                                         "-1",
                                         "2.5",
                                         "1e308",
                                         "1e-320",
                                         "1e999",
                                         "0x1p-3",
                                         ".5",
                                         "5.",
                                         "(",
                                         ")",
                                         ",",
                                         " ",
                                         "\t",
                                         "\n",
                                         "#",
                                         "**",
                                         "[",
                                         "]",
                                         "{",
                                         "}",
                                         ":",
                                         "\"",
                                         "\"op\"",
                                         "\"args\"",
                                         "\"var\"",
                                         "if(",
                                         "1e",
                                         "x",
                                         "p",
                                         "x99999999999",
                                         "x[1]",
                                         "p[0]",
                                         "x[",
                                         "`",
                                         "`two words`",
                                         "`sin`",
                                         "`\\`\\\\\\x0a\\xff`",
                                         kUmlauts,
                                         "y",
                                         "null",
                                         "\r\n",
                                         "\"\"",
                                         "\xef\xbb\xbf",
                                         "((((((((",
                                         "))))))))"};

struct Words {
  std::vector<std::string> all{std::begin(kWords), std::end(kWords)};
  std::size_t pinned = 0;  ///< the first so many, which a new row of ops.def does not change

  Words() {
    constexpr std::size_t kPerOperator = 3;
    pinned = all.size() + kPerOperator * pinnedOperators().size();
    for (const Op op : allOperators()) {
      const OpInfo& info = infoOf(op);
      all.emplace_back(info.name);
      all.emplace_back(info.text);
      all.push_back(std::string(info.name) + "(");
    }
  }
};

}  // namespace srjit::fuzz
