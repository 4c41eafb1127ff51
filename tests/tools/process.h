// Running the command as users do.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/tools/scratch.h"

namespace srjit {

struct Outcome {
  int status;  ///< exit status, or 128 plus the signal that ended it
  std::string out, err;
};

/// Runs sr-jit with `arguments` in `folder`, with `input` for standard input. Its standard output goes to the file
/// `out_path`, or if empty is in the outcome. It gets `memory` bytes of address space.
inline Outcome runCommand(const std::vector<std::string>& arguments, const std::string& folder,
                          const std::string& input = {}, const std::string& out_path = {},
                          rlim_t memory = RLIM_INFINITY) {
  const Scratch scratch;
  const std::string in = scratch.write("in", input);
  const std::string out = out_path.empty() ? scratch.write("out", "") : out_path;
  const std::string err = scratch.write("err", "");
  const pid_t child = fork();
  if (child == 0) {
    std::vector<char*> words = {const_cast<char*>(SRJIT_COMMAND)};
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    dup2(open(in.c_str(), O_RDONLY), STDIN_FILENO);
    dup2(open(out.c_str(), O_WRONLY), STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY), STDERR_FILENO);
    const rlimit limit{memory, memory}, no_core{0, 0};
    if (memory != RLIM_INFINITY && (setrlimit(RLIMIT_AS, &limit) != 0 || setrlimit(RLIMIT_CORE, &no_core) != 0)) {
      _exit(126);
    }
    if (chdir(folder.c_str()) == 0) execv(SRJIT_COMMAND, words.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out_path.empty() ? contentOf(out) : "",
          contentOf(err)};
}

}  // namespace srjit
