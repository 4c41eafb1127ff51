// The search's functions of runtime/c_api/srjit.h.
#include <string>
#include <vector>

#include "ir/text.h"
#include "ir/text/latex.h"
#include "runtime/c_api/handles.h"
#include "tools/search/library.h"

struct srjit_found {
  struct Formula {
    std::string text, latex, postfix;
  };
  srjit::search::Found found;
  std::vector<Formula> texts = {};
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
      for (const search::Formula& formula : result.found.front.formulas()) {
        const Expression& expression = formula.expression;
        result.texts.push_back({print(expression, Language::kInfix, view.names),
                                text::latexText(expression, view.names),
                                print(expression, Language::kPostfix, view.names)});
      }
    });
    return result;
  });
}

uint64_t srjit_found_count(const srjit_found* found) { return found == nullptr ? 0 : found->texts.size(); }

uint64_t srjit_found_chosen(const srjit_found* found) {
  if (found == nullptr) return 0;
  const search::Front& front = found->found.front;
  return static_cast<uint64_t>(front.chosen() - front.formulas().data());
}

int32_t srjit_found_get(const srjit_found* found, uint64_t i, srjit_formula* formula, srjit_error* error) {
  return answer(error, [&] {
    const std::size_t count = required(found, "found").texts.size();
    if (i >= count) refuse(Errc::kInvalid, fmt::format("there is no formula {}, only {}", i, count));
    const search::Formula& of = found->found.front.formulas()[i];
    const srjit_found::Formula& texts = found->texts[i];
    describeTo(formula, "formula", [&](srjit_formula& to) {
      to.text = texts.text.c_str();
      to.latex = texts.latex.c_str();
      to.postfix = texts.postfix.c_str();
      to.complexity = of.complexity;
      to.loss = of.loss;
      to.held_out = of.held_out;
      to.evidence = of.evidence;
      to.bic = of.bic;
      to.r2 = of.r2;
    });
  });
}

const char* srjit_found_notice(const srjit_found* found, uint64_t i) {
  return found == nullptr || i >= found->found.notices.size() ? nullptr : found->found.notices[i].c_str();
}

void srjit_found_free(srjit_found* found) { delete found; }

}  // extern "C"

}  // namespace srjit::c_api
