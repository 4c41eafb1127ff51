"""scikit-learn: the search for formulas as an estimator, an expression with parameters as another one, and scorers of many
expressions."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _core
from ._arrays import column_of, columns_of, first_text, name_of, whole
from ._engine import Engine
from ._errors import InvalidError
from ._expressions import VARIABLE, Population, parse
from ._lambdify import default_engine, engine_of
from ._packages import needs
from ._search import Formula, flag, options_of, progress_view, run_search, write_report

with needs("scikit-learn", "sklearn"):
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data


def _checked(estimator: Any, X: Any, *y: Any, **options: Any) -> Any:
    """`validate_data` as float64, with names of columns that are any kind of str, and errors that name a text and its place."""
    names = list(getattr(X, "columns", ()))
    if hasattr(X, "set_axis") and all(isinstance(name, str) for name in names):
        X = X.set_axis([name_of(name) for name in names], axis=1)  # scikit-learn ignores names of np.str_ and StrEnum
    try:
        return validate_data(estimator, X, *y, dtype=np.float64, **options)
    except (TypeError, ValueError) as problem:
        found = _text_in(X) or (first_text(np.asarray(y[0], dtype=object), "y") if y else None)
        if found is None:
            raise
        kind = TypeError if isinstance(problem, TypeError) else ValueError
        raise kind(f"{found}, which is no number: encode such values as numbers, or leave them out ({problem})") from None


def _keep(estimator: Any, arguments: dict[str, Any]) -> None:
    """Makes the arguments of a constructor attributes, as scikit-learn wants them."""
    vars(estimator).update((name, value) for name, value in arguments.items() if name not in ("self", "__class__"))


def _text_in(X: Any) -> str | None:
    """Words for the first element of a matrix or data frame that is no number, and its place; None if there is none."""
    if hasattr(X, "iloc") and getattr(X, "ndim", 0) == 2:
        for c, name in enumerate(X.columns):
            try:
                column_of(X.iloc[:, c], f"column {name_of(name)!r} of X")
            except TypeError:
                return first_text(np.asarray(X.iloc[:, c]), f"column {name_of(name)!r} of X")
        return None
    matrix = np.asarray(X, dtype=object)
    return first_text(matrix, "X") if matrix.ndim == 2 else None


def _seed_of(random_state: Any) -> int:
    """The seed of a whole number, or one drawn from what scikit-learn takes for a source of random numbers."""
    if isinstance(random_state, (int, np.integer)):
        return whole(random_state, "random_state", 0, 2**64 - 1)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    try:
        return int(check_random_state(random_state).randint(2**31))
    except ValueError:
        raise InvalidError(f"random_state is {random_state!r}, expected a whole number, a RandomState, a Generator or "
                           "None") from None


class ExpressionRegressor(RegressorMixin, BaseEstimator):
    """An expression whose parameters are fitted to data.

    Examples:
        >>> from srjit.sklearn import ExpressionRegressor
        >>> import numpy as np
        >>> X = np.linspace(0, 3, 50).reshape(-1, 1)
        >>> model = ExpressionRegressor("p0*exp(-p1*x0)").fit(X, 2 * np.exp(-0.5 * X[:, 0]))
        >>> model.parameters_.round(6)
        array([2. , 0.5])

    Args:
        expression: A text, with variables x0, x1, ... or names of the columns of a data frame, and parameters
            p0, p1, ...; or an expression of SymPy.
        start: Values of the parameters to start from: shape (parameters,), or (starts, parameters): the best result
            wins. None: 1 for each, and nine starts drawn from a standard normal distribution.
        loss: What is minimised: as of `srjit.Engine.fit`.
        iterations: Passes over the data, at most.
        random_state: Seed of the starts that are drawn, 0 to 2**64 - 1; a ``RandomState``, or None for the global one.
        device, precision: As of `srjit.Engine`.
        bounds: Of the parameters: as of `srjit.Engine.fit`.

    Attributes:
        parameters_: Shape (parameters,).
        standard_errors_: Shape (parameters,); NaN if a parameter has none, or is at a bound.
        loss_: With these parameters, on the data of the fit.
        n_iter_: Passes over the data.
        status_: How the fit ended: ``"converged"``, ``"iterations"``, ``"no parameters"`` or ``"failed: ..."``.
    """

    def __init__(self, expression: Any = "p0 + p1*x0", *, start: Any = None, loss: str = "mse", iterations: int = 100,
                 random_state: Any = 0, device: str = "auto", precision: str = "f64", bounds: Any = None):
        _keep(self, locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> ExpressionRegressor:
        """Fits the parameters.

        Args:
            X: Shape (rows, columns).
            y: Shape (rows,).
            sample_weight: Shape (rows,).
        """
        X, y = _checked(self, X, y, y_numeric=True)
        engine = self._engine()
        self._population = self._read(engine)
        program = engine.compile(self._population, deferred=True)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        data = engine.upload(X, y, weights)
        fits = engine.fit(program, data, self._starts(program.parameter_count), self.iterations, loss=self.loss,
                          bounds=self.bounds)
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
        X = _checked(self, X, reset=False)
        engine = self._engine()
        program = engine.compile(self._population, expected_rows=X.shape[0])
        return engine.predict(program, engine.upload(X), self.parameters_)[0].astype(np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # How good it is, is the expression's matter.
        tags.regressor_tags.poor_score = True
        return tags

    def sympy(self, *, real: bool = False) -> Any:
        """The fitted expression of SymPy; its symbols are plain, or real, as of `srjit.to_sympy`."""
        from ._sympy import to_sympy

        check_is_fitted(self)
        return to_sympy(self._population, parameters=[self.parameters_], real=real)[0]

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
            drawn = np.random.default_rng(_seed_of(self.random_state)).normal(size=(9, count))
            return np.concatenate([np.ones((1, count)), drawn])
        starts = np.asarray(self.start, dtype=np.float64)
        if starts.shape[-1:] != (count,):
            raise InvalidError(f"start has the shape {starts.shape}, but the expression {count} parameters")
        return starts


class SymbolicRegressor(RegressorMixin, BaseEstimator):
    """A search for formulas that explain a target: islands of genetic programming, whose constants are fitted.

    Examples:
        >>> from srjit import SymbolicRegressor
        >>> import numpy as np
        >>> axis = np.array([0.387, 0.723, 1.0, 1.524, 5.203, 9.537, 19.19, 30.07])
        >>> model = SymbolicRegressor(generations=20, device="cpu").fit(axis.reshape(-1, 1), axis**1.5)
        >>> model.score(axis.reshape(-1, 1), axis**1.5) > 0.999999
        True

    What is found depends on the data, the parameters and `random_state`, and on `seconds` if they end the search, but not
    on the number of threads. Ctrl-C ends the search within a second: `fit` warns and returns with the formulas found so
    far; a second Ctrl-C raises KeyboardInterrupt as usual.

    Args:
        operators: Operators of the formulas, a text such as ``"add,mul,sqrt:2"``, where 2 is what sqrt adds to the
            complexity, or a list of such texts, or a mapping from names to complexities. None: ``+ - * /``, square, sqrt,
            exp, log, sin and cos.
        max_complexity: The largest complexity of a formula.
        variable_complexity, constant_complexity: What a variable and a constant add to it.
        nesting: Limits of operators within others: ``"sin:cos:0,exp:exp:1"`` allows no cos within a sin, and one exp
            within an exp; or a list of such texts.
        self_nesting: Whether functions such as exp and sin may stand within themselves.
        links: Functions g for which formulas of g(y) are searched as well, which finds a law such as
            ``y = sqrt(u + v)`` sooner: a list of ``"identity"``, ``"inverse"``, ``"square"``, ``"inverse-square"``,
            ``"log"``, ``"exp"``, ``"sin"`` and ``"cos"``. None: all that the operators and the target admit; ``"sin"``
            needs the operator asin, ``"log"`` exp, and so on.
        loss: What is minimised: as of `srjit.Engine.loss`, but for those that grow with better predictions.
        seconds: How long `fit` takes, at most a fifth and a second more; None: no limit. A generation that is not complete
            then is dropped.
        generations: How many generations at most. None: no limit. With a limit that ends the search before `seconds` do,
            each run gives the same formulas.
        tol: The search ends when a formula leaves no more than this share of the target's variance. If `loss` is not of
            squared errors, it ends when the loss is that of errors of so small a variance.
        held_out: The share of the rows, at most 0.9, that formulas are judged by, and not fitted to.
        islands, population, offspring: Populations, individuals of each, and new individuals of each per generation. None:
            16, 400 and 800.
        rows: Rows by which individuals are selected; formulas are fitted to more. None: 1,024 on a CPU, 16,384 on a GPU.
        guesses: Formulas to begin with, a text or a list of texts such as ``"p0*u/(u + v)"``; their numbers and parameters
            are fitted.
        define: Operators as expressions, a text or a list of texts such as ``"mm(x, y) = x/(x + y)"``: trees get them as a
            whole, and formulas are written out.
        template: The form of all formulas, such as ``"f(a, b) + p0[kind]*g(c)"``: functions of columns that are searched,
            constants p0, p1, ..., and ``p0[kind]``, one for each value of the column kind. Trees are not scaled then.
        bounds: The least and the largest value of the template's constants in all formulas, such as ``{"p0": (0, None)}``,
            or a text as of the command, ``"p0:0:"``.
        units: Units of columns and of the target, a text such as ``"mass:kg,speed:m/s,target:J"``, or a mapping from names
            to units. Formulas of the front keep them. A column without a unit is a plain number; a target without one may
            have any. Words are SI units without prefixes, or base units of your own, at most 8.
        unit_constants: ``"free"``: a constant has the unit that its place needs. ``"dimensionless"``: constants are numbers.
        unit_rule: ``"hard"``: formulas that break units are left out. ``"penalty"``: they have a handicap in selection.
        max_columns: Different columns of a formula at most. None: any number.
        monotone: ``"dose:up,age:down"``, or a mapping: formulas must rise or fall with these columns over the box of the
            data, widened by a tenth. Formulas without a proof are left out.
        codata: Whether constants within two standard errors of a physical constant (CODATA 2022, SI) become it.
        top: How many formulas of a complexity the front may have: those that fewer than `top` others beat, each law once.
        choose: The formula of the front that predicts. ``"evidence"``: that which explains most of `y` for its length. With
            `held_out`, or a loss of your own, it means ``"balance"``: the simplest of those whose loss (over the rows held
            out, if any) is within 5 % of the least. ``"loss"``: that with the least loss. A number: the one with the least
            loss of this complexity or less, or the simplest if there is none. A function: it is given `front_`, and gives
            one of its formulas.
        outside: What `predict` does with a row outside the box of the data, whose sides go from the least to the largest value
            of a column, widened by a tenth of that range, without a change of sign. ``"formula"``: it evaluates the formula
            there. ``"clamp"``: it takes the nearest value within the box. ``"nan"``: it gives NaN, if the formula has that
            column.
        random_state: Seed of the search, 0 to 2**64 - 1; a ``RandomState``, or None for the global one.
        device: As of `srjit.Engine`.
        precision: In which individuals are selected: ``"f32"`` stands for f64 if f32 does not tell the numbers of a column
            apart, or their products leave its range. The formulas of the front are fitted and judged in f64.
        threads: Threads of the host; 0: all that the process may use.
        checkpoint: A file that the search is written to every few seconds and at its end. If it exists, the search goes on
            from there, and `seconds` and `generations` count from its beginning. Data and parameters must be those of the
            file, but for these two. In a folder (an existing one), each search of other data or parameters has a file of its
            own: give one to cross-validation and grid searches, which search many data sets. With a file, such copies of
            the estimator (``sklearn.base.clone``) are refused.
        callback: A function that `fit` calls a few times a second with a `srjit.Progress`: `seconds`, `generations`,
            `candidates`, `front` (a list of `srjit.Formula`) and `chosen`. If it returns a true value, the search ends with
            what it has found; an exception ends it without.
        warm_start: Whether `fit` goes on with the search of the last `fit`, if that had this parameter, too, and the same
            data and parameters. Limits may differ, and count from this `fit` on. If something else differs, the search
            begins anew, with a warning.
        verbose: Whether to show progress: in a notebook the time, trees per second and the front so far; elsewhere lines
            on the standard error with the formula that would be chosen so far.

    Attributes:
        box_: The least and the largest value of each column that `outside` admits, shape (2, columns).
        front_: A list of `srjit.Formula`, in the order of complexity: each has the least loss of its complexity or less, or
            fewer than `top` others beat it.
        chosen_: That of these which predicts.
        expression_: Its text.
        standard_errors_: Those of its constants, in their order, by least squares; NaN for a whole exponent, and for a constant
            that others can replace.
        residual_: The standard deviation of its residuals, with as many degrees of freedom less as it has constants.
        feature_importances_: How much its prediction changes if a column is shuffled, as a share: shape (columns,).
        n_iter_: Generations.
        seconds_: How long the search took, also before it was resumed.
        candidates_, fits_: Individuals whose loss was computed, and whose constants were fitted.
        status_: What ended the search: ``"seconds"``, ``"generations"``, ``"tol"``, ``"stopped"`` (by `callback`)
            or ``"interrupted"``.
        notices_: As of `srjit.Engine`, and what there was no time for.
    """

    def __init__(self, operators: Any = None, *, max_complexity: int = 40, variable_complexity: int = 1,
                 constant_complexity: int = 1, nesting: Any = None, self_nesting: bool = False, links: Any = None,
                 loss: str = "nmse", seconds: float | None = 60.0, generations: int | None = None, tol: float = 1e-18,
                 held_out: float = 0.0, islands: int | None = None, population: int | None = None,
                 offspring: int | None = None, rows: int | None = None, guesses: Any = None, define: Any = None,
                 template: str | None = None, units: Any = None, unit_constants: str = "free", unit_rule: str = "hard",
                 max_columns: int | None = None, monotone: Any = None, codata: bool = False, top: int = 1,
                 choose: Any = "evidence", outside: str = "formula",
                 random_state: Any = 0, device: str = "auto", precision: str = "f32", threads: int = 0,
                 checkpoint: Any = None, callback: Any = None, warm_start: bool = False, verbose: bool | int = 0,
                 bounds: Any = None):
        _keep(self, locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SymbolicRegressor:
        """Searches for formulas.

        Args:
            X: Shape (rows, columns): numbers; booleans are 0 and 1. Formulas have the names of a data frame's columns.
            y: Shape (rows,): numbers or booleans.
            sample_weight: Shape (rows,).

        Raises:
            ValueError, TypeError: A parameter or data that do not fit, such as NaN in `X` or `y`; data for which no formula
                has a finite loss; a checkpoint of another search. All parameters are checked before the search begins.
            Error: A checkpoint that cannot be read or written; a device that is not there.
        """
        begun = time.monotonic()
        name = str(getattr(y, "name", None) or "y")
        X, y = _checked(self, X, y, y_numeric=True, ensure_min_samples=2, ensure_all_finite=False)
        self._check_finite(X)
        y = column_of(y, "y")
        if self.outside not in ("formula", "clamp", "nan"):
            raise InvalidError(f"outside is {self.outside!r}, expected 'formula', 'clamp' or 'nan'")
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        options = self._options(y)
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback is of type {type(self.callback).__name__}, expected a function")
        tell = [progress_view()] if flag(self.verbose, "verbose") else []
        tell += [] if self.callback is None else [self.callback]
        last = getattr(self, "_state", "") if flag(self.warm_start, "warm_start") else None
        found = run_search(X, y, weights, self._names(), options, begun, self.checkpoint, tell, last)
        self._state = found.state
        self.front_ = found.front
        self.box_ = np.array(found.box).T
        count = min(len(X), _core.most_drawn_rows)
        kept = np.arange(count) * len(X) // count
        self._report_rows = (X[kept], y[kept], name, len(X))
        self.chosen_ = self._choice(found)
        self.expression_ = self.chosen_.expression
        self._uncertainty, importances = _core.judge(default_engine(self.device, "f64")._engine, self.expression_, columns_of(X), y,
                                                     weights, self._names())
        self.standard_errors_, self.residual_ = np.array(self._uncertainty[0]), self._uncertainty[1]
        self.feature_importances_ = np.array(importances)
        self.n_iter_ = found.generations
        self.seconds_ = found.seconds
        self.candidates_ = found.candidates
        self.fits_ = found.fits
        self.status_ = {"time": "seconds", "enough": "tol"}.get(found.end, found.end)
        self.notices_ = found.notices
        if last and not found.is_resumed:
            warnings.warn("warm_start: the last fit had other data or parameters, so the search began anew", RuntimeWarning,
                          stacklevel=2)
        if found.end == "interrupted":
            warnings.warn("the search was interrupted, the formulas are those found so far", ConvergenceWarning, stacklevel=2)
        if found.checkpoint_error is not None:
            warnings.warn(f"the checkpoint was not written: {found.checkpoint_error}", RuntimeWarning, stacklevel=2)
        return self

    def predict(self, X: Any, complexity: int | None = None, *, interval: float | None = None) -> Any:
        """Predictions in f64, shape (rows,); NaN or infinite where the formula is, as log(x) is for x up to 0.

        Args:
            complexity: Predict with the best formula of at most this complexity instead of the chosen one.
            interval: A probability such as 0.95. Gives three arrays: the predictions, and the ends of the intervals that
                contain a new measurement with this probability, if the formula is right and residuals are normal
                (docs/search.md). For the chosen formula only.
        """
        if interval is not None and (complexity is not None or not 0 < interval < 1):
            raise InvalidError(f"interval is {interval} and complexity {complexity}, expected a probability between 0 and 1 for the "
                               "chosen formula")
        formula = self._formula(complexity)
        X = _checked(self, X, reset=False)
        engine = default_engine(self.device, "f64")
        parsed = parse(formula.expression, names=self._names())
        program = engine.compile(parsed, expected_rows=X.shape[0])
        within = X if self.outside == "formula" else np.clip(X, *self.box_)
        predictions = engine.predict(program, engine.upload(within))[0]
        if self.outside == "nan":
            used = [VARIABLE - code for code in parsed.codes if code <= VARIABLE]
            predictions = np.where((X == within)[:, used].all(axis=1), predictions, np.nan)
        if interval is None:
            return predictions
        half = np.array(_core.half_widths(engine._engine, formula.expression, columns_of(within), self._names(), self._uncertainty,
                                          interval))
        return predictions, predictions - half, predictions + half

    def sympy(self, complexity: int | None = None, *, real: bool = False) -> Any:
        """The chosen formula, or the best one of at most this complexity, as an expression of SymPy.

        Args:
            real: Whether its symbols are real, as of `srjit.to_sympy`.
        """
        from ._sympy import to_sympy

        return to_sympy(self._formula(complexity).expression, self._names(), real=real)

    def latex(self, complexity: int | None = None) -> str:
        """The chosen formula, or the best one of at most this complexity, in LaTeX's mathematical mode."""
        return self._formula(complexity).latex

    @property
    def equations_(self) -> Any:
        """`front_` as a data frame of pandas: a column for each field of `srjit.Formula`, and ``chosen``."""
        check_is_fitted(self)
        with needs("pandas"):
            import pandas as pd
        frame = pd.DataFrame(self.front_)
        frame = frame[sorted(frame, key=["expression", "latex"].__contains__)]  # texts last
        return frame.assign(chosen=[formula is self.chosen_ for formula in self.front_])

    def report(self, path: Any, X: Any = None, y: Any = None) -> None:
        """Writes a page of HTML: all formulas, their losses, predictions and residuals. It is one file, for any browser.

        Args:
            path: The file; it appears complete or not at all.
            X, y: Rows to judge by. None: rows of the fit; the estimator keeps 2000 at most, at equal distances.
        """
        check_is_fitted(self)
        if (X is None) != (y is None):
            raise InvalidError("report takes both X and y, or neither")
        rows, target, name, count = self._report_rows
        facts = [f"{self.seconds_:.3g} s", f"{self.n_iter_} generations", f"{self.candidates_:.3g} trees"]
        if X is not None:
            rows, target = _checked(self, X, y, y_numeric=True, reset=False)
        elif len(rows) < count:
            facts.append(f"{len(rows)} of {count} rows were kept")
        command = f"{self.__repr__(N_CHAR_MAX=10**6)}.fit(X, y)"
        write_report(path, rows, target, self._names(), self.front_, self.chosen_, name, self.loss, command, facts)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # How good it is, is a matter of time, and how far it comes in that time differs.
        tags.regressor_tags.poor_score = True
        tags.non_deterministic = self.generations is None
        return tags

    def __sklearn_clone__(self) -> Any:
        if self.checkpoint is not None and not os.path.isdir(self.checkpoint):
            raise InvalidError(f"the checkpoint {os.fspath(self.checkpoint)!r} is a file, which one search writes, but a copy of "
                               "the estimator, as cross-validation makes them, may search other data: give an existing "
                               "folder, where each search has its own file")
        return super().__sklearn_clone__()

    def _names(self) -> list[str]:
        return list(getattr(self, "feature_names_in_", ()))

    def _check_finite(self, X: np.ndarray) -> None:
        open_cells = ~np.isfinite(X)
        open_rows = np.flatnonzero(open_cells.any(axis=1))
        if len(open_rows) == 0:
            return
        names = self._names() or [f"x{c}" for c in range(X.shape[1])]
        column = int(np.argmax(open_cells[open_rows[0]]))
        raise InvalidError(f"X has NaN or inf in {len(open_rows)} of {len(X)} rows, first in row {open_rows[0] + 1}, column "
                           f"{names[column]!r}; leave these rows out, or impute the values")

    def _choice(self, found: Any) -> Formula:
        if callable(self.choose):
            chosen = self.choose(list(found.front))
            if chosen not in found.front:
                raise InvalidError(f"choose gave {chosen!r}, expected one of the formulas that it was given")
            return found.front[found.front.index(chosen)]
        if not isinstance(self.choose, str) and self.choose < found.front[0].complexity:
            warnings.warn(f"choose is {self.choose}, but the simplest formula has a complexity of "
                          f"{found.front[0].complexity}: it predicts", RuntimeWarning, stacklevel=3)
        return found.front[found.chosen]

    def _options(self, y: np.ndarray) -> list[str]:
        if self.checkpoint is not None and self.warm_start:
            raise InvalidError("checkpoint and warm_start are two ways to go on: leave one out")
        if self.random_state is None and (self.checkpoint is not None or self.warm_start):
            raise InvalidError("random_state is None, but a search that goes on later, by checkpoint or warm_start, needs a seed")
        # A constant target has no variance to divide by.
        loss = "mse" if self.loss == "nmse" and np.ptp(y) == 0 else self.loss
        own = ("outside", "random_state", "checkpoint", "callback", "warm_start", "verbose")
        # A subclass may have other parameters, and fewer.
        names = [name for name in SymbolicRegressor._get_param_names() if name not in own]
        given = {name: getattr(self, name) for name in names}
        return options_of(**{**given, "loss": loss, "seed": _seed_of(self.random_state)})

    def _formula(self, complexity: int | None) -> Formula:
        check_is_fitted(self)
        return self.chosen_ if complexity is None else self._best(complexity)

    def _best(self, complexity: int) -> Formula:
        """The formula with the least loss of this complexity or less."""
        most = whole(complexity, "complexity", 1)
        admitted = [formula for formula in self.front_ if formula.complexity <= most]
        if not admitted:
            raise InvalidError(f"no formula has a complexity of {most} or less; that of the simplest is "
                               f"{self.front_[0].complexity}")
        return min(admitted, key=lambda formula: formula.loss)


def score(expressions: Sequence[Any], X: Any, y: Any, sample_weight: Any = None, *, parameters: Any = None,
          scoring: str = "r2", engine: Engine | str | None = None) -> np.ndarray:
    """Scores of many expressions in one call; larger is better, as everywhere in scikit-learn.

    Args:
        expressions: As of `srjit.Engine.compile`.
        X, y, sample_weight: As of `srjit.Engine.upload`.
        parameters: As of `srjit.Engine.loss`.
        scoring: ``"r2"``, ``"neg_mean_squared_error"``, ``"neg_root_mean_squared_error"`` or
            ``"neg_mean_absolute_error"``.
        engine: An engine, or a device such as ``"cpu"``: one of precision f64 there. By default on cuda:0, if it can be
            used, else the CPU.

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
    engine = engine_of(engine)
    data = engine.upload(X, y, sample_weight)
    program = engine.compile(expressions, names=data)
    losses = engine.loss(program, data, parameters, loss=loss, nan="reject")
    losses.check()
    scores = sign * losses.values
    if scoring == "r2" and np.ptp(np.asarray(y, dtype=np.float64)) == 0:
        errors = engine.loss(program, data, parameters, loss="mse", nan="reject").values
        return np.where(errors == 0, 1.0, np.where(np.isfinite(errors), 0.0, -np.inf))
    return scores
