/* The C interface of sr-jit, in C99: for programs in C, and for every language that can call C.
 *
 *   srjit_engine* engine;
 *   srjit_error error = {.size = sizeof error};
 *   if (srjit_engine_create(NULL, &engine, &error) != SRJIT_OK) puts(error.message);
 *
 * runtime/engine.h, the C++ interface, specifies engines, data sets, programs and fits. This page says what differs.
 *
 * Calls return SRJIT_OK or another code below. If a call fails, `error` says why unless it is NULL; pointers to new
 * objects and lists of failures are NULL; `out` may hold anything; nothing else was written. If a call succeeds,
 * `error` stays as it was. No exception leaves the library, and it calls no function of the caller. A NULL pointer is
 * SRJIT_ERROR_INVALID, unless this page allows it.
 *
 * Structs begin with their size in bytes, which the caller sets. In structs that the library reads, 0 and NULL stand
 * for the default. A caller compiled with an older header passes fewer bytes; the other members have their defaults.
 * With a newer header, members that this library does not know must be 0, or the call fails with
 * SRJIT_ERROR_UNSUPPORTED; in structs that the library writes they stay as they are. A size below that of the first
 * version, or above 4096, is SRJIT_ERROR_INVALID; a srjit_error of such a size is not written. (Linux extends its
 * system calls in this way: copy_struct_from_user(), include/linux/uaccess.h.)
 *
 * Objects are handles. The caller owns those that srjit_..._create(), srjit_compile() and similar calls give, and frees
 * each with the srjit_..._free() of its type, in any order; NULL is allowed. Texts of an object end with it. A call
 * reads arrays and texts only until it returns, except for memory of a device.
 *
 * Several threads may call all functions at once, with the same objects. Exceptions: a srjit_pending, a
 * srjit_device_loss and the arrays that a call writes belong to one thread at a time, and no object is freed while a
 * call uses it. fork(): see runtime/engine.h. The library stays loaded until the process ends.
 *
 * Later versions keep values of enumerators, members of structs, and functions.
 */
#ifndef SRJIT_SRJIT_H
#define SRJIT_SRJIT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What calls return, and srjit_error.code: Errc of ir/error.h. */
enum {
  SRJIT_OK = 0,
  SRJIT_ERROR_SYNTAX = 1,      /* text that is not an expression */
  SRJIT_ERROR_INVALID = 2,     /* an argument that breaks a rule */
  SRJIT_ERROR_IO = 3,          /* a file that cannot be read or written */
  SRJIT_ERROR_UNSUPPORTED = 4, /* a combination that this library or machine does not have */
  SRJIT_ERROR_COMPILE = 5,     /* LLVM or an assembler refused */
  SRJIT_ERROR_MACHINE = 6,     /* no device or driver; out of memory */
  SRJIT_ERROR_CANCELLED = 7,   /* stopped on request */
  SRJIT_ERROR_LIMIT = 8        /* more than a limit of the engine's options allows */
};

/* Why a call failed. */
typedef struct srjit_error {
  uint64_t size;
  int32_t code;
  int32_t has_place; /* whether the error has a place in a text; for token arrays, `column` is the token, from 1 */
  uint64_t line, column, length;
  char message[984]; /* ends with a zero; a longer message is cut off between two characters, and ends with "..." */
} srjit_error;

typedef struct srjit_engine srjit_engine;           /* a device and options */
typedef struct srjit_dataset srjit_dataset;         /* rows that an engine holds */
typedef struct srjit_tokens srjit_tokens;           /* expressions as token arrays that the library owns */
typedef struct srjit_program srjit_program;         /* a compiled batch of expressions */
typedef struct srjit_pending srjit_pending;         /* an evaluation in flight */
typedef struct srjit_device_loss srjit_device_loss; /* a loss of expressions in a GPU's memory, with its kernels */
typedef struct srjit_failures srjit_failures;       /* which expressions of a batch failed, and why */
typedef struct srjit_stop srjit_stop;               /* ends fits and searches early */
typedef struct srjit_found srjit_found;             /* formulas that a search has found */

/* The version of the library: three numbers with points between. */
const char* srjit_version(void);

/* ---- Failures of single expressions ----
 *
 * A bad expression is no error of its batch. Calls that compile or evaluate give failures by an out parameter: NULL if
 * no expression failed. Results of an expression that failed are NaN, and 0 valid rows. */
uint64_t srjit_failures_count(const srjit_failures* failures); /* 0 for NULL */
/* Failure i, in order of expressions. `expression` gets the expression's number in the batch; either may be NULL. */
int32_t srjit_failures_get(const srjit_failures* failures, uint64_t i, uint64_t* expression, srjit_error* error);
void srjit_failures_free(srjit_failures* failures);

/* ---- Engines ---- */

enum { SRJIT_F32 = 0, SRJIT_F64 = 1 };
enum { SRJIT_MATH_PRECISE = 0, SRJIT_MATH_STRICT = 1, SRJIT_MATH_FAST = 2 };
enum {
  SRJIT_TIER_OF_ENGINE = 0,
  SRJIT_TIER_AUTO = 1,
  SRJIT_TIER_INTERPRET = 2,
  SRJIT_TIER_COMPILED = 3,
  SRJIT_TIER_DIRECT = 4
};

/* EngineOptions of runtime/engine_options.h. */
typedef struct srjit_engine_options {
  uint64_t size;
  const char* device;          /* "auto" (NULL), "cpu", "cuda:N", "cuda:0,2", "cuda:all" */
  const char* cache_directory; /* of kernels; "": none; NULL: the user's */
  int32_t precision;           /* SRJIT_F32, SRJIT_F64 */
  int32_t math;                /* SRJIT_MATH_PRECISE, ... */
  int32_t tier;                /* SRJIT_TIER_AUTO, which 0 is, too, ... */
  uint32_t threads;            /* 0: all */
  uint64_t device_bytes;       /* 0: all that is free */
  uint64_t subtree_bytes;      /* 0: none */
  /* Limits of each call ("Limits" in runtime/engine.h); 0: none. */
  uint64_t max_nodes;      /* tokens of an expression */
  uint64_t max_call_nodes; /* tokens of all expressions of a call */
  double max_seconds;      /* of a call */
} srjit_engine_options;

/* `options` may be NULL. */
int32_t srjit_engine_create(const srjit_engine_options* options, srjit_engine** engine, srjit_error* error);
void srjit_engine_free(srjit_engine* engine);
/* "cpu", "cuda:N" or a list as "cuda:0,2"; NULL for NULL. Valid as long as the engine. */
const char* srjit_engine_device(const srjit_engine* engine);
/* Engine::notices(): notice i, valid as long as the engine; NULL from the last one on. Each of several GPUs that is
 * lost later adds one. */
const char* srjit_engine_notice(const srjit_engine* engine, uint64_t i);

/* The options of an engine, with `threads` as resolved. */
typedef struct srjit_engine_info {
  uint64_t size;
  int32_t precision, math, tier;
  uint32_t threads;
  uint64_t device_bytes, subtree_bytes;
  uint64_t max_nodes, max_call_nodes;
  double max_seconds;
} srjit_engine_info;
int32_t srjit_engine_get_info(const srjit_engine* engine, srjit_engine_info* info, srjit_error* error);

/* CacheStats of runtime/cache_stats.h. */
typedef struct srjit_cache_stats {
  uint64_t size;
  uint64_t memory_hits, disk_hits, misses, waits;
  uint64_t memory_images, memory_bytes, disk_images, disk_bytes;
  uint64_t evictions, damaged;
  double compile_seconds, saved_seconds;
} srjit_cache_stats;
int32_t srjit_engine_cache_stats(const srjit_engine* engine, srjit_cache_stats* stats, srjit_error* error);

/* ---- Data ---- */

/* A matrix of rows x columns. Number (r, c) is at `data` + r * row_stride + c * column_stride (bytes). If both strides
 * are 0, columns are behind one another, each of adjacent numbers. Strides are multiples of the number's size, and may
 * be negative. A call gathers columns in the processor's memory whose numbers are not adjacent, into a second copy. */
typedef struct srjit_matrix {
  uint64_t size;
  const void* data;
  uint64_t rows, columns;
  int64_t row_stride, column_stride;
  int32_t type;      /* SRJIT_F32, SRJIT_F64 */
  int32_t on_device; /* 0: the processor's memory; 1: that of the engine's GPU */
} srjit_matrix;

typedef struct srjit_data {
  uint64_t size;
  const srjit_matrix* columns;
  const srjit_matrix* target;  /* one column; NULL: none */
  const srjit_matrix* weights; /* one column; NULL: none */
  const char* const* names;    /* one for each column, for text and messages; NULL: x0, x1, ... */
  uint64_t stream; /* a CUDA stream that writes the device memory: the call waits for its work. 0: it waits for none,
                      not even the default stream's; 0 for the processor's memory */
} srjit_data;

/* All matrices are in one kind of memory. The call copies those of the processor (Engine::upload). A GPU's columns are
 * used in place (Engine::adopt): they must stay valid and unchanged until the data set, and every srjit_pending and
 * srjit_device_loss that reads it, are freed. Data sets of the next three calls have their own copies. */
int32_t srjit_dataset_create(const srjit_engine* engine, const srjit_data* data, srjit_dataset** dataset,
                             srjit_error* error);
void srjit_dataset_free(srjit_dataset* dataset);
/* Parts of resident data: Engine::rows, sample (groups of 128 rows) and withWeights. */
int32_t srjit_dataset_rows(const srjit_engine* engine, const srjit_dataset* data, uint64_t first, uint64_t count,
                           srjit_dataset** dataset, srjit_error* error);
int32_t srjit_dataset_sample(const srjit_engine* engine, const srjit_dataset* data, uint64_t groups, uint64_t seed,
                             srjit_dataset** dataset, srjit_error* error);
int32_t srjit_dataset_with_weights(const srjit_engine* engine, const srjit_dataset* data, const srjit_matrix* weights,
                                   uint64_t stream, srjit_dataset** dataset, srjit_error* error);

typedef struct srjit_dataset_info {
  uint64_t size;
  uint64_t rows, columns;
  uint64_t row_groups; /* groups of 128 rows */
  /* SubtreeStats of runtime/dataset.h. */
  uint64_t subtree_capacity, subtrees_kept, subtree_bytes, subtrees_computed, subtrees_replaced, subtree_reads;
} srjit_dataset_info;
int32_t srjit_dataset_get_info(const srjit_dataset* dataset, srjit_dataset_info* info, srjit_error* error);

/* ---- Expressions ----
 *
 * Expression e has the tokens offsets[e] to offsets[e + 1] - 1. The code of a token is
 *
 *   0                       a constant, constants[token]
 *   1, 2, ...               an operator (srjit_op_get, `sr-jit ops --json`)
 *   -1 - i                  variable i: column i of the data
 *   SRJIT_PARAMETER - i     parameter i of this expression */
enum { SRJIT_CONSTANT = 0, SRJIT_VARIABLE = -1, SRJIT_PARAMETER = -1073741824 };
enum { SRJIT_POSTFIX = 0, SRJIT_PREFIX = 1 };

typedef struct srjit_population {
  uint64_t size;
  uint64_t expressions;
  const int32_t* codes;
  const double* constants; /* by token: any number unless the code is SRJIT_CONSTANT; NULL: no constants */
  const int64_t* offsets;  /* expressions + 1 of them, from 0 */
  int32_t notation;        /* SRJIT_POSTFIX: operands, then the operator; SRJIT_PREFIX */
  int32_t reserved;        /* 0 */
} srjit_population;

typedef struct srjit_op {
  uint64_t size;
  const char* name; /* "add"; valid forever */
  const char* text; /* "+" */
  int32_t code;
  int32_t arity;
} srjit_op;
uint64_t srjit_op_count(void);
/* Operator i < srjit_op_count(). */
int32_t srjit_op_get(uint64_t i, srjit_op* op, srjit_error* error);

enum { SRJIT_TEXT_INFIX = 0, SRJIT_TEXT_POSTFIX = 1, SRJIT_TEXT_PREFIX = 2, SRJIT_TEXT_JSON = 3 };

/* `count` texts as token arrays (ir/text.h has the grammar). `names` are those of `columns` columns, NULL for none. A
 * text that is no expression is a failure (`failures` may be NULL), and becomes an expression without tokens;
 * srjit_compile_tokens() gives its failure again. */
int32_t srjit_parse(const char* const* texts, uint64_t count, int32_t language, const char* const* names,
                    uint64_t columns, srjit_tokens** tokens, srjit_failures** failures, srjit_error* error);
/* Simplified expressions for people (passes/simplify_expression.h), in double precision. `failures` may be NULL. */
int32_t srjit_simplify(const srjit_population* population, int32_t math, srjit_tokens** tokens,
                       srjit_failures** failures, srjit_error* error);
/* Their arrays, in postfix; valid as long as `tokens`. */
int32_t srjit_tokens_get(const srjit_tokens* tokens, srjit_population* population, srjit_error* error);
void srjit_tokens_free(srjit_tokens* tokens);
/* Expression `expression` as text. `text` gets at most `capacity` bytes, the last one zero; a longer text is cut off at
 * a byte. `length` gets the length of the whole text without its zero. Either may be NULL (with a capacity of 0). */
int32_t srjit_print(const srjit_population* population, uint64_t expression, int32_t language, const char* const* names,
                    uint64_t columns, char* text, uint64_t capacity, uint64_t* length, srjit_error* error);

/* ---- Programs ---- */

/* CompileOptions of runtime/engine_options.h. */
typedef struct srjit_compile_options {
  uint64_t size;
  int32_t tier;                /* SRJIT_TIER_OF_ENGINE, SRJIT_TIER_AUTO, ... */
  int32_t keep_order;          /* 1: kernels get adjacent expressions; 0: those that share subtrees */
  double expected_evaluations; /* 0: 1 */
  uint64_t expected_rows;      /* 0: unknown */
  const char* passes;          /* names with commas, as of `sr-jit passes`; NULL: the standard pipeline */
  const srjit_dataset* data;   /* restricts the program to one data set, whose kept subtrees it reads; NULL: any */
  int32_t deferred;   /* 1: code is made at the first evaluation, for programs that are fitted; no effect with data */
  int32_t as_written; /* 1: expressions are evaluated as they are written: constants are folded, and sums of products
                       * are multiply-adds (not in strict), but no rule is applied. Not beside `passes` */
} srjit_compile_options;

/* `options` may be NULL. Expressions that fail are failures of the program, and of each of its evaluations. */
int32_t srjit_compile(const srjit_engine* engine, const srjit_population* population,
                      const srjit_compile_options* options, srjit_program** program, srjit_error* error);
int32_t srjit_compile_tokens(const srjit_engine* engine, const srjit_tokens* tokens,
                             const srjit_compile_options* options, srjit_program** program, srjit_error* error);
void srjit_program_free(srjit_program* program);
/* The failures of the program, to be freed; NULL if there are none. */
int32_t srjit_program_failures(const srjit_program* program, srjit_failures** failures, srjit_error* error);
/* Program::parameterOffset() of each expression, and the number of all parameters: `count` is the number of expressions
 * + 1. */
int32_t srjit_program_parameter_offsets(const srjit_program* program, uint64_t* offsets, uint64_t count,
                                        srjit_error* error);
/* Start values for srjit_fit(). `starts` gets `count` vectors, at least 1, of all `parameter_count` parameters: first
 * `given`, then vectors that `seed` draws around it, of either sign, with 1/16 to 16 times the magnitude (of 1 for a
 * 0). They are the same on every machine. `starts` must not overlap `given`. */
int32_t srjit_program_draw_starts(const srjit_program* program, const double* given, uint64_t parameter_count,
                                  uint64_t count, uint64_t seed, double* starts, srjit_error* error);

/* ProgramInfo and ProgramStatus of runtime/program.h. */
typedef struct srjit_program_info {
  uint64_t size;
  uint64_t expressions, parameters;
  uint64_t nodes_before, nodes_after;
  double seconds_passes, seconds_codegen;
  uint64_t subtrees_read, nodes_spared, recurring;
  int32_t tier;           /* of the next evaluation, if it is like the last one */
  int32_t requested_tier; /* ProgramInfo::tier */
  int32_t compiling;      /* whether machine code is made in the background */
  int32_t reserved;       /* 0 */
  uint64_t compiled, evaluations;
  uint64_t served_interpreted, served_direct, served_compiled;
  double seconds_compiling, seconds_reading, seconds_loading, device_seconds;
} srjit_program_info;
int32_t srjit_program_get_info(const srjit_program* program, srjit_program_info* info, srjit_error* error);
/* ProgramStatus::error: why some or all expressions lack machine code; SRJIT_OK if none does. */
int32_t srjit_program_status(const srjit_program* program, srjit_error* error);

/* ---- Evaluations ----
 *
 * `parameters` are those of all expressions behind one another, or several such vectors. v vectors of e expressions
 * have v * e results, those of the first vector first. A program without parameters has one vector. A `count` of an
 * array that is not that of the results is SRJIT_ERROR_INVALID. */

enum { SRJIT_NAN_PROPAGATE = 0, SRJIT_NAN_SKIP = 1, SRJIT_NAN_REJECT = 2 };
enum { SRJIT_BY_PARAMETERS = 0, SRJIT_BY_VARIABLES = 1 };

/* LossOptions of runtime/engine_options.h. */
typedef struct srjit_loss_options {
  uint64_t size;
  const char* loss; /* the name of a loss ("mse", which NULL is, too), "NAME:CONSTANT", or an expression over f, y, w */
  int32_t nan;      /* rows whose prediction is not finite: SRJIT_NAN_PROPAGATE, ... */
  int32_t by;       /* SRJIT_BY_PARAMETERS, ...; only gradients read it */
} srjit_loss_options;
/* The name of loss i, valid forever; NULL from the last one on. */
const char* srjit_loss_name(uint64_t i);

/* Where results go. An array that is NULL is not written. The caller frees `failures`, which the call writes. */
typedef struct srjit_losses {
  uint64_t size;
  uint64_t count; /* of values and valid_rows */
  double* values;
  uint64_t* valid_rows; /* UINT64_MAX: not counted */
  uint64_t derivative_count;
  double* derivatives; /* only of gradients: by parameters in their layout; by variable v at e * columns + v */
  srjit_failures* failures;
} srjit_losses;

/* Options may be NULL. */
int32_t srjit_loss(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                   const double* parameters, uint64_t parameter_count, const srjit_loss_options* options,
                   srjit_losses* losses, srjit_error* error);
/* Compiles and evaluates expressions that are evaluated once. */
int32_t srjit_population_loss(const srjit_engine* engine, const srjit_population* population, const srjit_dataset* data,
                              const double* parameters, uint64_t parameter_count, const srjit_loss_options* options,
                              const srjit_compile_options* compile_options, srjit_losses* losses, srjit_error* error);
int32_t srjit_gradient(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                       const double* parameters, uint64_t parameter_count, const srjit_loss_options* options,
                       srjit_losses* gradients, srjit_error* error);
/* Predictions: that of expression e in row r at out[e * rows + r]. `type` is the engine's precision. */
int32_t srjit_predict(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                      const double* parameters, uint64_t parameter_count, int32_t type, void* out, uint64_t count,
                      srjit_failures** failures, srjit_error* error);
/* Derivatives of predictions: by parameter p of expression e at out[(offset of e + p) * rows + r], by variable v at
 * out[(e * columns + v) * rows + r]. */
int32_t srjit_jacobian(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                       const double* parameters, uint64_t parameter_count, int32_t by, int32_t type, void* out,
                       uint64_t count, srjit_failures** failures, srjit_error* error);
/* The same with results in memory of the engine's GPU: `out` has on_device = 1 and the engine's precision as its type.
 * Its numbers are adjacent, as many as the results, in the order above; rows and columns may differ. The call writes
 * them after the work that is now in the CUDA stream `stream` (0: it waits for none, not even the default stream's),
 * and before it returns. Memory of another device, and an engine without a GPU, are SRJIT_ERROR_UNSUPPORTED. */
int32_t srjit_predict_on_device(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                                const double* parameters, uint64_t parameter_count, const srjit_matrix* out,
                                uint64_t stream, srjit_failures** failures, srjit_error* error);
int32_t srjit_jacobian_on_device(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                                 const double* parameters, uint64_t parameter_count, int32_t by,
                                 const srjit_matrix* out, uint64_t stream, srjit_failures** failures,
                                 srjit_error* error);
/* Does in advance what the first evaluation would do: of losses, or of predictions if `options` is NULL. */
int32_t srjit_prepare(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                      const srjit_loss_options* options, srjit_error* error);

/* ---- Expressions in a GPU's memory ----
 *
 * Losses of populations that are in the memory of the engine's GPU (runtime/device_loss.h). Structs have addresses of
 * arrays in this memory. For each population srjit_device_loss_submit() only puts kernels on a CUDA stream, so a CUDA
 * graph may capture it. */

/* DeviceLossOptions of runtime/device_loss.h. Operators and `expressions` have no default. */
typedef struct srjit_device_loss_options {
  uint64_t size;
  const int32_t* operators; /* codes of those that expressions may have; few make a short interpreter */
  uint64_t operator_count;
  uint64_t expressions;           /* of a call, at most; at least 1 */
  const srjit_loss_options* loss; /* NULL: mse; scaled and custom losses, and those with a constant, are refused */
  uint64_t bytes;                 /* of the GPU's memory; 0: the default */
  uint32_t most_tokens;           /* of an expression: 1 to 256; 0: 64 */
  uint32_t reserved;              /* 0 */
} srjit_device_loss_options;

/* Takes memory and kernels. An engine that is not on one GPU is SRJIT_ERROR_UNSUPPORTED. */
int32_t srjit_device_loss_create(const srjit_engine* engine, const srjit_dataset* data,
                                 const srjit_device_loss_options* options, srjit_device_loss** loss,
                                 srjit_error* error);
/* Waits for the device, so no stream of it may capture meanwhile. Graphs that captured `loss` are launched no more. */
void srjit_device_loss_free(srjit_device_loss* loss);

/* DevicePopulation of ir/population.h. Expression e has the tokens from offsets[e], or from e * stride, on. The library
 * reads nothing outside of the arrays, whatever they hold. */
typedef struct srjit_device_population {
  uint64_t size;
  uint64_t codes;  /* int32_t by token, as those of srjit_population */
  uint64_t values; /* by token: those of tokens that are constants or parameters, and any others; 0: no token is one */
  uint64_t tokens; /* of codes and values; without offsets at least stride * expressions */
  uint64_t expressions;
  uint64_t offsets;    /* int64_t, expressions + 1 of them, from 0; 0: there is a stride */
  uint64_t stride;     /* tokens from the first of an expression to that of the next */
  uint64_t lengths;    /* int32_t by expression; 0: up to the next one; in prefix with a stride, as the tokens say */
  int32_t values_type; /* SRJIT_F32, SRJIT_F64 */
  int32_t notation;    /* SRJIT_POSTFIX, SRJIT_PREFIX */
} srjit_device_population;

/* DeviceLossOutputs of runtime/device_loss.h: where results go, by expression. */
typedef struct srjit_device_loss_outputs {
  uint64_t size;
  uint64_t losses;     /* numbers of `type`; NaN with a fault */
  uint64_t valid_rows; /* int64_t; -1: not counted. 0: not wanted */
  uint64_t faults;     /* bytes: SRJIT_FAULT_NONE, ... 0: not wanted */
  int32_t type;        /* SRJIT_F32, SRJIT_F64 */
  int32_t reserved;    /* 0 */
} srjit_device_loss_outputs;

/* Puts the work on the CUDA stream `stream` (0: the legacy default stream) and returns. Losses have the bits of those
 * of a program with as_written = 1. Calls with one srjit_device_loss share memory: their streams are the same, or wait
 * for each other. Memory of another device is SRJIT_ERROR_UNSUPPORTED, unless an earlier call has accepted the address.
 */
int32_t srjit_device_loss_submit(const srjit_device_loss* loss, const srjit_device_population* population,
                                 const srjit_device_loss_outputs* out, uint64_t stream, srjit_error* error);

/* Why an expression has no loss: DeviceFault of ir/population.h. */
enum {
  SRJIT_FAULT_NONE = 0,
  SRJIT_FAULT_LENGTH = 1,   /* no tokens, more than the most, or tokens outside of the arrays */
  SRJIT_FAULT_CODE = 2,     /* a code that no operator has, or of a number without values */
  SRJIT_FAULT_OPERATOR = 3, /* an operator that is not among those of the options */
  SRJIT_FAULT_VARIABLE = 4, /* a variable that the data do not have */
  SRJIT_FAULT_OPERANDS = 5, /* an operator lacks operands */
  SRJIT_FAULT_REST = 6,     /* tokens that belong to no operator */
  SRJIT_FAULT_SLOTS = 7     /* more values are kept at once than there is room for */
};
/* A clause such as "an operator lacks operands"; NULL for another number. Valid forever. */
const char* srjit_fault_text(int32_t fault);

/* ---- Fits ---- */

/* FitStatus of runtime/fit_options.h. */
enum {
  SRJIT_FIT_CONVERGED = 1,
  SRJIT_FIT_ITERATIONS = 2,
  SRJIT_FIT_NO_PROGRESS = 3,
  SRJIT_FIT_NOT_FINITE = 4,
  SRJIT_FIT_SINGULAR = 5,
  SRJIT_FIT_CANCELLED = 6,
  SRJIT_FIT_FAILED = 7,
  SRJIT_FIT_NO_PARAMETERS = 8
};
/* "converged", "iterations", "no parameters", or "failed: " and why; NULL for another number. Valid forever. */
const char* srjit_fit_status_name(int32_t status);

/* FitOptions of runtime/fit_options.h. */
typedef struct srjit_fit_options {
  uint64_t size;
  const srjit_loss_options* loss; /* NULL: mse */
  const srjit_stop* stop;         /* NULL: none */
  double loss_tolerance;          /* 0: the default; negative: 0 */
  double step_tolerance;          /* 0: the default; negative: 0 */
  uint32_t iterations;            /* 0: the default */
  uint32_t reserved;              /* 0 */
  const double* bounds;           /* the lower and the upper bound of p0, then of p1, ...; -INFINITY, INFINITY: none */
  uint64_t bound_count;           /* of these numbers: two for each parameter that has them */
} srjit_fit_options;

/* As srjit_losses. `count` is the number of expressions, `parameter_count` that of all their parameters. */
typedef struct srjit_fits {
  uint64_t size;
  uint64_t count;
  double* losses;
  uint64_t* valid_rows;
  uint32_t* iterations; /* passes over the data */
  int32_t* statuses;    /* SRJIT_FIT_CONVERGED, ... */
  uint64_t* starts;     /* which start won */
  uint64_t parameter_count;
  double* parameters;
  double* standard_errors; /* NaN if unknown, and at a bound */
  srjit_failures* failures;
} srjit_fits;

/* `starts` has one or more vectors of all parameters behind one another. */
int32_t srjit_fit(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                  const double* starts, uint64_t start_count, const srjit_fit_options* options, srjit_fits* fits,
                  srjit_error* error);

/* srjit_stop_request() ends all fits that have `stop` with SRJIT_FIT_CANCELLED, after the pass that runs; searches with
 * what they have found, within a second. */
int32_t srjit_stop_create(srjit_stop** stop, srjit_error* error);
void srjit_stop_request(srjit_stop* stop);
void srjit_stop_free(srjit_stop* stop);

/* ---- Work in flight ----
 *
 * These copy what they read, except for columns in device memory. `out` must outlive the srjit_pending. */
int32_t srjit_submit_loss(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                          const double* parameters, uint64_t parameter_count, const srjit_loss_options* options,
                          srjit_pending** pending, srjit_error* error);
int32_t srjit_submit_population_loss(const srjit_engine* engine, const srjit_population* population,
                                     const srjit_dataset* data, const double* parameters, uint64_t parameter_count,
                                     const srjit_loss_options* options, const srjit_compile_options* compile_options,
                                     srjit_pending** pending, srjit_error* error);
int32_t srjit_submit_gradient(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                              const double* parameters, uint64_t parameter_count, const srjit_loss_options* options,
                              srjit_pending** pending, srjit_error* error);
int32_t srjit_submit_predict(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                             const double* parameters, uint64_t parameter_count, int32_t type, void* out,
                             uint64_t count, srjit_pending** pending, srjit_error* error);
int32_t srjit_submit_jacobian(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                              const double* parameters, uint64_t parameter_count, int32_t by, int32_t type, void* out,
                              uint64_t count, srjit_pending** pending, srjit_error* error);
int32_t srjit_submit_fit(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                         const double* starts, uint64_t start_count, const srjit_fit_options* options,
                         srjit_pending** pending, srjit_error* error);

/* Whether the submitted work has ended, so that taking its result does not wait: 1 or 0; 1 for NULL. Taking losses of a
 * scaled loss may evaluate some expressions again (docs/losses.md). */
int32_t srjit_pending_ready(const srjit_pending* pending);
void srjit_pending_wait(const srjit_pending* pending);
/* Wait, and take the result of losses and gradients, of predictions and Jacobians, or of fits. A second time is
 * SRJIT_ERROR_INVALID, and so is another kind of work, whose result stays. If an array has the wrong count, the result
 * stays; an error is given again. */
int32_t srjit_pending_losses(srjit_pending* pending, srjit_losses* losses, srjit_error* error);
int32_t srjit_pending_failures(srjit_pending* pending, srjit_failures** failures, srjit_error* error);
int32_t srjit_pending_fits(srjit_pending* pending, srjit_fits* fits, srjit_error* error);
/* Waits for work whose result was not taken. */
void srjit_pending_free(srjit_pending* pending);

/* ---- Search for formulas ----
 *
 * Searches formulas of the target of `data`, in the processor's memory. `options` are those of `sr-jit search` but for
 * data and files, divided at spaces; quotes keep these: "--seconds 10 --ops 'add, mul, div' --device cpu"; NULL: none.
 * `stop` may be NULL. Equal data, options and --generations give equal formulas. */
int32_t srjit_search(const srjit_data* data, const char* options, const srjit_stop* stop, srjit_found** found,
                     srjit_error* error);

/* A formula of the front. srjit_parse() with SRJIT_TEXT_INFIX and the names of the data reads
 * `text`. Texts are valid as long as the srjit_found. */
typedef struct srjit_formula {
  uint64_t size;
  const char *text, *latex, *postfix; /* `text` is infix */
  uint64_t complexity;
  double loss;
  double held_out;      /* the loss on rows that were held out; NaN if there are none */
  double evidence, bic; /* NaN if the loss is no likelihood */
  double r2;            /* NaN if the target is constant */
} srjit_formula;
uint64_t srjit_found_count(const srjit_found* found);  /* 0 for NULL; the simplest formula is number 0 */
uint64_t srjit_found_chosen(const srjit_found* found); /* the number of the formula that --choose chooses */
int32_t srjit_found_get(const srjit_found* found, uint64_t i, srjit_formula* formula, srjit_error* error);
/* Notice i, valid as long as the srjit_found; NULL from the last one on. */
const char* srjit_found_notice(const srjit_found* found, uint64_t i);
void srjit_found_free(srjit_found* found);

#ifdef __cplusplus
}
#endif

#endif
