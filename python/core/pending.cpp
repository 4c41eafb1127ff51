// Evaluations in flight, and results as objects of Python.
#include <memory>
#include <optional>

#include "core/evaluation.h"
#include "core/waiting.h"

namespace srjit::python {

namespace {

/// An evaluation in flight, which is destroyed, and so waited for, without the GIL.
template <class Value>
class PendingResult {
 public:
  PendingResult(Pending<Value> pending, Origin origin, nb::object owned, std::optional<std::stop_source> stop = {})
      : pending_(std::move(pending)), origin_(std::move(origin)), owned_(std::move(owned)), stop_(std::move(stop)) {}
  PendingResult(PendingResult&&) = default;
  PendingResult& operator=(PendingResult&&) = delete;
  ~PendingResult() {
    if (!pending_) return;
    if (stop_) stop_->request_stop();
    const nb::gil_scoped_release free;
    pending_.reset();
  }

  bool isReady() const { return !pending_ || pending_->ready(); }
  void requestStop() {
    if (stop_) stop_->request_stop();
  }
  /// Waits, and gives the result or throws the error, as often as it is asked for: an exception of Python's, as Ctrl-C
  /// makes one, may come between this and its caller.
  nb::object result() {
    // A handler of a signal may take the result while this waits.
    waitUntil([this] { return isReady(); });
    if (pending_) {
      Result<Value> result = [this] {
        const nb::gil_scoped_release free;
        Pending<Value> taken = std::move(*pending_);
        pending_.reset();
        return std::move(taken).result();
      }();
      owned_ = nb::object();
      if (result) {
        result_ = nb::cast(resultOf(std::move(*result), origin_));
      } else {
        error_ = std::move(result).error();
      }
    }
    if (error_) throw ErrorException(*error_);
    return result_;
  }

 private:
  std::optional<Pending<Value>> pending_;
  Origin origin_;
  nb::object owned_;
  std::optional<std::stop_source> stop_;
  nb::object result_;
  std::optional<Error> error_;
};

template <class Value>
void definePendingResult(nb::module_& module, const char* name) {
  using Class = PendingResult<Value>;
  nb::class_<Class>(module, name)
      .def("ready", &Class::isReady)
      .def("stop", &Class::requestStop)
      .def("result", &Class::result);
}

/// Submits without the GIL.
template <class Submit>
auto submitted(const Submit& submit) {
  const nb::gil_scoped_release free;
  return submit().value();
}

PendingResult<Losses> submitLoss(const Engine& engine, const CompiledTokens& compiled, const nb::object& data,
                                 const Numbers<double>& parameters, const std::string& loss, const std::string& nan) {
  const EvaluationCall call(engine, compiled, data, parameters);
  const LossOptions options = lossOptionsOf(loss, nan);
  return {submitted([&] { return engine.submitLoss(call.program, call.data, call.parameters, options); }),
          compiled.origin, data};
}

PendingResult<Losses> submitLossOfArrays(const Engine& engine, const Numbers<std::int32_t>& codes,
                                         const Numbers<double>& constants, const Numbers<std::int64_t>& offsets,
                                         bool prefix, const nb::object& data, const Numbers<double>& parameters,
                                         const std::string& loss, const std::string& nan) {
  const PopulationView view = populationOf(codes, constants, offsets, prefix);
  const Dataset data_set = nb::cast<Dataset>(data);
  const LossOptions options = lossOptionsOf(loss, nan);
  return {
      submitted([&] { return engine.submitLoss(view, data_set, spanOf(parameters), options); }), {view.size()}, data};
}

PendingResult<Gradients> submitGradient(const Engine& engine, const CompiledTokens& compiled, const nb::object& data,
                                        const Numbers<double>& parameters, const std::string& loss,
                                        const std::string& nan, const std::string& by) {
  const EvaluationCall call(engine, compiled, data, parameters);
  const GradientOptions options{lossOptionsOf(loss, nan), derivativesBy(by)};
  return {submitted([&] { return engine.submitGradient(call.program, call.data, call.parameters, options); }),
          compiled.origin, data};
}

template <class T>
PendingResult<std::vector<Failure>> submitPredict(const Engine& engine, const CompiledTokens& compiled,
                                                  const nb::object& data, const Numbers<double>& parameters,
                                                  const Output<T>& out) {
  const EvaluationCall call(engine, compiled, data, parameters);
  return {submitted([&] { return engine.submitEvaluate(call.program, call.data, call.parameters, spanOf(out)); }),
          compiled.origin, nb::make_tuple(data, out)};
}

template <class T>
PendingResult<std::vector<Failure>> submitJacobian(const Engine& engine, const CompiledTokens& compiled,
                                                   const nb::object& data, const Numbers<double>& parameters,
                                                   const std::string& by, const Output<T>& out) {
  const EvaluationCall call(engine, compiled, data, parameters);
  const DerivativesBy of = derivativesBy(by);
  return {submitted([&] { return engine.submitJacobian(call.program, call.data, call.parameters, spanOf(out), of); }),
          compiled.origin, nb::make_tuple(data, out)};
}

PendingResult<Fits> submitFit(const Engine& engine, const CompiledTokens& compiled, const nb::object& data,
                              const Numbers<double>& starts, const std::string& loss, const std::string& nan,
                              unsigned iterations, double loss_tolerance, double step_tolerance) {
  const EvaluationCall call(engine, compiled, data, starts);
  std::stop_source stop;
  const FitOptions options{lossOptionsOf(loss, nan), iterations, loss_tolerance, step_tolerance, stop.get_token()};
  return {submitted([&] { return engine.submitFit(call.program, call.data, call.parameters, options); }),
          compiled.origin, data, stop};
}

std::vector<std::int64_t> countsOf(const std::vector<std::uint64_t>& rows) {
  // Losses::kNotCounted becomes -1.
  return {rows.begin(), rows.end()};
}

}  // namespace

nb::tuple resultOf(Losses losses, const Origin& origin) {
  return nb::make_tuple(arrayOf(std::move(losses.values)), arrayOf(countsOf(losses.valid_rows)),
                        Failures(std::move(losses.failures), origin));
}

nb::tuple resultOf(Gradients gradients, const Origin& origin) {
  return nb::make_tuple(resultOf(std::move(gradients.losses), origin), arrayOf(std::move(gradients.derivatives)));
}

nb::tuple resultOf(Fits fits, const Origin& origin) {
  nb::list statuses;
  for (const FitStatus status : fits.statuses) statuses.append(nameOf(status));
  return nb::make_tuple(arrayOf(std::move(fits.parameters)), resultOf(std::move(fits.losses), origin),
                        arrayOf(std::vector<std::int64_t>(fits.iterations.begin(), fits.iterations.end())), statuses,
                        arrayOf(std::vector<std::int64_t>(fits.starts.begin(), fits.starts.end())),
                        arrayOf(std::move(fits.standard_errors)));
}

Failures resultOf(std::vector<Failure> failures, const Origin& origin) { return Failures(std::move(failures), origin); }

void definePending(nb::module_& module) {
  definePendingResult<Losses>(module, "PendingLosses");
  definePendingResult<Gradients>(module, "PendingGradients");
  definePendingResult<std::vector<Failure>>(module, "PendingOutput");
  definePendingResult<Fits>(module, "PendingFits");
  const auto define = [&](const char* name, auto function, const auto&... options) {
    module.def(name, function, nb::arg("engine"), nb::arg("program"), nb::arg("data"), nb::arg("parameters"),
               options...);
  };
  define("submit_loss", submitLoss, nb::arg("loss"), nb::arg("nan"));
  define("submit_gradient", submitGradient, nb::arg("loss"), nb::arg("nan"), nb::arg("by"));
  define("submit_predict", submitPredict<float>, nb::arg("out").noconvert());
  define("submit_predict", submitPredict<double>, nb::arg("out").noconvert());
  define("submit_jacobian", submitJacobian<float>, nb::arg("by"), nb::arg("out").noconvert());
  define("submit_jacobian", submitJacobian<double>, nb::arg("by"), nb::arg("out").noconvert());
  define("submit_fit", submitFit, nb::arg("loss"), nb::arg("nan"), nb::arg("iterations"), nb::arg("loss_tolerance"),
         nb::arg("step_tolerance"));
  module.def("submit_loss_of_arrays", submitLossOfArrays, nb::arg("engine"), nb::arg("codes"), nb::arg("constants"),
             nb::arg("offsets"), nb::arg("prefix"), nb::arg("data"), nb::arg("parameters"), nb::arg("loss"),
             nb::arg("nan"));
}

}  // namespace srjit::python
