#include "tools/command_line.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "compiler/llvm_failures.h"
#include "ir/text/lexer.h"
#include "tools/commands.h"
#include "tools/options.h"
#include "tools/report.h"

namespace srjit {
namespace {

struct Command {
  const char* name;
  const char* doc;
  Runner (*define)(CLI::App& app);
};

constexpr Command kCommands[] = {
    {"ops", "print the operator table", defineOps},
    {"parse", "translate expressions from one text form to another", defineParse},
    {"passes", "print the graph that the passes make of expressions", definePasses},
    {"llvm", "print the LLVM IR of a kernel", defineLlvm},
    {"ptx", "print the PTX of a GPU kernel", definePtx},
    {"cubin", "assemble a GPU kernel to a file, and print its registers, stack and bytes", defineCubin},
    {"sass", "print the machine code of a GPU kernel", defineSass},
    {"bytecode", "print the programs of an interpreter, a GPU's or this processor's", defineBytecode},
    {"asm", "print the assembly of the kernel compiled for this processor", defineAsm},
    {"explain", "show expressions in all stages, and which lines of each belong together", defineExplain},
    {"run", "evaluate expressions on data: one prediction per row", defineRun},
    {"loss", "compare expressions with a target column: one loss per expression", defineLoss},
    {"fit", "fit the parameters of expressions to a target column", defineFit},
    {"search", "search for formulas of a target column", defineSearch},
    {"serve", "answer requests in JSON, one a line, about one table of data", defineServe},
    {"bench", "run the benchmarks", defineBench},
    {"cache", "show, check or clear the kernels that are kept on disk", defineCache},
    {"doctor", "print what was found on this machine, and what is missing for what", defineDoctor},
};

constexpr const char* kFooter =
    "Examples:\n"
    "  sr-jit run 'x0*sin(x1)' --data table.csv\n"
    "  sr-jit loss --exprs population.txt --data table.csv --target y --loss rmse --out losses.csv\n"
    "Messages count expressions from 1. Names and fields for programs (e0, index, root 0) count them from 0.\n"
    "Exit status: 0 done; 1 bad input (an expression, a file, a value); 2 wrong usage; 3 the machine (no device,\n"
    "driver or tool, too little memory, a compile failure, an operator or architecture that a tier has no code for).\n"
    "`sr-jit COMMAND --help` tells more about a command.";

/// CLI11 would say no more than that a subcommand is required.
void checkCommandName(std::string_view name) {
  if (name.empty() || name.starts_with('-')) return;
  std::string names;
  for (const Command& command : kCommands) {
    if (name == command.name) return;
    names += (names.empty() ? "" : ", ") + std::string(command.name);
  }
  throw CLI::ParseError("unknown command " + text::inQuotes(name) + "; there are " + names,
                        CLI::ExitCodes::ExtrasError);
}

ExitStatus runCommand(CLI::App& app, int argc, const char* const* argv) {
  std::vector<std::pair<CLI::App*, Runner>> runners;
  for (const Command& command : kCommands) {
    CLI::App* part = app.add_subcommand(command.name, command.doc);
    runners.emplace_back(part, command.define(*part));
  }
  try {
    checkCommandName(argc > 1 ? argv[1] : "");
    parseWords(app, std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
    for (const auto& [part, run] : runners) {
      if (part->parsed()) return run();
    }
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? kDone : kWrongUsage;  // 0: help was asked for
  }
  return kDone;
}

}  // namespace

int runCommandLine(int argc, const char* const* argv) {
  return runMain([&] {
    endWhereLlvmFails(reportAndExit);
    CLI::App app("Compiles symbolic-regression expressions to machine code, evaluates and shows them.", "sr-jit");
    app.set_version_flag("--version", "sr-jit " SRJIT_VERSION);
    app.require_subcommand(1);
    app.failure_message(usageMessage);
    app.footer(kFooter);
    return runCommand(app, argc, argv);
  });
}

}  // namespace srjit
