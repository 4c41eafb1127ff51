// Evaluations of an engine's objects through srjit.h, with the results of Engine.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "ir/text.h"
#include "tests/generators/workload.h"
#include "tests/runtime/c_api/caller.h"

namespace srjit::c_api {

/// One program on one data set. Each call must succeed; `is_submitted` makes it a submission whose result is then
/// taken.
class Evaluator {
 public:
  Evaluator(const Engine& engine, const Program& program, const Dataset& data, bool is_submitted)
      : engine_{engine}, program_{program, {program.size()}}, data_{data}, is_submitted_(is_submitted) {}

  Losses loss(std::span<const double> parameters, const LossOptions& options) const {
    Losses got = roomFor(vectorsOf(parameters) * program_.program.size());
    const Text text(options);
    srjit_losses to = destination(got);
    call(
        [&](auto e) {
          return srjit_loss(&engine_, &program_, &data_, parameters.data(), parameters.size(), &text.given, &to, e);
        },
        [&](auto pending, auto e) {
          return srjit_submit_loss(&engine_, &program_, &data_, parameters.data(), parameters.size(), &text.given,
                                   pending, e);
        },
        [&](auto pending, auto e) { return srjit_pending_losses(pending, &to, e); });
    got.failures = taken(to.failures);
    return got;
  }

  Gradients gradient(std::span<const double> parameters, const GradientOptions& options) const {
    const std::size_t count = vectorsOf(parameters) * program_.program.size();
    Gradients got{roomFor(count), {}};
    got.derivatives.resize(options.by == DerivativesBy::kVariables ? count * data_.data.columns() : parameters.size());
    Text text(options.loss);
    text.given.by = codeOf(options.by);
    srjit_losses to = destination(got.losses);
    to.derivative_count = got.derivatives.size();
    to.derivatives = got.derivatives.data();
    call(
        [&](auto e) {
          return srjit_gradient(&engine_, &program_, &data_, parameters.data(), parameters.size(), &text.given, &to, e);
        },
        [&](auto pending, auto e) {
          return srjit_submit_gradient(&engine_, &program_, &data_, parameters.data(), parameters.size(), &text.given,
                                       pending, e);
        },
        [&](auto pending, auto e) { return srjit_pending_losses(pending, &to, e); });
    got.losses.failures = taken(to.failures);
    return got;
  }

  template <class T>
  std::vector<Failure> predict(std::span<const double> parameters, std::span<T> out) const {
    return written(
        [&](auto failures, auto e) {
          return srjit_predict(&engine_, &program_, &data_, parameters.data(), parameters.size(), typeOf<T>, out.data(),
                               out.size(), failures, e);
        },
        [&](auto pending, auto e) {
          return srjit_submit_predict(&engine_, &program_, &data_, parameters.data(), parameters.size(), typeOf<T>,
                                      out.data(), out.size(), pending, e);
        });
  }

  template <class T>
  std::vector<Failure> jacobian(std::span<const double> parameters, std::span<T> out, DerivativesBy by) const {
    return written(
        [&](auto failures, auto e) {
          return srjit_jacobian(&engine_, &program_, &data_, parameters.data(), parameters.size(), codeOf(by),
                                typeOf<T>, out.data(), out.size(), failures, e);
        },
        [&](auto pending, auto e) {
          return srjit_submit_jacobian(&engine_, &program_, &data_, parameters.data(), parameters.size(), codeOf(by),
                                       typeOf<T>, out.data(), out.size(), pending, e);
        });
  }

  Fits fit(std::span<const double> starts, const FitOptions& options) const {
    const std::size_t count = program_.program.size();
    const std::size_t parameters = program_.program.parameterOffset(count);
    Fits got{.parameters = std::vector<double>(parameters),
             .losses = roomFor(count),
             .standard_errors = std::vector<double>(parameters)};
    const Text text(options.loss);
    auto given = sized<srjit_fit_options>();
    given.loss = &text.given;
    given.iterations = options.iterations;
    given.bounds = options.bounds.empty() ? nullptr : &options.bounds[0].lower;
    given.bound_count = 2 * options.bounds.size();
    std::vector<std::int32_t> statuses(count);
    std::vector<std::uint64_t> won(count);
    got.iterations.resize(count);
    auto to = sized<srjit_fits>();
    to.count = count;
    to.losses = got.losses.values.data();
    to.valid_rows = got.losses.valid_rows.data();
    to.iterations = got.iterations.data();
    to.statuses = statuses.data();
    to.starts = won.data();
    to.parameter_count = parameters;
    to.parameters = got.parameters.data();
    to.standard_errors = got.standard_errors.data();
    call([&](auto e) { return srjit_fit(&engine_, &program_, &data_, starts.data(), starts.size(), &given, &to, e); },
         [&](auto pending, auto e) {
           return srjit_submit_fit(&engine_, &program_, &data_, starts.data(), starts.size(), &given, pending, e);
         },
         [&](auto pending, auto e) { return srjit_pending_fits(pending, &to, e); });
    got.losses.failures = taken(to.failures);
    for (const std::int32_t status : statuses) got.statuses.push_back(static_cast<FitStatus>(status));
    got.starts.assign(won.begin(), won.end());
    return got;
  }

 private:
  /// The caller's options, whose loss is text.
  struct Text {
    explicit Text(const LossOptions& options) {
      loss = options.custom ? print(*options.custom, Language::kInfix, {"f", "y", "w"})
                            : std::string(infoOf(options.kind).name);
      if (options.tuning) loss += fmt::format(":{}", *options.tuning);
      given.loss = loss.c_str();
      given.nan = static_cast<std::int32_t>(options.nan);
    }
    Text(const Text&) = delete;
    Text& operator=(const Text&) = delete;
    std::string loss;
    srjit_loss_options given = sized<srjit_loss_options>();
  };

  template <class T>
  static constexpr std::int32_t typeOf = sizeof(T) == 8 ? SRJIT_F64 : SRJIT_F32;
  static std::int32_t codeOf(DerivativesBy by) {
    return by == DerivativesBy::kVariables ? SRJIT_BY_VARIABLES : SRJIT_BY_PARAMETERS;
  }
  std::size_t vectorsOf(std::span<const double> parameters) const {
    const std::size_t own = program_.program.parameterOffset(program_.program.size());
    return own == 0 ? 1 : parameters.size() / own;
  }
  static Losses roomFor(std::size_t count) {
    return {std::vector<double>(count), std::vector<std::uint64_t>(count), {}};
  }
  static srjit_losses destination(Losses& losses) {
    auto to = sized<srjit_losses>();
    to.count = losses.values.size();
    to.values = losses.values.data();
    to.valid_rows = losses.valid_rows.data();
    return to;
  }
  static std::vector<Failure> taken(srjit_failures* failures) {
    const Owned<srjit_failures> owned(failures);
    return failures == nullptr ? std::vector<Failure>() : failures->list;
  }

  template <class Now, class Submit, class Take>
  void call(const Now& now, const Submit& submit, const Take& take) const {
    srjit_error error = newError();
    if (!is_submitted_) {
      ASSERT_EQ(now(&error), SRJIT_OK) << error.message;
      return;
    }
    const auto pending = made<srjit_pending>(submit);
    ASSERT_EQ(take(pending.get(), &error), SRJIT_OK) << error.message;
  }
  template <class Now, class Submit>
  std::vector<Failure> written(const Now& now, const Submit& submit) const {
    srjit_failures* failures = nullptr;
    call([&](auto e) { return now(&failures, e); }, submit,
         [&](auto pending, auto e) { return srjit_pending_failures(pending, &failures, e); });
    return taken(failures);
  }

  srjit_engine engine_;
  srjit_program program_;
  srjit_dataset data_;
  bool is_submitted_;
};

}  // namespace srjit::c_api
