// Prints the words of words.h as a dictionary of libFuzzer.
#include <cstdio>
#include <iostream>

#include "tests/fuzz/harness/words.h"

int main() {
  for (const std::string& word : srjit::fuzz::Words().all) {
    std::string line = "\"";
    for (const char c : word) {
      const auto byte = static_cast<unsigned char>(c);
      char hex[5];
      std::snprintf(hex, sizeof hex, "\\x%02x", byte);
      line += byte < 0x20 || byte > 0x7e || c == '"' || c == '\\' ? std::string(hex) : std::string(1, c);
    }
    std::cout << line << "\"\n";
  }
}
