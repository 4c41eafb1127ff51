"""PyTorch: an expression as a module, with gradients by its parameters and its inputs.

    module = srjit.torch.compile("p0*exp(-p1*x0)", parameters=[1.0, 0.5])
    optimizer = torch.optim.Adam(module.parameters())
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._engine import Engine, Program
from ._expressions import Population, parse
from ._lambdify import default_engine
from ._packages import needs

with needs("torch"):
    import torch


class Expressions(torch.nn.Module):
    """Expressions of the columns of a matrix, made by `compile`.

    Attributes:
        values: Their parameters, one behind another: a ``torch.nn.Parameter`` of float64.
        population: The expressions.
    """

    def __init__(self, population: Population, parameters: Any, one: bool, precision: str | None):
        super().__init__()
        self.population = population
        self._one = one
        self._precision = precision
        self._programs: dict[tuple[str, str], Program] = {}
        count = self._program(default_engine("cpu", "f64")).parameter_count
        values = torch.ones(count, dtype=torch.float64) if parameters is None else torch.as_tensor(
            parameters, dtype=torch.float64).reshape(-1)
        if values.numel() != count:
            raise ValueError(f"{values.numel()} parameters were given, but the expressions have {count}")
        self.values = torch.nn.Parameter(values.clone())

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Predictions.

        Args:
            X: float32 or float64, shape (rows, columns), on the CPU or a GPU. A tensor of a GPU is used in place.

        Returns:
            Shape (rows,) for one expression, (expressions, rows) for several; of the device and type of `X`.
        """
        if X.ndim != 2 or X.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"X is {X.dtype} of shape {tuple(X.shape)}, expected floating point, rows x columns")
        result = _Evaluate.apply(X, self.values, self)
        return result[0] if self._one else result

    def _engine(self, X: torch.Tensor) -> Engine:
        precision = self._precision or ("f64" if X.dtype == torch.float64 else "f32")
        return default_engine(f"cuda:{X.device.index}" if X.is_cuda else "cpu", precision)

    def _program(self, engine: Engine) -> Program:
        key = (engine.device, engine.precision)
        if key not in self._programs:
            self._programs[key] = engine.compile(self.population, expected_evaluations=1000)
        return self._programs[key]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_programs": {}}

    def extra_repr(self) -> str:
        """The expressions, for `print`."""
        return ", ".join(list(self.population)[:3]) + (", ..." if len(self.population) > 3 else "")


class _Evaluate(torch.autograd.Function):
    """Predictions, and vector-Jacobian products from Jacobians that are made on demand."""

    @staticmethod
    def forward(context: Any, X: torch.Tensor, values: torch.Tensor, module: Expressions) -> torch.Tensor:
        engine = module._engine(X)
        program = module._program(engine)
        dtype = torch.float64 if engine.precision == "f64" else torch.float32
        data = engine.upload(_columns(X, dtype))
        context.save_for_backward(X, values)
        context.evaluation = engine, program, data
        out = torch.empty((len(program), X.shape[0]), dtype=dtype, device=X.device)
        engine.predict(program, data, _numbers(values), out=_target(out))
        return out.to(X.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        X, values = context.saved_tensors
        engine, program, data = context.evaluation
        dtype = torch.float64 if engine.precision == "f64" else torch.float32
        gradient = gradient.to(dtype)

        def jacobian(by: str, shape: tuple[int, ...]) -> torch.Tensor:
            out = torch.empty(shape, dtype=dtype, device=X.device)
            engine.jacobian(program, data, _numbers(values), by=by, out=_target(out))
            return out

        of_X = of_values = None
        if context.needs_input_grad[0]:
            by_variables = jacobian("variables", (len(program), X.shape[1], X.shape[0]))
            of_X = torch.einsum("er,ecr->rc", gradient, by_variables).to(X.dtype)
        if context.needs_input_grad[1] and program.parameter_count:
            by_parameters = jacobian("parameters", (program.parameter_count, X.shape[0]))
            counts = torch.as_tensor(np.diff(program.parameter_offsets), device=X.device)
            of_values = (torch.repeat_interleave(gradient, counts, dim=0) * by_parameters).sum(1).to(values)
        return of_X, of_values, None


def _columns(X: torch.Tensor, dtype: torch.dtype) -> Any:
    """What an engine reads: X itself if it is on a GPU and of the engine's type, else a copy."""
    X = X.detach().to(dtype)
    return X if X.is_cuda else X.numpy()


def _target(out: torch.Tensor) -> Any:
    return out if out.is_cuda else out.numpy()


def _numbers(values: torch.Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()


def compile(expressions: Any, parameters: Any = None, *, names: Sequence[str] = (),
            precision: str | None = None) -> Expressions:
    """A module that evaluates expressions on the columns of a matrix.

    Gradients are exact: those by parameters and by inputs are graphs of their own, made at the first use. Second
    derivatives are an error.

    Args:
        expressions: A text or an expression of SymPy, or several, or a `Population`.
        parameters: First values of the parameters, one expression after another. None: 1 for each.
        names: Names of the variables, in the order of the columns.
        precision: ``"f32"`` or ``"f64"``; None: that of the inputs.

    Raises:
        ValueError: A wrong number of parameters, or a text that is no expression.
    """
    one = not isinstance(expressions, (list, tuple, Population))
    if not isinstance(expressions, Population):
        several = [expressions] if one else list(expressions)
        if all(isinstance(expression, str) for expression in several):
            population = parse(several, names=names)
        else:
            from ._sympy import from_sympy

            population = from_sympy(several, names)
    else:
        population = expressions
    if population.failures:
        raise population.failures[0].error
    return Expressions(population, parameters, one, precision)
