"""scikit-learn: an expression with parameters as an estimator, and scorers of many expressions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ._engine import Engine
from ._errors import InvalidError
from ._expressions import Population, parse
from ._lambdify import default_engine


class ExpressionRegressor(RegressorMixin, BaseEstimator):
    """An expression whose parameters are fitted to data.

    >>> from srjit.sklearn import ExpressionRegressor
    >>> import numpy as np
    >>> X = np.linspace(0, 3, 50).reshape(-1, 1)
    >>> model = ExpressionRegressor("p0*exp(-p1*x0)").fit(X, 2 * np.exp(-0.5 * X[:, 0]))
    >>> model.parameters_.round(6)
    array([2. , 0.5])

    Args:
        expression: A text, with variables x0, x1, ... or names of the columns of a data frame, and parameters
            p0, p1, ...; or an expression of SymPy.
        start: Values of the parameters to start from: shape (parameters,), or (starts, parameters), of which the best end
            wins. None: 1 for each, and nine starts drawn from a standard normal distribution.
        loss: What is minimised: as of `srjit.Engine.fit`.
        iterations: Passes over the data, at most.
        random_state: Seed of the starts that are drawn.
        device, precision: As of `srjit.Engine`.

    Attributes:
        parameters_: Shape (parameters,).
        standard_errors_: Likewise; NaN where they cannot be had.
        loss_: With these parameters, on the data of the fit.
        n_iter_: Passes over the data.
        status_: How the fit ended: ``"converged"``, ``"iterations"`` or ``"failed: ..."``.
    """

    def __init__(self, expression: Any = "p0 + p1*x0", *, start: Any = None, loss: str = "mse", iterations: int = 100,
                 random_state: int | None = 0, device: str = "auto", precision: str = "f64"):
        self.expression = expression
        self.start = start
        self.loss = loss
        self.iterations = iterations
        self.random_state = random_state
        self.device = device
        self.precision = precision

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ExpressionRegressor:
        """Fits the parameters.

        Args:
            X: Shape (rows, columns).
            y: Shape (rows,).
            sample_weight: Shape (rows,).
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        engine = self._engine()
        self._population = self._read(engine)
        program = engine.compile(self._population)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        data = engine.upload(X, y, weights)
        fits = engine.fit(program, data, self._starts(program.parameter_count), self.iterations, loss=self.loss)
        fits.check()
        self.parameters_ = fits.parameters
        self.standard_errors_ = fits.standard_errors
        self.loss_ = float(fits.losses[0])
        self.n_iter_ = max(int(fits.iterations[0]), 1)
        self.status_ = fits.status[0]
        if self.status_.startswith("failed"):
            warnings.warn(f"the fit {self.status_}", ConvergenceWarning, stacklevel=2)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predictions, shape (rows,)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        engine = self._engine()
        program = engine.compile(self._population, expected_rows=X.shape[0])
        return engine.predict(program, engine.upload(X), self.parameters_)[0].astype(np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # How good it is, is the expression's matter.
        tags.regressor_tags.poor_score = True
        return tags

    def sympy(self) -> Any:
        """The fitted expression of SymPy."""
        from ._sympy import to_sympy

        check_is_fitted(self)
        return to_sympy(self._population, parameters=[self.parameters_])[0]

    def _engine(self) -> Engine:
        return default_engine(self.device, self.precision)

    def _read(self, engine: Engine) -> Population:
        names = list(getattr(self, "feature_names_in_", ()))
        if isinstance(self.expression, (list, tuple)):
            raise TypeError("expression is a list, expected one text or expression of SymPy")
        if isinstance(self.expression, str):
            return parse(self.expression, names=names)
        from ._sympy import from_sympy

        return from_sympy(self.expression, names)

    def _starts(self, count: int) -> np.ndarray:
        if self.start is None:
            drawn = np.random.default_rng(self.random_state).normal(size=(9, count))
            return np.concatenate([np.ones((1, count)), drawn])
        starts = np.asarray(self.start, dtype=np.float64)
        if starts.shape[-1:] != (count,):
            raise InvalidError(f"start has the shape {starts.shape}, but the expression {count} parameters")
        return starts


def score(expressions: Sequence[Any], X: Any, y: Any, sample_weight: Any = None, *, parameters: Any = None,
          scoring: str = "r2", engine: Engine | None = None) -> np.ndarray:
    """Scores of many expressions in one call; larger is better, as everywhere in scikit-learn.

    Args:
        expressions: As of `srjit.Engine.compile`.
        X, y, sample_weight: As of `srjit.Engine.upload`.
        parameters: As of `srjit.Engine.loss`.
        scoring: ``"r2"``, ``"neg_mean_squared_error"``, ``"neg_root_mean_squared_error"`` or
            ``"neg_mean_absolute_error"``.

    Returns:
        float64, shape (expressions,); minus infinity where a prediction is not finite. As in scikit-learn, r2 of a constant
        target is 1 for exact predictions, else 0.

    Raises:
        Error: That of the first expression that failed.
    """
    losses = {"r2": ("r2", 1), "neg_mean_squared_error": ("mse", -1), "neg_root_mean_squared_error": ("rmse", -1),
              "neg_mean_absolute_error": ("mae", -1)}
    if scoring not in losses:
        raise ValueError(f"scoring is {scoring!r}, expected one of {', '.join(losses)}")
    loss, sign = losses[scoring]
    engine = engine or default_engine()
    data = engine.upload(X, y, sample_weight)
    program = engine.compile(expressions, names=data)
    losses = engine.loss(program, data, parameters, loss=loss, nan="reject")
    losses.check()
    scores = sign * losses.values
    if scoring == "r2" and np.ptp(np.asarray(y, dtype=np.float64)) == 0:
        errors = engine.loss(program, data, parameters, loss="mse", nan="reject").values
        return np.where(errors == 0, 1.0, np.where(np.isfinite(errors), 0.0, -np.inf))
    return scores
