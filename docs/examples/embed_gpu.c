/* A program in C99 for expressions in a GPU's memory: the second example of docs/embedding.md. */
#include <srjit/srjit.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int32_t status, const srjit_error* error) {
  if (status == SRJIT_OK) return;
  fprintf(stderr, "error %" PRId32 ": %s\n", status, error->message);
  exit(1);
}

/* Addresses of the GPU's memory, for instance from cudaMalloc. An expression has up to 32 tokens. */
struct generation {
  uint64_t expressions;
  uint64_t codes, values, lengths; /* int32_t[32 * expressions], float[32 * expressions], int32_t[expressions] */
  uint64_t losses, faults;         /* float[expressions], uint8_t[expressions] */
};

static void score(const srjit_device_loss* loss, const struct generation* trees, uint64_t stream) {
  srjit_error error = {.size = sizeof error};
  srjit_device_population population = {.size = sizeof population, .expressions = trees->expressions,
                                        .codes = trees->codes, .values = trees->values, .lengths = trees->lengths,
                                        .tokens = 32 * trees->expressions, .stride = 32};
  srjit_device_loss_outputs out = {.size = sizeof out, .losses = trees->losses, .faults = trees->faults};
  check(srjit_device_loss_submit(loss, &population, &out, stream, &error), &error);
}

int main(void) {
  srjit_error error = {.size = sizeof error};
  srjit_engine* engine;
  check(srjit_engine_create(NULL, &engine, &error), &error);

  float axis[] = {0.39f, 0.72f, 1, 1.52f, 5.2f, 9.54f}, period[] = {0.24f, 0.62f, 1, 1.88f, 11.86f, 29.46f};
  srjit_matrix columns = {.size = sizeof columns, .data = axis, .rows = 6, .columns = 1, .type = SRJIT_F32};
  srjit_matrix target = {.size = sizeof target, .data = period, .rows = 6, .columns = 1, .type = SRJIT_F32};
  srjit_data view = {.size = sizeof view, .columns = &columns, .target = &target};
  srjit_dataset* data;
  check(srjit_dataset_create(engine, &view, &data, &error), &error);

  int32_t operators[] = {1, 2, 3, 4}; /* add, sub, mul, div */
  srjit_loss_options mae = {.size = sizeof mae, .loss = "mae"};
  srjit_device_loss_options most = {.size = sizeof most, .operators = operators, .operator_count = 4,
                                    .expressions = 100000, .most_tokens = 32, .loss = &mae};
  srjit_device_loss* loss;
  int32_t status = srjit_device_loss_create(engine, data, &most, &loss, &error);

  if (status == SRJIT_OK) {
    struct generation trees = {0}; /* a program that breeds has its arrays here */
    score(loss, &trees, 0);
    printf("%" PRIu64 " expressions on %s\n", trees.expressions, srjit_engine_device(engine));
  } else {
    printf("refused: %s\n", error.message);
  }

  srjit_device_loss_free(loss);
  srjit_dataset_free(data);
  srjit_engine_free(engine);
  return 0;
}
