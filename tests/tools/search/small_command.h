// The command `sr-jit search` on small tables, and a search as a process that a test ends.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "tests/tools/process.h"

namespace srjit {

/// Rows of a law that no short search finds, or of one that every search finds.
inline std::string tableOf(bool is_easy) {
  std::string text = "mass,speed,energy\n";
  for (int i = 0; i < 200; ++i) {
    const double mass = 1 + 0.013 * i, speed = 1 + std::fmod(0.37 * i, 3.0);
    const double hard = std::sin(mass * speed) + std::cos(speed * speed + mass) / (1 + mass * mass * speed);
    text += fmt::format("{},{},{}\n", mass, speed, is_easy ? 0.5 * mass * speed * speed : hard);
  }
  return text;
}

/// A small search on the CPU for `energy` of table.csv, with more options.
inline std::vector<std::string> commandOf(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"search",    "--data", "table.csv",    "--target", "energy",      "--device", "cpu",
                                    "--islands", "4",      "--population", "60",       "--offspring", "120"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// A search in the folder that runs until it is ended. It writes search.json and front.csv there. Its standard error is
/// the file err there, or the descriptor `errors`, if that is not negative.
class RunningSearch {
 public:
  explicit RunningSearch(const Scratch& scratch, int errors = -1) {
    std::vector<std::string> words = commandOf({"--seconds", "0", "--checkpoint", "search.json", "--out", "front.csv"});
    words.insert(words.begin(), SRJIT_COMMAND);
    child_ = fork();
    if (child_ < 0) ADD_FAILURE() << "no process";
    if (child_ != 0) return;
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    dup2(errors >= 0 ? errors : open(scratch.path("err").c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    if (chdir(scratch.path(".").c_str()) == 0) execv(arguments[0], arguments.data());
    _exit(127);
  }
  ~RunningSearch() {
    if (child_ > 0) end(SIGKILL);
  }
  RunningSearch(const RunningSearch&) = delete;
  RunningSearch& operator=(const RunningSearch&) = delete;

  /// Its exit status, or 128 plus the signal that ended it; -1 if it does not run.
  int end(int signal) {
    if (child_ <= 0) return -1;
    kill(child_, signal);
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t child_ = 0;
};

/// Waits until the file is there, half a minute at most.
inline bool appears(const std::string& path) {
  for (int i = 0; i < 3000 && access(path.c_str(), F_OK) != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return access(path.c_str(), F_OK) == 0;
}

}  // namespace srjit
