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
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/numbers/random.h"
#include "tests/fuzz/harness/words.h"
#include "tests/generators/population.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// Of targets that know the structure of their inputs.
extern "C" __attribute__((weak)) std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                                                     std::size_t max_size, unsigned seed);

namespace {

constexpr std::size_t kMaxInput = 4096;

struct Options {
  std::uint64_t runs, seed;
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

class Generator {
 public:
  Generator(std::vector<std::string> corpus, std::uint64_t seed) : corpus_(std::move(corpus)), random_(seed) {}

  /// Half of the inputs are mutated corpus files, half are sequences of words; with a mutator of the target all are the
  /// former.
  std::string next() {
    std::string text;
    if (LLVMFuzzerCustomMutator != nullptr && !corpus_.empty()) {
      text = corpus_[random_.below(corpus_.size())];
      for (std::size_t times = 1 + random_.below(8); times > 0; --times) changeByTarget(text);
      return text;
    }
    if (!corpus_.empty() && random_.below(2) == 0) {
      text = corpus_[random_.below(corpus_.size())];
    } else {
      for (std::size_t count = 1 + random_.below(24); count > 0; --count) text += word();
    }
    for (std::size_t changes = random_.below(5); changes > 0; --changes) change(text);
    if (text.size() > kMaxInput) text.resize(kMaxInput);
    return text;
  }

  /// One small change.
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

 private:
  void changeByTarget(std::string& text) {
    const std::size_t size = text.size();
    text.resize(kMaxInput);
    text.resize(LLVMFuzzerCustomMutator(reinterpret_cast<std::uint8_t*>(text.data()), std::min(size, kMaxInput),
                                        kMaxInput, static_cast<unsigned>(random_.next())));
  }

  std::string word() {
    const std::string& word =
        words_.all[srjit::stableChoice(random_.next(), words_.pinned, words_.all.size() - words_.pinned)];
    return word + (random_.below(2) == 0 ? " " : "");
  }

  std::vector<std::string> corpus_;
  srjit::fuzz::Words words_;
  srjit::Random random_;
};

/// What LLVMFuzzerMutate changes with.
Generator* generating = nullptr;

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
  std::map<std::string_view, std::string> values;
  std::string_view name;  // of an option whose value follows; empty for the folder
  for (const char* const word : std::span(argv, static_cast<std::size_t>(argc)).subspan(1)) {
    const bool is_name = name.empty() && std::string_view(word).starts_with("--");
    if (!is_name) values[name] = word;
    name = is_name ? word : "";
  }
  const auto numberOf = [&](std::string_view option, std::uint64_t otherwise) {
    return values.contains(option) ? std::strtoull(values[option].c_str(), nullptr, 10) : otherwise;
  };
  return {numberOf("--runs", 1000), numberOf("--seed", 1), values["--last"], values["--input"], values[""]};
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  generating->change(text);
  text.resize(std::min(text.size(), max_size));
  std::ranges::copy(text, data);
  return text.size();
}

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
  generating = &generator;
  for (std::uint64_t i = 0; i < options.runs; ++i) run(generator.next());
  std::cout << corpus.size() << " inputs of the corpus and " << options.runs << " generated ones\n";
  return 0;
}
