// Runs the command as a process.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/generators/scratch.h"

namespace srjit {

struct Outcome {
  int status;  ///< exit status, or 128 plus the signal that ended it
  std::string out, err;
};

/// Runs `body` in a child process; returns its exit status, or 128 plus the signal that ended it.
template <class Body>
int inChild(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Runs the program words[0] in `folder`, with `input` as standard input. Its standard output goes to the file
/// `out_path`, or if that is empty to the outcome; its standard error goes to the descriptor `err`, or if that is
/// negative to the outcome. The limit of its address space is `memory` bytes;
/// with a limit it dumps no core.
inline Outcome runProgram(std::vector<std::string> words, const std::string& folder, const std::string& input = {},
                          const std::string& out_path = {}, int err = -1, rlim_t memory = RLIM_INFINITY) {
  const Scratch scratch;
  const std::string in = scratch.write("in", input);
  const std::string out = out_path.empty() ? scratch.write("out", "") : out_path;
  const std::string errors = scratch.write("err", "");
  const int status = inChild([&] {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    dup2(open(in.c_str(), O_RDONLY), STDIN_FILENO);
    dup2(open(out.c_str(), O_WRONLY), STDOUT_FILENO);
    dup2(err >= 0 ? err : open(errors.c_str(), O_WRONLY), STDERR_FILENO);
    const rlimit limit{memory, memory}, no_core{0, 0};
    if (memory != RLIM_INFINITY && (setrlimit(RLIMIT_AS, &limit) != 0 || setrlimit(RLIMIT_CORE, &no_core) != 0)) {
      return 126;
    }
    if (chdir(folder.c_str()) == 0) execv(arguments[0], arguments.data());
    return 127;
  });
  return {status, out_path.empty() ? contentOf(out) : "", contentOf(errors)};
}

/// Runs sr-jit with `arguments`.
inline Outcome runCommand(std::vector<std::string> arguments, const std::string& folder, const std::string& input = {},
                          const std::string& out_path = {}, int err = -1, rlim_t memory = RLIM_INFINITY) {
  arguments.insert(arguments.begin(), SRJIT_COMMAND);
  return runProgram(std::move(arguments), folder, input, out_path, err, memory);
}

/// Runs a shell script, in which "$SRJIT" is the command.
inline Outcome runShell(const std::string& script, const std::string& folder) {
  setenv("SRJIT", SRJIT_COMMAND, 1);
  return runProgram({"/bin/sh", "-c", script}, folder);
}

}  // namespace srjit
