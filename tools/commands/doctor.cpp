#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "tools/commands.h"
#include "tools/machine.h"
#include "tools/options.h"

namespace srjit {
namespace {

std::string textReport(const std::vector<Finding>& findings) {
  std::string text;
  bool all_found = true, cpu_works = true;
  for (const Finding& finding : findings) {
    text +=
        fmt::format("{:<8}{:<18}{}\n", finding.found ? "ok" : "missing", finding.name, text::printable(finding.what));
    if (finding.found) continue;
    text += fmt::format("{:<8}{:<18}needed for: {}\n", "", "", finding.needed_for);
    all_found = false;
    cpu_works = cpu_works && finding.name != kHostCode;
  }
  if (!all_found && cpu_works) text += "All expressions can be evaluated on the CPU, without what is missing.\n";
  return text;
}

std::string jsonReport(const std::vector<Finding>& findings) {
  Json objects = Json::array();
  for (const Finding& finding : findings) {
    objects.push_back(
        {{"name", finding.name}, {"found", finding.found}, {"what", finding.what}, {"needed_for", finding.needed_for}});
  }
  return dump(objects);
}

}  // namespace

Runner defineDoctor(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  addJsonOption(app, *json);
  app.footer("The exit status is 0 whatever is missing.");
  return [json] {
    const std::vector<Finding> findings = inspectMachine();
    return writeResults(*json ? jsonReport(findings) : textReport(findings));
  };
}

}  // namespace srjit
