// Evaluations: those that wait and those in flight, and results as objects of Python.
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/bindings.h"
#include "runtime/engine.h"
#include "runtime/loss_text.h"

namespace srjit::python {

namespace {

/// Predictions or derivatives, one-dimensional: memory of the caller.
template <class T>
using Output = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// Handles and copies of the arguments of an evaluation: it may go on when its caller no longer waits.
struct EvaluationCall {
  EvaluationCall(const Engine& of, const CompiledTokens& compiled, const nb::object& data_set,
                 const Numbers<double>& numbers)
      : engine(of),
        program(compiled.program),
        data(nb::cast<Dataset>(data_set)),
        parameters(numbers.data(), numbers.data() + numbers.size()) {}

  Engine engine;
  Program program;
  Dataset data;
  std::vector<double> parameters;
};

/// The options of an evaluation, read from its other arguments; an array that it writes, if any; and what stops it.
template <class... Options>
struct Asked {
  std::tuple<Options...> options;
  nb::object out = nb::none();
  std::optional<std::stop_source> stop = {};
};

LossOptions lossOptionsOf(const std::string& loss, const std::string& nan) {
  LossOptions options = parseLoss(loss).value();
  options.nan = choiceOf("nan", nan, kNanPolicies);
  return options;
}

DerivativesBy derivativesBy(std::string_view word) {
  if (word == "parameters") return DerivativesBy::kParameters;
  if (word == "variables") return DerivativesBy::kVariables;
  throw ErrorException(
      {Errc::kInvalid, "by is '" + std::string(word) + "', expected one of 'parameters', 'variables'", {}});
}

Asked<LossOptions> askedLoss(const std::string& loss, const std::string& nan) { return {{lossOptionsOf(loss, nan)}}; }

Asked<GradientOptions> askedGradient(const std::string& loss, const std::string& nan, const std::string& by) {
  return {GradientOptions{lossOptionsOf(loss, nan), derivativesBy(by)}};
}

Asked<FitOptions> askedFit(const std::string& loss, const std::string& nan, unsigned iterations, double loss_tolerance,
                           double step_tolerance, const std::vector<std::tuple<double, double>>& bounds) {
  const std::stop_source stop;
  FitOptions options{lossOptionsOf(loss, nan), iterations, loss_tolerance, step_tolerance, stop.get_token()};
  for (const auto& [lower, upper] : bounds) options.bounds.push_back({lower, upper});
  return {std::move(options), nb::none(), stop};
}

template <class T>
Asked<std::span<T>> askedPredictions(const Output<T>& out) {
  return {std::span<T>(out.data(), out.size()), nb::cast(out)};
}

template <class T>
Asked<std::span<T>, DerivativesBy> askedJacobian(const std::string& by, const Output<T>& out) {
  return {{std::span<T>(out.data(), out.size()), derivativesBy(by)}, nb::cast(out)};
}

/// In the memory of a GPU, which `owned` keeps.
Asked<DeviceMatrix, std::uint64_t> askedDevicePredictions(const DeviceArray& out, std::uint64_t stream,
                                                          const nb::object& owned) {
  return {{matrixOf(out), stream}, owned};
}

Asked<DeviceMatrix, std::uint64_t, DerivativesBy> askedDeviceJacobian(const std::string& by, const DeviceArray& out,
                                                                      std::uint64_t stream, const nb::object& owned) {
  return {{matrixOf(out), stream, derivativesBy(by)}, owned};
}

std::vector<std::int64_t> countsOf(const std::vector<std::uint64_t>& rows) {
  // Losses::kNotCounted becomes -1.
  return {rows.begin(), rows.end()};
}

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

/// Evaluates and waits. `owned` is what `evaluate` reads and writes of Python's objects.
template <class Evaluate>
auto waited(Evaluate evaluate, const Origin& origin, nb::object owned, std::stop_source* stop = nullptr) {
  return resultOf(withoutGil(std::move(evaluate), std::move(owned), stop).value(), origin);
}

/// Submits without the GIL.
template <class Submit>
auto inFlight(const Submit& submit, const Origin& origin, nb::object owned, std::optional<std::stop_source> stop = {}) {
  auto pending = [&] {
    const nb::gil_scoped_release free;
    return submit().value();
  }();
  return PendingResult(std::move(pending), origin, std::move(owned), std::move(stop));
}

/// `member` of the call's engine, with the call's arguments and these options.
template <class Member, class... Options>
auto called(const Member& member, const EvaluationCall& call, const std::tuple<Options...>& options) {
  return std::apply(
      [&](const Options&... each) { return member(call.engine, call.program, call.data, call.parameters, each...); },
      options);
}

/// Defines `name`, which calls `run`, a member of Engine, and waits; `read` gives the options of the arguments with
/// these names.
template <class... Options, class... Arguments, class Run, class... Names>
void defineWaiting(nb::module_& module, const char* name, Asked<Options...> (*read)(Arguments...), Run run,
                   const Names&... names) {
  module.def(
      name,
      [=](const Engine& engine, const CompiledTokens& compiled, const nb::object& data,
          const Numbers<double>& parameters, Arguments... arguments) {
        Asked<Options...> asked = read(arguments...);
        auto evaluate = [run, call = EvaluationCall(engine, compiled, data, parameters), options = asked.options] {
          return called(run, call, options);
        };
        return waited(std::move(evaluate), compiled.origin, nb::make_tuple(data, asked.out),
                      asked.stop ? &*asked.stop : nullptr);
      },
      nb::arg("engine"), nb::arg("program"), nb::arg("data"), nb::arg("parameters"), names...);
}

/// The same, and `submit_name`, which calls `submit`.
template <class... Options, class... Arguments, class Run, class Submit, class... Names>
void define(nb::module_& module, const char* name, const char* submit_name, Asked<Options...> (*read)(Arguments...),
            Run run, Submit submit, const Names&... names) {
  defineWaiting(module, name, read, run, names...);
  module.def(
      submit_name,
      [=](const Engine& engine, const CompiledTokens& compiled, const nb::object& data,
          const Numbers<double>& parameters, Arguments... arguments) {
        const Asked<Options...> asked = read(arguments...);
        const EvaluationCall call(engine, compiled, data, parameters);
        return inFlight([&] { return called(submit, call, asked.options); }, compiled.origin,
                        nb::make_tuple(data, asked.out), asked.stop);
      },
      nb::arg("engine"), nb::arg("program"), nb::arg("data"), nb::arg("parameters"), names...);
}

template <class T>
void defineOutputs(nb::module_& module) {
  define(
      module, "predict", "submit_predict", askedPredictions<T>,
      [](const Engine& e, const auto&... given) { return e.evaluate(given...); },
      [](const Engine& e, const auto&... given) { return e.submitEvaluate(given...); }, nb::arg("out").noconvert());
  define(
      module, "jacobian", "submit_jacobian", askedJacobian<T>,
      [](const Engine& e, const auto&... given) { return e.jacobian(given...); },
      [](const Engine& e, const auto&... given) { return e.submitJacobian(given...); }, nb::arg("by"),
      nb::arg("out").noconvert());
}

nb::tuple lossOfArrays(const Engine& engine, const Numbers<std::int32_t>& codes, const Numbers<double>& constants,
                       const Numbers<std::int64_t>& offsets, bool prefix, const nb::object& data,
                       const Numbers<double>& parameters, const std::string& loss, const std::string& nan,
                       bool simplify) {
  const auto numbers = spanOf(parameters);
  auto evaluate = [engine, data_set = nb::cast<Dataset>(data), view = populationOf(codes, constants, offsets, prefix),
                   values = std::vector<double>(numbers.begin(), numbers.end()), options = lossOptionsOf(loss, nan),
                   simplify] { return engine.loss(view, data_set, values, options, {.simplify = simplify}); };
  return waited(std::move(evaluate), {offsets.size() - 1}, nb::make_tuple(data, codes, constants, offsets));
}

PendingResult<Losses> submitLossOfArrays(const Engine& engine, const Numbers<std::int32_t>& codes,
                                         const Numbers<double>& constants, const Numbers<std::int64_t>& offsets,
                                         bool prefix, const nb::object& data, const Numbers<double>& parameters,
                                         const std::string& loss, const std::string& nan, bool simplify) {
  const PopulationView view = populationOf(codes, constants, offsets, prefix);
  const Dataset data_set = nb::cast<Dataset>(data);
  const LossOptions options = lossOptionsOf(loss, nan);
  return inFlight(
      [&] { return engine.submitLoss(view, data_set, spanOf(parameters), options, {.simplify = simplify}); },
      {view.size()}, data);
}

void prepare(const Engine& engine, const CompiledTokens& compiled, const nb::object& data,
             const std::optional<std::string>& loss, const std::string& nan) {
  std::optional<LossOptions> options;
  if (loss) options = lossOptionsOf(*loss, nan);
  withoutGil([engine, program = compiled.program, data_set = nb::cast<Dataset>(data),
              options = std::move(options)] { return engine.prepare(program, data_set, options); },
             data)
      .value();
}

}  // namespace

void defineEvaluations(nb::module_& module) {
  definePendingResult<Losses>(module, "PendingLosses");
  definePendingResult<Gradients>(module, "PendingGradients");
  definePendingResult<std::vector<Failure>>(module, "PendingOutput");
  definePendingResult<Fits>(module, "PendingFits");
  define(
      module, "loss", "submit_loss", askedLoss, [](const Engine& e, const auto&... given) { return e.loss(given...); },
      [](const Engine& e, const auto&... given) { return e.submitLoss(given...); }, nb::arg("loss"), nb::arg("nan"));
  define(
      module, "gradient", "submit_gradient", askedGradient,
      [](const Engine& e, const auto&... given) { return e.gradient(given...); },
      [](const Engine& e, const auto&... given) { return e.submitGradient(given...); }, nb::arg("loss"), nb::arg("nan"),
      nb::arg("by"));
  define(
      module, "fit", "submit_fit", askedFit, [](const Engine& e, const auto&... given) { return e.fit(given...); },
      [](const Engine& e, const auto&... given) { return e.submitFit(given...); }, nb::arg("loss"), nb::arg("nan"),
      nb::arg("iterations"), nb::arg("loss_tolerance"), nb::arg("step_tolerance"), nb::arg("bounds"));
  defineOutputs<float>(module);
  defineOutputs<double>(module);
  defineWaiting(
      module, "predict_on_device", askedDevicePredictions,
      [](const Engine& e, const auto&... given) { return e.evaluate(given...); }, nb::arg("out"), nb::arg("stream"),
      nb::arg("owned"));
  defineWaiting(
      module, "jacobian_on_device", askedDeviceJacobian,
      [](const Engine& e, const auto&... given) { return e.jacobian(given...); }, nb::arg("by"), nb::arg("out"),
      nb::arg("stream"), nb::arg("owned"));
  module.def("prepare", prepare, nb::arg("engine"), nb::arg("program"), nb::arg("data"), nb::arg("loss").none(),
             nb::arg("nan"));
  const auto of_arrays = [&](const char* name, auto function) {
    module.def(name, function, nb::arg("engine"), nb::arg("codes"), nb::arg("constants"), nb::arg("offsets"),
               nb::arg("prefix"), nb::arg("data"), nb::arg("parameters"), nb::arg("loss"), nb::arg("nan"),
               nb::arg("simplify"));
  };
  of_arrays("loss_of_arrays", lossOfArrays);
  of_arrays("submit_loss_of_arrays", submitLossOfArrays);
}

}  // namespace srjit::python
