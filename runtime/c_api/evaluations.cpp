// Evaluations, fits, and either in flight.
#include <algorithm>
#include <cmath>
#include <concepts>
#include <optional>
#include <stop_token>
#include <variant>

#include "runtime/c_api/handles.h"
#include "runtime/loss_text.h"

namespace srjit::c_api {

/// An evaluation in flight, or what it gave: an error, or a value until it is taken.
template <class Value>
struct Flight {
  explicit Flight(Pending<Value> evaluation) : pending(std::move(evaluation)) {}

  std::optional<Pending<Value>> pending;
  std::optional<Result<Value>> result = {};
};

}  // namespace srjit::c_api

struct srjit_pending {
  std::variant<srjit::c_api::Flight<srjit::Losses>, srjit::c_api::Flight<srjit::Gradients>,
               srjit::c_api::Flight<std::vector<srjit::Failure>>, srjit::c_api::Flight<srjit::Fits>>
      flight;
  srjit::c_api::Origin origin;
};

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
  const std::span<const double> bounds = arrayOf(options.bounds, options.bound_count, "bounds");
  if (bounds.size() % 2 != 0)
    refuse(Errc::kInvalid, "bounds has an odd number of numbers, expected two for each parameter");
  for (std::size_t i = 0; i < bounds.size(); i += 2) result.bounds.push_back({bounds[i], bounds[i + 1]});
  return result;
}

/// What calls that evaluate are given: the expressions are a program or a population.
template <class Expressions>
struct Call {
  const srjit_engine* engine;
  const Expressions* expressions;
  const srjit_dataset* data;
  const double* parameters;
  std::uint64_t parameter_count;
};

const srjit_program& checked(const srjit_program* program) { return required(program, "program"); }
PopulationView checked(const srjit_population* population) { return populationOf(population); }
const Program& expressionsOf(const srjit_program& program) { return program.program; }
PopulationView expressionsOf(const PopulationView& population) { return population; }
Origin originOf(const srjit_program& program) { return program.origin; }
Origin originOf(const PopulationView& population) { return {population.size()}; }

/// Checks the objects and parameters of a call, and passes them to `use` with where its expressions come from.
template <class Expressions, class Use>
auto withObjects(const Call<Expressions>& call, const Use& use) {
  const Engine& engine = required(call.engine, "engine").engine;
  decltype(auto) expressions = checked(call.expressions);
  const Dataset& data = required(call.data, "data").data;
  const std::span<const double> parameters = arrayOf(call.parameters, call.parameter_count, "parameters");
  return use(originOf(expressions), engine, expressionsOf(expressions), data, parameters);
}

/// What `use` gives for the caller's array of floats or doubles.
template <class Use>
auto withArray(std::int32_t type, void* out, std::uint64_t count, const Use& use) {
  return withZeroOf(precisionOf(type), [&]<class T>(T) { return use(arrayOf(static_cast<T*>(out), count, "out")); });
}

/// The caller's matrix of results in a GPU's memory, as Engine takes it: rows behind one another. Columns behind one
/// another are adjacent numbers, too: only their number matters.
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
void clear(Results* results) {
  if (results != nullptr && results->size >= kFirstSize<Results>) results->failures = nullptr;
}

void checkCount(std::size_t given, std::size_t expected, const char* name) {
  if (given != expected) refuse(Errc::kInvalid, fmt::format("{} is {}, expected {}", name, given, expected));
}

template <class From, class To>
void copyTo(const std::vector<From>& from, To* to) {
  if (to != nullptr) std::transform(from.begin(), from.end(), to, [](From value) { return static_cast<To>(value); });
}

/// Copies losses, and derivatives if any, to the caller's arrays. Throws before anything is written.
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

void give(std::vector<Failure> list, const Origin& origin, srjit_failures** to) {
  required(to, "failures") = failuresFor(std::move(list), origin);
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

/// Checks what can be checked of a place for results before they are there.
void checkPlace(srjit_losses* losses, const char* name, const auto&) { fromCaller(&required(losses, name), name); }
void checkPlace(srjit_failures** failures, const char* name, const Program&) { required(failures, name); }
void checkPlace(srjit_fits* fits, const char*, const Program& program) {
  fitsOf(fits, program.size(), program.parameterOffset(program.size()));
}

/// Gives to the caller what `ask` asks an engine for. `name` is that of `to` in messages.
template <class Call, class To, class Ask>
std::int32_t evaluate(const Call& call, To* to, const char* name, srjit_error* error, const Ask& ask) {
  clear(to);
  return answer(error, [&] {
    withObjects(call, [&](const Origin& origin, const Engine& engine, const auto& expressions, const auto&... rest) {
      checkPlace(to, name, expressions);
      give(ask(engine, expressions, rest...).value(), origin, to);
    });
  });
}
template <class Call, class Ask>
std::int32_t submit(const Call& call, srjit_pending** pending, srjit_error* error, const Ask& ask) {
  return answerWith(pending, "pending", error, [&] {
    return withObjects(call, [&](const Origin& origin, const auto&... objects) {
      return srjit_pending{Flight(ask(objects...).value()), origin};
    });
  });
}

}  // namespace

LossOptions lossOptionsOf(const srjit_loss_options* given) { return gradientOptionsOf(given).loss; }

extern "C" {

const char* srjit_loss_name(uint64_t i) { return i < allLosses().size() ? allLosses()[i].name.data() : nullptr; }

const char* srjit_fit_status_name(int32_t status) {
  if (status < SRJIT_FIT_CONVERGED || status > SRJIT_FIT_NO_PARAMETERS) return nullptr;
  return nameOf(static_cast<FitStatus>(status)).data();
}

int32_t srjit_loss(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                   const double* parameters, uint64_t parameter_count, const srjit_loss_options* options,
                   srjit_losses* losses, srjit_error* error) {
  return evaluate(Call{engine, program, data, parameters, parameter_count}, losses, "losses", error,
                  [&](auto& on, auto&... of) { return on.loss(of..., lossOptionsOf(options)); });
}

int32_t srjit_population_loss(const srjit_engine* engine, const srjit_population* population, const srjit_dataset* data,
                              const double* parameters, uint64_t parameter_count, const srjit_loss_options* options,
                              const srjit_compile_options* compile_options, srjit_losses* losses, srjit_error* error) {
  return evaluate(Call{engine, population, data, parameters, parameter_count}, losses, "losses", error,
                  [&](auto& on, auto&... of) {
                    return on.loss(of..., lossOptionsOf(options), compileOptionsOf(*engine, compile_options));
                  });
}

int32_t srjit_gradient(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                       const double* parameters, uint64_t parameter_count, const srjit_loss_options* options,
                       srjit_losses* gradients, srjit_error* error) {
  return evaluate(Call{engine, program, data, parameters, parameter_count}, gradients, "gradients", error,
                  [&](auto& on, auto&... of) { return on.gradient(of..., gradientOptionsOf(options)); });
}

int32_t srjit_predict(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                      const double* parameters, uint64_t parameter_count, int32_t type, void* out, uint64_t count,
                      srjit_failures** failures, srjit_error* error) {
  return evaluate(Call{engine, program, data, parameters, parameter_count}, failures, "failures", error,
                  [&](auto& on, auto&... of) {
                    return withArray(type, out, count, [&](auto to) { return on.evaluate(of..., to); });
                  });
}

int32_t srjit_jacobian(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                       const double* parameters, uint64_t parameter_count, int32_t by, int32_t type, void* out,
                       uint64_t count, srjit_failures** failures, srjit_error* error) {
  return evaluate(Call{engine, program, data, parameters, parameter_count}, failures, "failures", error,
                  [&](auto& on, auto&... of) {
                    const DerivativesBy what = choiceOf(kDerivativesBy, by, "by");
                    return withArray(type, out, count, [&](auto to) { return on.jacobian(of..., to, what); });
                  });
}

int32_t srjit_predict_on_device(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                                const double* parameters, uint64_t parameter_count, const srjit_matrix* out,
                                uint64_t stream, srjit_failures** failures, srjit_error* error) {
  return evaluate(Call{engine, program, data, parameters, parameter_count}, failures, "failures", error,
                  [&](auto& on, auto&... of) { return on.evaluate(of..., outputOnDevice(out), stream); });
}

int32_t srjit_jacobian_on_device(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                                 const double* parameters, uint64_t parameter_count, int32_t by,
                                 const srjit_matrix* out, uint64_t stream, srjit_failures** failures,
                                 srjit_error* error) {
  return evaluate(Call{engine, program, data, parameters, parameter_count}, failures, "failures", error,
                  [&](auto& on, auto&... of) {
                    const DerivativesBy what = choiceOf(kDerivativesBy, by, "by");
                    return on.jacobian(of..., outputOnDevice(out), stream, what);
                  });
}

int32_t srjit_prepare(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                      const srjit_loss_options* options, srjit_error* error) {
  return answer(error, [&] {
    withObjects(Call{engine, program, data, nullptr, 0}, [&](const Origin&, auto& on, auto& of, auto& rows, auto&) {
      std::optional<LossOptions> loss;
      if (options != nullptr) loss = lossOptionsOf(options);
      on.prepare(of, rows, loss).value();
    });
  });
}

int32_t srjit_fit(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                  const double* starts, uint64_t start_count, const srjit_fit_options* options, srjit_fits* fits,
                  srjit_error* error) {
  return evaluate(Call{engine, program, data, starts, start_count}, fits, "fits", error,
                  [&](auto& on, auto&... of) { return on.fit(of..., fitOptionsOf(options)); });
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
  return submit(Call{engine, program, data, parameters, parameter_count}, pending, error,
                [&](auto& on, auto&... of) { return on.submitLoss(of..., lossOptionsOf(options)); });
}

int32_t srjit_submit_population_loss(const srjit_engine* engine, const srjit_population* population,
                                     const srjit_dataset* data, const double* parameters, uint64_t parameter_count,
                                     const srjit_loss_options* options, const srjit_compile_options* compile_options,
                                     srjit_pending** pending, srjit_error* error) {
  return submit(Call{engine, population, data, parameters, parameter_count}, pending, error,
                [&](auto& on, auto&... of) {
                  return on.submitLoss(of..., lossOptionsOf(options), compileOptionsOf(*engine, compile_options));
                });
}

int32_t srjit_submit_gradient(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                              const double* parameters, uint64_t parameter_count, const srjit_loss_options* options,
                              srjit_pending** pending, srjit_error* error) {
  return submit(Call{engine, program, data, parameters, parameter_count}, pending, error,
                [&](auto& on, auto&... of) { return on.submitGradient(of..., gradientOptionsOf(options)); });
}

int32_t srjit_submit_predict(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                             const double* parameters, uint64_t parameter_count, int32_t type, void* out,
                             uint64_t count, srjit_pending** pending, srjit_error* error) {
  return submit(Call{engine, program, data, parameters, parameter_count}, pending, error, [&](auto& on, auto&... of) {
    return withArray(type, out, count, [&](auto to) { return on.submitEvaluate(of..., to); });
  });
}

int32_t srjit_submit_jacobian(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                              const double* parameters, uint64_t parameter_count, int32_t by, int32_t type, void* out,
                              uint64_t count, srjit_pending** pending, srjit_error* error) {
  return submit(Call{engine, program, data, parameters, parameter_count}, pending, error, [&](auto& on, auto&... of) {
    const DerivativesBy what = choiceOf(kDerivativesBy, by, "by");
    return withArray(type, out, count, [&](auto to) { return on.submitJacobian(of..., to, what); });
  });
}

int32_t srjit_submit_fit(const srjit_engine* engine, const srjit_program* program, const srjit_dataset* data,
                         const double* starts, uint64_t start_count, const srjit_fit_options* options,
                         srjit_pending** pending, srjit_error* error) {
  return submit(Call{engine, program, data, starts, start_count}, pending, error,
                [&](auto& on, auto&... of) { return on.submitFit(of..., fitOptionsOf(options)); });
}

int32_t srjit_pending_ready(const srjit_pending* pending) {
  if (pending == nullptr) return 1;
  return std::visit([](const auto& flight) { return !flight.pending || flight.pending->ready() ? 1 : 0; },
                    pending->flight);
}

void srjit_pending_wait(const srjit_pending* pending) {
  const auto wait = [](const auto& flight) {
    if (flight.pending) flight.pending->wait();
  };
  if (pending != nullptr) std::visit(wait, pending->flight);
}

int32_t srjit_pending_losses(srjit_pending* pending, srjit_losses* losses, srjit_error* error) {
  clear(losses);
  return answer(error, [&] { take<Losses, Gradients>(pending, "losses", losses); });
}

int32_t srjit_pending_failures(srjit_pending* pending, srjit_failures** failures, srjit_error* error) {
  clear(failures);
  return answer(error, [&] { take<std::vector<Failure>>(pending, "predictions", failures); });
}

int32_t srjit_pending_fits(srjit_pending* pending, srjit_fits* fits, srjit_error* error) {
  clear(fits);
  return answer(error, [&] { take<Fits>(pending, "fits", fits); });
}

void srjit_pending_free(srjit_pending* pending) { delete pending; }

}  // extern "C"

}  // namespace srjit::c_api
