"""gplearn: its estimators, whose programs are evaluated a generation at a time.

    from srjit.gplearn import SymbolicRegressor    # instead of: from gplearn.genetic import SymbolicRegressor

The evolution is gplearn's own code, with the same random numbers; with one seed, the same programs evolve (in precision
f64, but for ties that the last bits of a fitness decide). Where something has no counterpart here, gplearn's own
evaluation is used, with one warning.
"""

from __future__ import annotations

import inspect
import threading
import types
import warnings
from typing import Any

import numpy as np

from . import _core
from ._engine import Engine
from ._expressions import VARIABLE, ops
from ._lambdify import default_engine
from ._packages import needs

with needs("gplearn", "gplearn", "joblib"):
    import joblib
    from gplearn import _program, fitness, functions, genetic

_OPS = {"add": "add", "sub": "sub", "mul": "mul", "div": "pdiv", "sqrt": "psqrt", "log": "plog", "neg": "neg",
        "inv": "pinv", "abs": "abs", "max": "max", "min": "min", "sin": "sin", "cos": "cos", "tan": "tan"}
_CODES = {id(functions._function_map[name]): ops[op].code for name, op in _OPS.items()}
_LOSSES = {id(fitness._fitness_map[name]): loss for name, loss in (
    ("mean absolute error", "mae"), ("mse", "mse"), ("rmse", "rmse"), ("pearson", "correlation"))}
# The log loss is that of the program's sigmoid, with probabilities clipped as gplearn does.
_LOG_LOSS = ("-(y*log(min(max(logistic(f), 1e-15), 1 - 1e-15)) + "
             "(1 - y)*log(min(max(1 - logistic(f), 1e-15), 1 - 1e-15)))")

# Predictions that are in memory at once: 128 MB.
_CHUNK_NUMBERS = 1 << 24


class _Unevaluated(_program._Program):
    """A program whose fitness is computed later, together with those of all others of its generation."""

    def raw_fitness(self, X: Any, y: Any, sample_weight: Any) -> float:
        return float("nan")

    def get_all_indices(self, n_samples: Any = None, max_samples: Any = None, random_state: Any = None) -> Any:
        # The rows of a sample are drawn when they are needed, from this state. A sample of all rows has no need of one.
        self._indices_state = _ANY_STATE if max_samples == n_samples else random_state.get_state()
        return [], []


def _with_globals(function: types.FunctionType, name: str, **changed: Any) -> types.FunctionType:
    """A function of gplearn in which some global names mean something else."""
    made = types.FunctionType(function.__code__, {**function.__globals__, **changed}, name, function.__defaults__,
                              function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__module__ = __name__
    made.__qualname__ = name
    return made


_ANY_STATE = np.random.RandomState(0).get_state()
_of_thread = threading.local()


def _seeded(seed: int) -> np.random.RandomState:
    """The generator of a program, for check_random_state(): a new one takes a hundred microseconds, a new seed one."""
    if not hasattr(_of_thread, "generator"):
        _of_thread.generator = np.random.RandomState(0)
    _of_thread.generator.seed(seed)
    return _of_thread.generator


_breed = _with_globals(genetic._parallel_evolve, "_breed", _Program=_Unevaluated, check_random_state=_seeded)


def _evolve(n_programs: int, parents: Any, X: Any, y: Any, sample_weight: Any, seeds: Any, params: Any) -> list[Any]:
    """A part of a generation, without fitness: runs in processes of joblib. Needs only one row."""
    return _breed(n_programs, parents, X[:1], y[:1], None, seeds, params)


class _Batches:
    """The fitness of the generations of one fit."""

    def __init__(self, X: np.ndarray, y: np.ndarray, sample_weight: Any, params: dict[str, Any], engine: Engine):
        self.y = y
        self.weights = np.ones(len(y)) if sample_weight is None else sample_weight
        self.sample_rows = int(params["max_samples"] * len(y))
        # Without a counterpart of the metric, and for samples of the rows, predictions are made here, and gplearn's own
        # metric is computed of them.
        self.loss = _loss_of(params) if self.sample_rows == len(y) else None
        self.engine = engine
        self.data = engine.upload(X, y, sample_weight)
        self.nodes = _core.NodeCodes(_node_of, True)
        for function in params["function_set"]:
            self.nodes.add(function, _CODES[id(function)], 0.0)

    def evaluate(self, programs: list[Any]) -> None:
        for program in programs:
            program.__class__ = _program._Program
            program._n_samples = len(self.y)
            program._max_samples = self.sample_rows
        if self.loss is None:
            at_once = max(1, _CHUNK_NUMBERS // len(self.y))
            for first in range(0, len(programs), at_once):
                self._evaluate_by_predictions(programs[first:first + at_once])
            return
        values = self.engine.loss(self._arrays(programs), self.data, loss=self.loss, prefix=True).values
        if self.loss == "correlation":
            values = np.where(np.isfinite(values), np.abs(values), 0.0)
        for program, value in zip(programs, values):
            program.raw_fitness_ = value

    def _evaluate_by_predictions(self, programs: list[Any]) -> None:
        compiled = self.engine.compile(self._arrays(programs), prefix=True, expected_rows=len(self.y))
        for program, predictions in zip(programs, self.engine.predict(compiled, self.data)):
            if program.transformer:
                predictions = program.transformer(predictions)
            weights = self.weights
            if self.sample_rows < len(self.y):
                indices, left_out = program.get_all_indices()
                weights = self.weights.copy()
                weights[indices] = 0
                program.oob_fitness_ = program.metric(self.y, predictions, weights)
                weights = self.weights.copy()
                weights[left_out] = 0
            program.raw_fitness_ = program.metric(self.y, predictions, weights)

    def _arrays(self, programs: list[Any]) -> Any:
        return self.nodes.arrays([program.program for program in programs])


def _node_of(node: Any) -> tuple[int, float]:
    """What a node is that is neither a float nor a known function: the number of a variable."""
    if isinstance(node, (float, np.floating)):
        return 0, float(node)
    if isinstance(node, (int, np.integer)):
        return VARIABLE - int(node), 0.0
    # A copy of a function, as from another process.
    known = functions._function_map.get(getattr(node, "name", None))
    if known is None:
        raise ValueError(f"a program has the node {node!r}")
    return _CODES[id(known)], 0.0


def _loss_of(params: dict[str, Any]) -> str | None:
    metric, transformer = params["_metric"], params["_transformer"]
    if metric is fitness.log_loss and transformer is functions.sig1:
        return _LOG_LOSS
    return _LOSSES.get(id(metric)) if transformer is None else None


def _missing_in(params: dict[str, Any]) -> str | None:
    """What of these options has no counterpart here."""
    for function in params["function_set"]:
        if id(function) not in _CODES:
            return f"the function {function.name!r}"
    return None


def _parallel_for(estimator: Any) -> type:
    """joblib.Parallel for a fit of this estimator: breeds as gplearn does, and then evaluates the new programs."""
    batches: list[_Batches | None] = []

    class EvaluatingParallel(joblib.Parallel):
        def __call__(self, calls: Any) -> Any:
            calls = list(calls)
            _, _, X, y, sample_weight, _, params = calls[0][1]
            if not batches:
                missing = _missing_in(params)
                if missing is not None:
                    warnings.warn(f"srjit has no counterpart of {missing}: gplearn evaluates the programs itself",
                                  stacklevel=4)
                batches.append(None if missing else _Batches(X, y, sample_weight, params, estimator._srjit_engine()))
            if batches[0] is None:
                return super().__call__(calls)
            parts = super().__call__([(_evolve, arguments, options) for _, arguments, options in calls])
            batches[0].evaluate([program for part in parts for program in part])
            return parts

    return EvaluatingParallel


class _Evaluated:
    """What the three estimators have in common."""

    device: str
    precision: str

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fits as gplearn's estimator does, with the same results."""
        own = _with_globals(genetic.BaseSymbolic.fit, "fit", Parallel=_parallel_for(self))
        return own(self, X, y, sample_weight)

    def _srjit_engine(self) -> Engine:
        return default_engine(self.device, self.precision)


def _estimator(base: type) -> type:
    """A subclass with two more options. Estimators of scikit-learn name all of theirs, so the signature is put together."""
    def __init__(self, *, device="auto", precision="f64", **options):
        base.__init__(self, **options)
        self.device = device
        self.precision = precision

    inherited = inspect.signature(base.__init__)
    own = inspect.signature(__init__).parameters
    __init__.__signature__ = inherited.replace(
        parameters=[*inherited.parameters.values(), own["device"], own["precision"]])
    doc = (f"gplearn.genetic.{base.__name__}, whose programs are evaluated a generation at a time.\n\n"
           "    Args:\n        device: As of `srjit.Engine`.\n        precision: ``\"f64\"``, as gplearn computes, or "
           "``\"f32\"``, which is quicker on a GPU.\n\n    All other options are those of gplearn.\n    ")
    return type(base.__name__, (_Evaluated, base), {"__init__": __init__, "__doc__": doc, "__module__": __name__})


SymbolicRegressor = _estimator(genetic.SymbolicRegressor)
SymbolicClassifier = _estimator(genetic.SymbolicClassifier)
SymbolicTransformer = _estimator(genetic.SymbolicTransformer)
