"""srjit: finds, fits and evaluates formulas on CPUs and GPUs.

Examples:
    >>> import numpy as np, srjit
    >>> engine = srjit.Engine(device="cpu", precision="f64")
    >>> X = np.linspace(0, 1, 1000).reshape(-1, 1)
    >>> data = engine.upload(X, 3 * X[:, 0] + 1)
    >>> program = engine.compile(["x0*p0 + p1", "sin(x0)*p0"])
    >>> fits = engine.fit(program, data)
    >>> int(fits.losses.argmin())
    0

`SymbolicRegressor` finds formulas; `Engine` evaluates and fits formulas of your own. docs/tutorial.md and docs/python.md
show how.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _packages
from ._core import __version__
from ._device import DeviceLoss, DeviceLosses
from ._engine import Dataset, Engine, Program
from ._errors import Error, InvalidError, Place
from ._expressions import CONSTANT, PARAMETER, VARIABLE, Op, Population, latex, loss_names, ops, parse, simplify
from ._lambdify import lambdify
from ._results import Failure, Fits, Gradients, Losses, Pending
from ._search import Formula, Progress
from ._stages import Stages, stages

if TYPE_CHECKING:
    from ._sympy import from_sympy, to_sympy
    from .sklearn import SymbolicRegressor as SymbolicRegressor

__all__ = [
    "CONSTANT", "PARAMETER", "VARIABLE", "Dataset", "DeviceLoss", "DeviceLosses", "Engine", "Error", "Failure", "Fits", "Formula", "Gradients",
    "InvalidError", "Losses", "Op", "Pending", "Place", "Population", "Program", "Progress", "Stages", "__version__",
    "from_sympy", "lambdify", "latex", "loss_names", "ops", "parse", "simplify", "stages", "to_sympy",
]

# Imported at the first use, since SymPy and scikit-learn take half a second each, and need not be there. Whoever has no
# scikit-learn can still import all names of __all__ with SymPy, so SymbolicRegressor is not one.
_LATER = {"from_sympy": "._sympy", "to_sympy": "._sympy", "SymbolicRegressor": ".sklearn"}

# Before the first engine, since the library searches once.
_packages.name_nvidia_packages()

# Modules that import other packages.
_MODULES = ("bingo", "deap", "evogp", "gplearn", "mpi", "operon", "sklearn", "torch")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        import importlib

        return importlib.import_module(f".{name}", __name__)
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LATER[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_LATER, *_MODULES})
