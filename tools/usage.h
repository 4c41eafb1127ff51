// Messages about wrong usage, where the command-line library's own words would not do.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

#include "tools/report.h"

namespace srjit {

/// Parses the command line of a program without commands. Gives the exit status if the program is to end, since help
/// was asked for or the usage is wrong; the library has then said so.
std::optional<ExitStatus> parseCommandLine(CLI::App& app, int argc, const char* const* argv);

/// The words of a command line, the last first, as CLI::App::parse() takes them. "--name=" becomes "--name" and an
/// empty word, since the library would take the word behind it for the value.
std::vector<std::string> commandWords(int argc, const char* const* argv);

/// Throws CLI::ParseError for the first word that `app`, or the command that was given, does not accept. The library
/// looks for those last, behind required and excluded options, so call it where parsing failed for any reason.
void checkUnknownWords(const CLI::App& app);

/// The library's message about `error` as one short line behind "sr-jit: ", which may hold words of the command line,
/// and where help is.
std::string usageMessage(const CLI::App* app, const CLI::Error& error);

}  // namespace srjit
