// Results of an evaluation: losses, failures of single expressions, and evaluations in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ir/error.h"
#include "runtime/fit_options.h"

namespace srjit {

/// Why one expression of a batch has no result.
struct Failure {
  std::size_t expression;  ///< index in the batch
  Error error;
};

/// One loss per expression, in order; NaN for an expression that failed.
struct Losses {
  std::vector<double> values;
  /// Rows with a finite prediction; 0 for an expression that failed. Under NanPolicy::kPropagate they are not counted:
  /// the value is the number of rows for a finite loss, since that implies finite predictions, and kNotCounted
  /// otherwise.
  std::vector<std::uint64_t> valid_rows;
  static constexpr std::uint64_t kNotCounted = ~std::uint64_t{0};
  std::vector<Failure> failures;  ///< in order of expression; includes those of the program
};

/// Losses, and their derivatives.
struct Gradients {
  /// As Engine::loss() has it, with the same bits under NanPolicy::kPropagate. Otherwise rows count as invalid in which
  /// a derivative of the prediction is not finite, too.
  Losses losses;
  /// By parameters: in the layout of the parameters (Program::parameterOffset()). By variables: that of expression e by
  /// variable v at e * columns of the data + v. NaN for an expression that failed, or whose loss is not finite.
  std::vector<double> derivatives;
};

/// Fitted parameters, one fit per expression.
struct Fits {
  /// The best that were evaluated, in the layout of the parameters; at worst those of a start. NaN for an expression
  /// that failed.
  std::vector<double> parameters = {};
  Losses losses = {};                     ///< with these parameters
  std::vector<unsigned> iterations = {};  ///< passes over the data, of the start that won
  std::vector<FitStatus> statuses = {};   ///< kFailed of an expression that is in losses.failures
  std::vector<std::size_t> starts = {};   ///< which start won
  /// Of the parameters (fit::LevenbergMarquardt::standardErrors()), in their layout; NaN where they cannot be had. Rows
  /// of weight 0 count as observations.
  std::vector<double> standard_errors = {};
};

/// An evaluation in flight. Owns what it needs, except the span for predictions, which must outlive it. The destructor
/// waits. Movable; one thread at a time.
template <class Value>
class Pending {
 public:
  /// Whether the submitted work has ended, so that result() returns at once. Of a scaled loss, result() may evaluate
  /// some expressions again before it returns (docs/losses.md).
  bool ready() const { return state_->ready(); }
  void wait() const { state_->wait(); }
  /// Waits. Call once.
  Result<Value> result() && { return state_->result(); }

  struct State {
    virtual ~State() = default;
    virtual bool ready() = 0;
    virtual void wait() = 0;
    virtual Result<Value> result() = 0;
  };
  explicit Pending(std::unique_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::unique_ptr<State> state_;
};

}  // namespace srjit
