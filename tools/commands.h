// The commands. Each adds its options to its part of the command line, and gives the function to run once that is
// parsed. A runner may throw CLI::ParseError for what only it can see to be a wrong use.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>

#include "tools/report.h"

namespace srjit {

using Runner = std::function<ExitStatus()>;

Runner defineOps(CLI::App& app);
Runner defineParse(CLI::App& app);
Runner definePasses(CLI::App& app);
Runner defineLlvm(CLI::App& app);
Runner definePtx(CLI::App& app);
Runner defineCubin(CLI::App& app);
Runner defineSass(CLI::App& app);
Runner defineBytecode(CLI::App& app);
Runner defineAsm(CLI::App& app);
Runner defineExplain(CLI::App& app);
Runner defineRun(CLI::App& app);
Runner defineLoss(CLI::App& app);
Runner defineFit(CLI::App& app);
Runner defineSearch(CLI::App& app);
Runner defineServe(CLI::App& app);
Runner defineBench(CLI::App& app);
Runner defineCache(CLI::App& app);
Runner defineDoctor(CLI::App& app);

}  // namespace srjit
