// The options of a search in words, as `sr-jit search` takes them: {"--ops", "add,mul", "--max-complexity", "30"}.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tools/search/evolution.h"

namespace CLI {
class App;
}

namespace srjit::search {

/// Adds all options of a search but those of data, engine, checkpoint and output: the only table of their names, values
/// and help. They are stored in `options`, which must live as long as `app` is used; CLI::App::parse() throws
/// ErrorException for a bad list, with its place.
void addSearchOptions(CLI::App& app, SearchOptions& options);

/// The options that these words set, and `with_engine` also --device, --precision, --math, --threads, --tier and
/// --cache-dir. Errors (kInvalid, kSyntax for a loss) begin with the option's name. Thread-safe.
Result<SearchOptions> parseSearchOptions(std::span<const std::string> words, bool with_engine = true);
/// The same of one text, which is divided at spaces; quotes keep them: "--ops 'add, mul' --seconds 5".
Result<SearchOptions> parseSearchOptions(std::string_view text, bool with_engine = true);

}  // namespace srjit::search
