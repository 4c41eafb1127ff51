// Words that reach deep states of parsers: names of operators, signs, extreme numbers, and the syntax of file formats.
#pragma once

#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "ir/ops.h"
#include "tests/generators/population.h"

namespace srjit::fuzz {

inline constexpr std::string_view kPlainWords =
    R"(x0 x1 x12 p0 p1 pi inf nan 0 -0 1 -1 2.5 1e308 1e-320 1e999 0x1p-3 .5 5. ( ) , # ** [ ] { } : " "op" "args" "var"
if( 1e x p x99999999999 x[1] p[0] x[ ` `sin` y null "" (((((((( )))))))))";
inline constexpr std::string_view kOtherWords[] = {
    " ", "\t", "\n", "\r\n", "`two words`", "`\\`\\\\\\x0a\\xff`", "gr\u00f6\u00dfe", "\xef\xbb\xbf"};

struct Words {
  std::vector<std::string> all{std::begin(kOtherWords), std::end(kOtherWords)};
  std::size_t pinned = 0;  ///< the number of the first words, which a new row of ops.def does not change

  Words() {
    std::istringstream plain{std::string(kPlainWords)};
    all.insert(all.end(), std::istream_iterator<std::string>(plain), {});
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
