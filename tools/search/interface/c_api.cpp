// The search's functions of runtime/c_api/srjit.h.
#include <deque>
#include <string>
#include <vector>

#include "ir/text.h"
#include "ir/text/latex.h"
#include "runtime/c_api/handles.h"
#include "tools/search/library.h"

struct srjit_found {
  srjit::search::Found found;
  std::deque<std::string> texts = {};  ///< of the formulas, where they stay
  std::vector<srjit_formula> formulas = {};
};

namespace srjit::c_api {

extern "C" {

int32_t srjit_search(const srjit_data* data, const char* options, const srjit_stop* stop, srjit_found** found,
                     srjit_error* error) {
  return answerWith(found, "found", error, [&] {
    srjit_found result;
    search::SearchCalls calls;
    if (stop != nullptr) calls.stop = [&] { return stop->source.stop_requested(); };
    withHostData(fromCaller(&required(data, "data"), "data"), [&](const DataView& view) {
      result.found = search::search(view, options == nullptr ? "" : options, calls).value();
      const auto keep = [&](std::string text) { return result.texts.emplace_back(std::move(text)).c_str(); };
      for (const search::Formula& of : result.found.front.formulas()) {
        result.formulas.push_back({.size = sizeof(srjit_formula),
                                   .text = keep(print(of.expression, Language::kInfix, view.names)),
                                   .latex = keep(text::latexText(of.expression, view.names)),
                                   .postfix = keep(print(of.expression, Language::kPostfix, view.names)),
                                   .complexity = of.complexity,
                                   .loss = of.loss,
                                   .held_out = of.held_out,
                                   .evidence = of.evidence,
                                   .bic = of.bic,
                                   .r2 = of.r2});
      }
    });
    return result;
  });
}

uint64_t srjit_found_count(const srjit_found* found) { return found == nullptr ? 0 : found->formulas.size(); }

uint64_t srjit_found_chosen(const srjit_found* found) {
  if (found == nullptr) return 0;
  const search::Front& front = found->found.front;
  return static_cast<uint64_t>(front.chosen() - front.formulas().data());
}

int32_t srjit_found_get(const srjit_found* found, uint64_t i, srjit_formula* formula, srjit_error* error) {
  return answer(error, [&] {
    const std::vector<srjit_formula>& formulas = required(found, "found").formulas;
    if (i >= formulas.size()) refuse(Errc::kInvalid, fmt::format("there is no formula {} of {}", i, formulas.size()));
    describeTo(formula, "formula", [&](srjit_formula& to) { to = formulas[i]; });
  });
}

const char* srjit_found_notice(const srjit_found* found, uint64_t i) {
  return found == nullptr || i >= found->found.notices.size() ? nullptr : found->found.notices[i].c_str();
}

void srjit_found_free(srjit_found* found) { delete found; }

}  // extern "C"

}  // namespace srjit::c_api
