/* A program in C99: the example of docs/embedding.md. */
#include <srjit/srjit.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int32_t status, const srjit_error* error) {
  if (status == SRJIT_OK) return;
  fprintf(stderr, "error %" PRId32 ": %s\n", status, error->message);
  exit(1);
}

static void report(srjit_failures* failures) {
  for (uint64_t i = 0; i < srjit_failures_count(failures); ++i) {
    srjit_error why = {.size = sizeof why};
    uint64_t expression;
    check(srjit_failures_get(failures, i, &expression, &why), &why);
    printf("expression %" PRIu64 ", column %" PRIu64 ": %s\n", expression, why.column, why.message);
  }
  srjit_failures_free(failures);
}

int main(void) {
  srjit_error error = {.size = sizeof error};
  srjit_engine* engine;
  srjit_engine_options options = {.size = sizeof options, .device = "auto", .precision = SRJIT_F64};
  check(srjit_engine_create(&options, &engine, &error), &error);

  double axis[] = {0.39, 0.72, 1, 1.52, 5.2, 9.54}, period[] = {0.24, 0.62, 1, 1.88, 11.86, 29.46};
  srjit_matrix columns = {.size = sizeof columns, .data = axis, .rows = 6, .columns = 1, .type = SRJIT_F64};
  srjit_matrix target = {.size = sizeof target, .data = period, .rows = 6, .columns = 1, .type = SRJIT_F64};
  srjit_data view = {.size = sizeof view, .columns = &columns, .target = &target};
  srjit_dataset* data;
  check(srjit_dataset_create(engine, &view, &data, &error), &error);

  /* x0 * sqrt(x0), and p0 * x0 ^ p1, in postfix. `sr-jit ops --json` has the codes. */
  int32_t codes[] = {SRJIT_VARIABLE, SRJIT_VARIABLE, 13, 3, SRJIT_PARAMETER, SRJIT_VARIABLE, SRJIT_PARAMETER - 1, 5, 3};
  int64_t offsets[] = {0, 4, 9};
  srjit_population population = {.size = sizeof population, .expressions = 2, .codes = codes, .offsets = offsets};
  srjit_program* program;
  check(srjit_compile(engine, &population, NULL, &program, &error), &error);

  double starts[] = {1, 1}, values[2], parameters[2];
  srjit_losses losses = {.size = sizeof losses, .count = 2, .values = values};
  check(srjit_loss(engine, program, data, starts, 2, NULL, &losses, &error), &error);
  report(losses.failures);
  printf("mse %.4f and %.4f\n", values[0], values[1]);

  srjit_fits fits = {.size = sizeof fits, .count = 2, .parameter_count = 2, .losses = values, .parameters = parameters};
  check(srjit_fit(engine, program, data, starts, 2, NULL, &fits, &error), &error);
  report(fits.failures);
  printf("fitted to mse %.4f: %.3f * x0 ^ %.3f\n", values[1], parameters[0], parameters[1]);

  const char* texts[] = {"sqrt(x0)^3", "x0 +"};
  srjit_tokens* tokens;
  srjit_failures* failures;
  check(srjit_parse(texts, 2, SRJIT_TEXT_INFIX, NULL, 0, &tokens, &failures, &error), &error);
  report(failures);

  srjit_found* found;
  check(srjit_search(&view, "--ops 'mul, sqrt' --generations 20", NULL, &found, &error), &error);
  srjit_formula chosen = {.size = sizeof chosen};
  check(srjit_found_get(found, srjit_found_chosen(found), &chosen, &error), &error);
  printf("%" PRIu64 " formulas, chosen: %s, R2 %.4f\n", srjit_found_count(found), chosen.text, chosen.r2);
  srjit_found_free(found);

  srjit_tokens_free(tokens);
  srjit_program_free(program);
  srjit_dataset_free(data);
  srjit_engine_free(engine);
  return 0;
}
