// Evaluations, fits, and either in flight.
#include <algorithm>
#include <cmath>
#include <concepts>

#include "runtime/c_api/handles.h"
#include "runtime/c_api/matrix.h"
#include "runtime/loss_text.h"

namespace srjit::c_api {

namespace {

constexpr NanPolicy kPolicyOf[] = {NanPolicy::kPropagate, NanPolicy::kSkip, NanPolicy::kReject};
constexpr DerivativesBy kDerivativesBy[] = {DerivativesBy::kParameters, DerivativesBy::kVariables};

GradientOptions gradientOptionsOf(const srjit_loss_options* given) {
  const srjit_loss_options options = fromCaller(given, "options");
  GradientOptions result;
  if (options.loss != nullptr) result.loss = parseLoss(options.loss).value();
  result.loss.nan = choiceOf(kPolicyOf, options.nan, "nan");
  result.by = choiceOf(kDerivativesBy, options.by, "by");
  return result;
}

LossOptions lossOptionsOf(const srjit_loss_options* given) { return gradientOptionsOf(given).loss; }

double toleranceOf(double given, double standard) {
  if (std::isnan(given)) refuse(Errc::kInvalid, "a tolerance is NaN");
  return given == 0 ? standard : std::max(given, 0.0);
}

FitOptions fitOptionsOf(const srjit_fit_options* given) {
  const srjit_fit_options options = fromCaller(given, "options");
  FitOptions result;
  checkReserved(options.reserved, "options");
  result.loss = lossOptionsOf(options.loss);
  if (options.stop != nullptr) result.stop = options.stop->source.get_token();
  result.loss_tolerance = toleranceOf(options.loss_tolerance, result.loss_tolerance);
  result.step_tolerance = toleranceOf(options.step_tolerance, result.step_tolerance);
  if (options.iterations != 0) result.iterations = options.iterations;
  return result;
}

/// The objects and parameters of one evaluation.
struct Evaluation {
  Evaluation(const srjit_engine* of, const srjit_program* compiled, const srjit_dataset* rows, const double* numbers,
             std::uint64_t count)
      : engine(required(of, "engine").engine),
        program(required(compiled, "program").program),
        origin(compiled->origin),
        data(required(rows, "data").data),
        parameters(arrayOf(numbers, count, "parameters")) {}

  /// What `use` gives for the caller's array of floats or doubles.
  template <class Use>
  auto withArray(std::int32_t type, void* out, std::uint64_t count, const Use& use) const {
    return withZeroOf(precisionOf(type),
                      [&]<class T>(T) { return use(arrayOf(static_cast<T*>(out), count, "out")).value(); });
  }
  template <class Value>
  srjit_pending pending(Pending<Value> value) const {
    return {Flight<Value>(std::move(value)), origin};
  }

  const Engine& engine;
  const Program& program;
  const Origin& origin;
  const Dataset& data;
  std::span<const double> parameters;
};

/// The caller's matrix of results in a GPU's memory, as Engine takes it: rows behind one another. Columns behind one
/// another are adjacent numbers, too, of which only the number matters.
DeviceMatrix outputOnDevice(const srjit_matrix* out) {
  const Matrix matrix(out, "out");
  if (!matrix.on_device) refuse(Errc::kInvalid, "on_device of out is 0, expected memory of the engine's GPU");
  DeviceMatrix output = matrix.onDevice();
  const std::ptrdiff_t element = bytesOf(output.type);
  if (output.row_stride == element && output.column_stride == element * static_cast<std::ptrdiff_t>(output.rows)) {
    output.row_stride = element * static_cast<std::ptrdiff_t>(output.columns);
    output.column_stride = element;
  }
  return output;
}

/// Lists of failures are null until a call has succeeded.
void clear(srjit_failures** failures) {
  if (failures != nullptr) *failures = nullptr;
}
template <class Results>
void clearFailures(Results* results) {
  if (results != nullptr && results->size >= kFirstSize<Results>) results->failures = nullptr;
}

void checkCount(std::size_t given, std::size_t expected, const char* name) {
  if (given != expected) refuse(Errc::kInvalid, fmt::format("{} is {}, expected {}", name, given, expected));
}

template <class From, class To>
void copyTo(const std::vector<From>& from, To* to) {
  if (to != nullptr) std::transform(from.begin(), from.end(), to, [](From value) { return static_cast<To>(value); });
}

/// Copies losses, and derivatives if there are some, to the caller's arrays. Throws before anything is written.
void give(const Losses& losses, const std::vector<double>* derivatives, const Origin& origin, srjit_losses* given) {
  srjit_losses to = fromCaller(&required(given, "losses"), "losses");
  if (to.values != nullptr || to.valid_rows != nullptr) checkCount(to.count, losses.values.size(), "count");
  if (to.derivatives != nullptr) {
    if (derivatives == nullptr) refuse(Errc::kInvalid, "losses have no derivatives: derivatives is not NULL");
    checkCount(to.derivative_count, derivatives->size(), "derivative_count");
  }
  to.failures = failuresFor(losses.failures, origin);
  copyTo(losses.values, to.values);
  copyTo(losses.valid_rows, to.valid_rows);
  if (derivatives != nullptr) copyTo(*derivatives, to.derivatives);
  toCaller(to, given);
}

void give(const Losses& losses, const Origin& origin, srjit_losses* to) { give(losses, nullptr, origin, to); }
void give(const Gradients& gradients, const Origin& origin, srjit_losses* to) {
  give(gradients.losses, &gradients.derivatives, origin, to);
}

void give(const std::vector<Failure>& list, const Origin& origin, srjit_failures** to) {
  required(to, "failures") = failuresFor(list, origin);
}

/// The caller's struct, whose arrays must have the sizes of these results.
srjit_fits fitsOf(const srjit_fits* given, std::size_t expressions, std::size_t parameters) {
  const srjit_fits to = fromCaller(&required(given, "fits"), "fits");
  if (to.losses != nullptr || to.valid_rows != nullptr || to.iterations != nullptr || to.statuses != nullptr ||
      to.starts != nullptr) {
    checkCount(to.count, expressions, "count");
  }
  if (to.parameters != nullptr || to.standard_errors != nullptr) {
    checkCount(to.parameter_count, parameters, "parameter_count");
  }
  return to;
}

void give(const Fits& fits, const Origin& origin, srjit_fits* given) {
  srjit_fits to = fitsOf(given, fits.statuses.size(), fits.parameters.size());
  to.failures = failuresFor(fits.losses.failures, origin);
  copyTo(fits.losses.values, to.losses);
  copyTo(fits.losses.valid_rows, to.valid_rows);
  copyTo(fits.iterations, to.iterations);
  copyTo(fits.statuses, to.statuses);
  copyTo(fits.starts, to.starts);
  copyTo(fits.parameters, to.parameters);
  copyTo(fits.standard_errors, to.standard_errors);
  toCaller(to, given);
}

/// Waits for the work of one of the Values, and gives its result to the caller's arrays. If they do not fit, the result
/// is kept, and so is an error.
template <class... Values, class To>
void take(srjit_pending* pending, const char* kind, To* to) {
  srjit_pending& of = required(pending, "pending");
  const bool is_kind = std::visit(
      [&]<class Value>(Flight<Value>& flight) {
        if constexpr ((std::same_as<Value, Values> || ...)) {
          if (flight.pending) {
            flight.result = std::move(*flight.pending).result();
            flight.pending.reset();
          }
          if (!flight.result) refuse(Errc::kInvalid, "the result was taken already");
          give(flight.result->value(), of.origin, to);
          flight.result.reset();
          return true;
        }
        return false;
      },
      of.flight);
  if (!is_kind) refuse(Errc::kInvalid, fmt::format("the work in flight is of another kind than {}", kind));
}

}  // namespace

extern "C" {

const char* srjit_loss_name(uint64_t i) { return i < allLosses().size() ? allLosses()[i].name.data() : nullptr; }

const char* srjit_fit_status_name(int32_t status) {
  if (status < SRJIT_FIT_CONVERGED || status > SRJIT_FIT_NO_PARAMETERS) return nullptr;
  return nameOf(static_cast<FitStatus>(status)).data();
}

int32_t srjit_loss(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                   const double* parameters, uint64_t parameter_count, const srjit_loss_options* options,
                   srjit_losses* losses, srjit_error* error) {
  clearFailures(losses);
  return answer(error, [&] {
    const Evaluation e(engine, program, data, parameters, parameter_count);
    fromCaller(&required(losses, "losses"), "losses");
    give(e.engine.loss(e.program, e.data, e.parameters, lossOptionsOf(options)).value(), e.origin, losses);
  });
}

int32_t srjit_population_loss(const srjit_engine* engine, const srjit_population* population, const srjit_dataset* data,
                              const double* parameters, uint64_t parameter_count, const srjit_loss_options* options,
                              const srjit_compile_options* compile_options, srjit_losses* losses, srjit_error* error) {
  clearFailures(losses);
  return answer(error, [&] {
    const srjit_engine& of = required(engine, "engine");
    const PopulationView view = populationOf(population);
    required(losses, "losses");
    give(of.engine
             .loss(view, required(data, "data").data, arrayOf(parameters, parameter_count, "parameters"),
                   lossOptionsOf(options), compileOptionsOf(of, compile_options))
             .value(),
         Origin{view.size()}, losses);
  });
}

int32_t srjit_gradient(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                       const double* parameters, uint64_t parameter_count, const srjit_loss_options* options,
                       srjit_losses* gradients, srjit_error* error) {
  clearFailures(gradients);
  return answer(error, [&] {
    const Evaluation e(engine, program, data, parameters, parameter_count);
    required(gradients, "gradients");
    give(e.engine.gradient(e.program, e.data, e.parameters, gradientOptionsOf(options)).value(), e.origin, gradients);
  });
}

int32_t srjit_predict(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                      const double* parameters, uint64_t parameter_count, int32_t type, void* out, uint64_t count,
                      srjit_failures** failures, srjit_error* error) {
  clear(failures);
  return answer(error, [&] {
    required(failures, "failures");
    const Evaluation e(engine, program, data, parameters, parameter_count);
    *failures = failuresFor(
        e.withArray(type, out, count, [&](auto to) { return e.engine.evaluate(e.program, e.data, e.parameters, to); }),
        e.origin);
  });
}

int32_t srjit_jacobian(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                       const double* parameters, uint64_t parameter_count, int32_t by, int32_t type, void* out,
                       uint64_t count, srjit_failures** failures, srjit_error* error) {
  clear(failures);
  return answer(error, [&] {
    required(failures, "failures");
    const Evaluation e(engine, program, data, parameters, parameter_count);
    const DerivativesBy what = choiceOf(kDerivativesBy, by, "by");
    *failures =
        failuresFor(e.withArray(type, out, count,
                                [&](auto to) { return e.engine.jacobian(e.program, e.data, e.parameters, to, what); }),
                    e.origin);
  });
}

int32_t srjit_predict_on_device(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                                const double* parameters, uint64_t parameter_count, const srjit_matrix* out,
                                uint64_t stream, srjit_failures** failures, srjit_error* error) {
  clear(failures);
  return answer(error, [&] {
    required(failures, "failures");
    const Evaluation e(engine, program, data, parameters, parameter_count);
    *failures =
        failuresFor(e.engine.evaluate(e.program, e.data, e.parameters, outputOnDevice(out), stream).value(), e.origin);
  });
}

int32_t srjit_jacobian_on_device(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                                 const double* parameters, uint64_t parameter_count, int32_t by,
                                 const srjit_matrix* out, uint64_t stream, srjit_failures** failures,
                                 srjit_error* error) {
  clear(failures);
  return answer(error, [&] {
    required(failures, "failures");
    const Evaluation e(engine, program, data, parameters, parameter_count);
    const DerivativesBy what = choiceOf(kDerivativesBy, by, "by");
    *failures = failuresFor(
        e.engine.jacobian(e.program, e.data, e.parameters, outputOnDevice(out), stream, what).value(), e.origin);
  });
}

int32_t srjit_prepare(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                      const srjit_loss_options* options, srjit_error* error) {
  return answer(error, [&] {
    const Evaluation e(engine, program, data, nullptr, 0);
    std::optional<LossOptions> loss;
    if (options != nullptr) loss = lossOptionsOf(options);
    e.engine.prepare(e.program, e.data, loss).value();
  });
}

int32_t srjit_fit(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                  const double* starts, uint64_t start_count, const srjit_fit_options* options, srjit_fits* fits,
                  srjit_error* error) {
  clearFailures(fits);
  return answer(error, [&] {
    const Evaluation e(engine, program, data, starts, start_count);
    fitsOf(fits, e.program.size(), e.program.parameterOffset(e.program.size()));
    give(e.engine.fit(e.program, e.data, e.parameters, fitOptionsOf(options)).value(), e.origin, fits);
  });
}

int32_t srjit_stop_create(srjit_stop** stop, srjit_error* error) {
  return answerWith(stop, "stop", error, [] { return srjit_stop{}; });
}
void srjit_stop_request(srjit_stop* stop) {
  if (stop != nullptr) stop->source.request_stop();
}
void srjit_stop_free(srjit_stop* stop) { delete stop; }

int32_t srjit_submit_loss(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                          const double* parameters, uint64_t parameter_count, const srjit_loss_options* options,
                          srjit_pending** pending, srjit_error* error) {
  return answerWith(pending, "pending", error, [&] {
    const Evaluation e(engine, program, data, parameters, parameter_count);
    return e.pending(e.engine.submitLoss(e.program, e.data, e.parameters, lossOptionsOf(options)).value());
  });
}

int32_t srjit_submit_population_loss(const srjit_engine* engine, const srjit_population* population,
                                     const srjit_dataset* data, const double* parameters, uint64_t parameter_count,
                                     const srjit_loss_options* options, const srjit_compile_options* compile_options,
                                     srjit_pending** pending, srjit_error* error) {
  return answerWith(pending, "pending", error, [&] {
    const srjit_engine& of = required(engine, "engine");
    const PopulationView view = populationOf(population);
    return srjit_pending{Flight<Losses>(of.engine
                                            .submitLoss(view, required(data, "data").data,
                                                        arrayOf(parameters, parameter_count, "parameters"),
                                                        lossOptionsOf(options), compileOptionsOf(of, compile_options))
                                            .value()),
                         {view.size()}};
  });
}

int32_t srjit_submit_gradient(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                              const double* parameters, uint64_t parameter_count, const srjit_loss_options* options,
                              srjit_pending** pending, srjit_error* error) {
  return answerWith(pending, "pending", error, [&] {
    const Evaluation e(engine, program, data, parameters, parameter_count);
    return e.pending(e.engine.submitGradient(e.program, e.data, e.parameters, gradientOptionsOf(options)).value());
  });
}

int32_t srjit_submit_predict(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                             const double* parameters, uint64_t parameter_count, int32_t type, void* out,
                             uint64_t count, srjit_pending** pending, srjit_error* error) {
  return answerWith(pending, "pending", error, [&] {
    const Evaluation e(engine, program, data, parameters, parameter_count);
    return e.pending(e.withArray(
        type, out, count, [&](auto to) { return e.engine.submitEvaluate(e.program, e.data, e.parameters, to); }));
  });
}

int32_t srjit_submit_jacobian(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                              const double* parameters, uint64_t parameter_count, int32_t by, int32_t type, void* out,
                              uint64_t count, srjit_pending** pending, srjit_error* error) {
  return answerWith(pending, "pending", error, [&] {
    const Evaluation e(engine, program, data, parameters, parameter_count);
    const DerivativesBy what = choiceOf(kDerivativesBy, by, "by");
    return e.pending(e.withArray(
        type, out, count, [&](auto to) { return e.engine.submitJacobian(e.program, e.data, e.parameters, to, what); }));
  });
}

int32_t srjit_submit_fit(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                         const double* starts, uint64_t start_count, const srjit_fit_options* options,
                         srjit_pending** pending, srjit_error* error) {
  return answerWith(pending, "pending", error, [&] {
    const Evaluation e(engine, program, data, starts, start_count);
    return e.pending(e.engine.submitFit(e.program, e.data, e.parameters, fitOptionsOf(options)).value());
  });
}

int32_t srjit_pending_ready(const srjit_pending* pending) {
  if (pending == nullptr) return 1;
  return std::visit([](const auto& flight) { return !flight.pending || flight.pending->ready() ? 1 : 0; },
                    pending->flight);
}

void srjit_pending_wait(const srjit_pending* pending) {
  if (pending == nullptr) return;
  std::visit(
      [](const auto& flight) {
        if (flight.pending) flight.pending->wait();
      },
      pending->flight);
}

int32_t srjit_pending_losses(srjit_pending* pending, srjit_losses* losses, srjit_error* error) {
  clearFailures(losses);
  return answer(error, [&] { take<Losses, Gradients>(pending, "losses", losses); });
}

int32_t srjit_pending_failures(srjit_pending* pending, srjit_failures** failures, srjit_error* error) {
  clear(failures);
  return answer(error, [&] { take<std::vector<Failure>>(pending, "predictions", failures); });
}

int32_t srjit_pending_fits(srjit_pending* pending, srjit_fits* fits, srjit_error* error) {
  clearFailures(fits);
  return answer(error, [&] { take<Fits>(pending, "fits", fits); });
}

void srjit_pending_free(srjit_pending* pending) { delete pending; }

}  // extern "C"

}  // namespace srjit::c_api
