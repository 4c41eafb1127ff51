// Runs a fuzz target without libFuzzer, so that every compiler and every test run can: all files of a corpus, then
// inputs made from them by a seeded generator. The same arguments give the same inputs on every machine.
//
//   fuzz_NAME [--runs N] [--seed N] [--last FILE] [--input FILE] CORPUS_FOLDER
//
// After a crash, FILE of --last holds the input that caused it; --input runs one such file.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "ir/numbers/random.h"
#include "ir/ops.h"
#include "tests/generators/population.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::size_t kMaxInput = 4096;

struct Options {
  std::uint64_t runs = 1000;
  std::uint64_t seed = 1;
  std::string last, input, corpus;
};

std::string readFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Sorted, since the order of a directory differs between machines.
std::vector<std::string> readCorpus(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<std::string> inputs;
  for (const auto& path : paths) inputs.push_back(readFile(path));
  return inputs;
}

// Divided, since an e would be a hexadecimal digit.
constexpr const char* kUmlauts =
    "gr\xc3\xb6\xc3\x9f"
    "e";
constexpr const char* kWords[] = {"x0",
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
                                  "((((((((",
                                  "))))))))"};

/// Words that reach deep states of the parsers: names of operators, signs, extreme numbers, and JSON syntax.
struct Words {
  std::vector<std::string> all{std::begin(kWords), std::end(kWords)};
  std::size_t pinned = 0;  ///< the first so many, which a new row of ops.def does not change

  Words() {
    constexpr std::size_t kPerOperator = 3;
    pinned = all.size() + kPerOperator * srjit::pinnedOperators().size();
    for (const srjit::Op op : srjit::allOperators()) {
      const srjit::OpInfo& info = srjit::infoOf(op);
      all.emplace_back(info.name);
      all.emplace_back(info.text);
      all.push_back(std::string(info.name) + "(");
    }
  }
};

class Generator {
 public:
  Generator(std::vector<std::string> corpus, std::uint64_t seed) : corpus_(std::move(corpus)), random_(seed) {}

  /// Half of the inputs are mutated corpus files, half are sequences of words.
  std::string next() {
    std::string text;
    if (!corpus_.empty() && random_.below(2) == 0) {
      text = corpus_[random_.below(corpus_.size())];
    } else {
      for (std::size_t count = 1 + random_.below(24); count > 0; --count) text += word();
    }
    for (std::size_t changes = random_.below(5); changes > 0; --changes) change(text);
    if (text.size() > kMaxInput) text.resize(kMaxInput);
    return text;
  }

 private:
  std::string word() {
    const std::string& word =
        words_.all[srjit::stableChoice(random_.next(), words_.pinned, words_.all.size() - words_.pinned)];
    return word + (random_.below(2) == 0 ? " " : "");
  }

  void change(std::string& text) {
    const std::size_t at = random_.below(text.size() + 1);
    const std::size_t length = std::min(random_.below(16), text.size() - at);
    switch (random_.below(6)) {
      case 0:
        text.insert(at, word());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        text.insert(at, 1, static_cast<char>(random_.below(256)));
        break;
      case 4:
        if (at < text.size())
          text[at] = static_cast<char>(static_cast<unsigned char>(text[at]) ^ (1u << random_.below(8)));
        break;
      default:
        if (!corpus_.empty()) {
          const std::string& other = corpus_[random_.below(corpus_.size())];
          text = text.substr(0, at) + other.substr(random_.below(other.size() + 1));
        }
    }
  }

  std::vector<std::string> corpus_;
  Words words_;
  srjit::Random random_;
};

// State of the signal handler: the current input, and the file to write it to.
const std::string* current_input = nullptr;
const char* last_path = nullptr;

extern "C" void keepInput(int signal_number) {
  if (current_input != nullptr && last_path != nullptr) {
    const int file = open(last_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file >= 0) {
      [[maybe_unused]] const auto written = write(file, current_input->data(), current_input->size());
      close(file);
    }
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

/// Uses an alternate signal stack, since the crash may be a stack overflow. Sanitizers end with SIGABRT and handle the
/// other signals themselves, with a better report.
void keepInputOfCrash(const std::string& path) {
  static std::array<char, 1 << 16> stack;
  last_path = path.c_str();
  const stack_t alternate = {stack.data(), 0, stack.size()};
  sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_handler = keepInput;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGABRT, &action, nullptr);
#ifndef SRJIT_SANITIZED
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(number, &action, nullptr);
#endif
}

void run(const std::string& input) {
  current_input = &input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  current_input = nullptr;
}

Options readOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const bool has_value = i + 1 < argc;
    if (name == "--runs" && has_value) {
      options.runs = std::strtoull(argv[++i], nullptr, 10);
    } else if (name == "--seed" && has_value) {
      options.seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (name == "--last" && has_value) {
      options.last = argv[++i];
    } else if (name == "--input" && has_value) {
      options.input = argv[++i];
    } else {
      options.corpus = name;
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = readOptions(argc, argv);
  if (!options.input.empty()) {
    run(readFile(options.input));
    return 0;
  }
  if (!options.last.empty()) keepInputOfCrash(options.last);
  const std::vector<std::string> corpus = readCorpus(options.corpus);
  for (const std::string& input : corpus) run(input);
  Generator generator(corpus, options.seed);
  for (std::uint64_t i = 0; i < options.runs; ++i) run(generator.next());
  std::cout << corpus.size() << " inputs of the corpus and " << options.runs << " generated ones\n";
  return 0;
}
