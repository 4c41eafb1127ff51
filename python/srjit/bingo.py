"""Bingo: fitness, and the constants, of a whole population in one call.

    evaluation = srjit.bingo.Evaluation(fitness_function)    # instead of: bingo.evaluation.evaluation.Evaluation

`fitness_function` is Bingo's: an ``ExplicitRegression``, or a ``LocalOptFitnessFunction`` of one, whose constants are then
fitted here, by Levenberg-Marquardt with variable projection, from starting values that are drawn as Bingo draws them.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np

from ._engine import FIT_ITERATIONS, Engine
from ._expressions import CONSTANT, PARAMETER, VARIABLE, Population, arrays_of, ops
from ._lambdify import engine_of
from ._packages import needs

with needs("bingo-nasa", "bingo"):
    from bingo.evaluation import evaluation, fitness_function
    from bingo.local_optimizers.local_opt_fitness import LocalOptFitnessFunction
    from bingo.symbolic_regression.explicit_regression import ExplicitRegression

_METRICS = {fitness_function.mean_absolute_error: "mae", fitness_function.mean_squared_error: "mse",
            fitness_function.root_mean_squared_error: "rmse"}
# Methods of scipy.optimize.root that Bingo calls with the residuals, so that it minimises their squares.
_LEAST_SQUARES = {"lm"}

# What Bingo prints of a command, and the operators that it is: "a" and "b" are its operands.
_COMMANDS = [(re.compile(pattern), meaning.split()) for pattern, meaning in (
    (r"\((\d+)\) \+ \((\d+)\)", "a b add"), (r"\((\d+)\) - \((\d+)\)", "a b sub"),
    (r"\((\d+)\) \* \((\d+)\)", "a b mul"), (r"\((\d+)\) / \((\d+)\)", "a b div"),
    (r"\((\d+)\) \^ \((\d+)\)", "a b pow"), (r"\(\|(\d+)\|\) \^ \((\d+)\)", "a abs b pow"),
    (r"\((\d+)\) \^ 2", "a square"), (r"\((\d+)\) \^ 3", "a cube"),
    (r"sqrt \((\d+)\)", "a abs sqrt"), (r"log \((\d+)\)", "a abs log"),
    *((rf"{name} \((\d+)\)", f"a {name}") for name in (
        "sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "abs", "asin", "acos", "atan")))]
_LEAF = re.compile(r"X_(\d+)|C_(\d+)|(-?\d+) \(integer\)")
# Individuals are graphs, and expressions trees: a longer one is left to Bingo.
_MOST_TOKENS = 10_000


class Evaluation(evaluation.Evaluation):
    """Bingo's evaluation phase, which evaluates all individuals of a population at once.

    Args:
        fitness_function: That of Bingo. Metrics other than the mean absolute, mean squared and root mean squared error,
            relative errors, linear correction and other kinds of regression are evaluated by Bingo itself, with one
            warning.
        redundant, multiprocess: As of Bingo; the latter of what Bingo evaluates itself.
        iterations: Passes over the data of a fit, at most.
        engine: An engine, or a device such as ``"cpu"``: one of precision f64 there. By default on cuda:0, if it can
            be used, else the CPU.
    """

    def __init__(self, fitness_function: Any, redundant: bool = False, multiprocess: int | bool = False, *,
                 iterations: int = FIT_ITERATIONS, engine: Engine | str | None = None):
        super().__init__(fitness_function, redundant, multiprocess)
        self._iterations = iterations
        self._engine = engine
        self._data: tuple[Any, Any] | None = None
        self._has_warned = False

    def __call__(self, population: list[Any]) -> None:
        """Evaluates the individuals that have no fitness yet, after fitting the constants of those that need it."""
        chosen = [individual for individual in population if self._redundant or not individual.fit_set]
        missing = _missing_in(self.fitness_function)
        if missing is not None:
            if not self._has_warned:
                warnings.warn(f"srjit has no counterpart of {missing}: Bingo evaluates the individuals itself",
                              stacklevel=2)
                self._has_warned = True
            super().__call__(population)
            return
        converted = [(individual, tokens) for individual in chosen
                     if (tokens := _tokens_of(individual)) is not None]
        if converted:
            self._evaluate(*map(list, zip(*converted)))
        # Those that are too long as trees.
        done = {id(individual) for individual, _ in converted}
        super().__call__([individual for individual in chosen if id(individual) not in done])

    def _evaluate(self, individuals: list[Any], expressions: list[tuple[list[int], list[float]]]) -> None:
        engine = engine_of(self._engine)
        regression = _regression_of(self.fitness_function)
        data = self._data_for(regression.training_data, engine)
        program = engine.compile(arrays_of(expressions))
        loss = _METRICS[regression._metric]
        if isinstance(self.fitness_function, LocalOptFitnessFunction):
            self._fit(engine, program, data, individuals, loss)
        parameters = [np.ravel(individual.get_local_optimization_params()) for individual in individuals]
        values = engine.loss(program, data, np.concatenate(parameters), loss=loss).values
        for individual, value in zip(individuals, values.tolist()):
            individual.fitness = value
        self.eval_count += len(individuals)

    def _fit(self, engine: Engine, program: Any, data: Any, individuals: list[Any], loss: str) -> None:
        options = self.fitness_function.optimizer.options
        starts = []
        needs = [individual.needs_local_optimization() for individual in individuals]
        for individual, needed in zip(individuals, needs):
            count = individual.get_number_local_optimization_params()
            starts.append(np.random.uniform(*options["param_init_bounds"], count) if needed
                          else np.ravel(individual.get_local_optimization_params()))
        fitted_loss = "mse" if options["method"] in _LEAST_SQUARES else loss
        fits = engine.fit(program, data, np.concatenate(starts), self._iterations, loss=fitted_loss)
        for individual, needed, start, fitted in zip(individuals, needs, starts, program.split(fits.parameters)):
            if needed:
                individual.set_local_optimization_params(np.where(np.isfinite(fitted), fitted, start))
        self.eval_count += int(fits.iterations.sum())

    def _data_for(self, training_data: Any, engine: Engine) -> Any:
        """The data, uploaded once: again if the fitness function has others, as with a fitness predictor."""
        if self._data is None or self._data[0] is not training_data:
            self._data = (training_data, engine.upload(training_data.x, np.ravel(training_data.y)))
        return self._data[1]


def population_of(individuals: list[Any]) -> Population:
    """Individuals (AGraphs) as expressions, with their constants as parameters p0, p1, ...

    Raises:
        ValueError: One that is longer than 10,000 tokens as a tree.
    """
    expressions = [_tokens_of(individual) for individual in individuals]
    for number, tokens in enumerate(expressions):
        if tokens is None:
            raise ValueError(f"individual {number} has more than {_MOST_TOKENS} tokens as a tree")
    return Population.from_arrays(*arrays_of(expressions))


def _tokens_of(individual: Any) -> tuple[list[int], list[float]] | None:
    """Codes and numbers in postfix; None if there are too many."""
    results: list[tuple[list[int], list[float]]] = []
    for line in individual.get_formatted_string("stack").splitlines():
        command = line.partition(" <= ")[2].strip()
        if not command:
            continue
        tokens = _tokens_of_command(command, results)
        if len(tokens[0]) > _MOST_TOKENS:
            return None
        results.append(tokens)
    return results[-1]


def _tokens_of_command(command: str, results: list[tuple[list[int], list[float]]]) -> tuple[list[int], list[float]]:
    leaf = _LEAF.match(command)
    if leaf:
        variable, constant, integer = leaf.groups()
        if variable is not None:
            return [VARIABLE - int(variable)], [0.0]
        return ([PARAMETER - int(constant)], [0.0]) if constant is not None else ([CONSTANT], [float(integer)])
    for pattern, meaning in _COMMANDS:
        found = pattern.fullmatch(command)
        if found is None:
            continue
        operands = dict(zip("ab", (results[int(number)] for number in found.groups())))
        codes: list[int] = []
        constants: list[float] = []
        for word in meaning:
            part = operands.get(word) or ([ops[word].code], [0.0])
            codes += part[0]
            constants += part[1]
        return codes, constants
    raise ValueError(f"there is no operator for Bingo's command {command!r}")


def _regression_of(function: Any) -> Any:
    return function._fitness_function if isinstance(function, LocalOptFitnessFunction) else function


def _missing_in(function: Any) -> str | None:
    """What of a fitness function has no counterpart here."""
    regression = _regression_of(function)
    if type(regression) is not ExplicitRegression:
        return f"the fitness function {type(regression).__name__}"
    if regression._metric not in _METRICS:
        return f"the metric {regression._metric.__name__}"
    if regression._relative:
        return "relative errors"
    return "linear correction" if regression._linear_correction else None
