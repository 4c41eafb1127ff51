"""The search for formulas, without scikit-learn: options, and what a search gives."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from . import _core
from ._arrays import column_of, columns_of, text_of
from ._errors import InvalidError


class Formula(NamedTuple):
    """A formula that a search has found."""

    complexity: int  #: the sum over its operators, variables and constants
    loss: float  #: over all rows, in f64
    held_out: float  #: over the rows that were held out, before the constants were fitted to them, too; NaN if there are none
    expression: str  #: text in infix, with the names of columns, which `parse` and `Engine.compile` read
    latex: str  #: in LaTeX's mathematical mode; needs the package amsmath
    evidence: float  #: how much it explains for its length, in nats: larger is better; NaN for a loss of your own
    bic: float  #: Schwarz's criterion, smaller is better; NaN for a loss of your own
    r2: float  #: the share of the target's variance that it explains


class Found(NamedTuple):
    """What a search gives."""

    front: list[Formula]
    chosen: int
    seconds: float
    generations: int
    candidates: int
    fits: int
    end: str
    notices: list[str]
    checkpoint_error: Exception | None


# Options that are whole numbers, with the least of each, and positive numbers or shares.
_COUNTS = {"generations": 1, "max_complexity": 1, "variable_complexity": 1, "constant_complexity": 1, "islands": 2,
           "population": 2, "offspring": 1, "rows": 1, "threads": 0}
_NUMBERS = ("seconds", "held_out", "tol")
_WORDS = ("loss", "device", "precision")


def options_of(seconds: float | None, **given: Any) -> Any:
    """Options of the C++ search. Those that are None keep the library's defaults; without `seconds` there is no limit.

    Raises:
        ValueError, TypeError: A value that its option does not take.
    """
    options = _core.SearchOptions()
    options.seconds = 0.0
    for name, value in {"seconds": seconds, **given}.items():
        if value is not None:
            setattr(options, name, _checked(name, value))
    return options


def _checked(name: str, value: Any) -> Any:
    if name in _COUNTS:
        return whole(value, name, _COUNTS[name])
    if name in _NUMBERS:
        return _number(value, name)
    if name in _WORDS:
        return text_of(value, name)
    if name == "self_nesting":
        return flag(value, name)
    if name == "choose":
        return choice_text(value)
    if name in ("operators", "nesting"):
        return ",".join(_texts(value, name))
    if name == "links":
        return [word for text in _texts(value, name) for word in text.replace(",", " ").split()]
    return value


def whole(value: Any, name: str, least: int, most: int = 2**32 - 1) -> int:
    """`value`, which is to be a whole number from `least` to `most`."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(f"{name} is of type {type(value).__name__}, expected int")
    if not least <= int(value) <= most:
        raise InvalidError(f"{name} is {value}, expected {least} to {most}")
    return int(value)


def choice_text(value: Any) -> str:
    """What the C++ search chooses by. A function of the caller is asked afterwards, so it is as good as the default."""
    if callable(value):
        return "evidence"
    if not isinstance(value, str):
        return str(whole(value, "choose", 1))
    if value not in ("evidence", "balance", "loss"):
        raise InvalidError(f"choose is {value!r}, expected 'evidence', 'balance', 'loss', a complexity or a function of the "
                           "formulas")
    return str(value)


def flag(value: Any, name: str) -> bool:
    """`value`, which is to be a truth value, or a number such as 0 and 1."""
    if not isinstance(value, (bool, np.bool_, int, np.integer)):
        raise TypeError(f"{name} is of type {type(value).__name__}, expected bool")
    return bool(value)


def _number(value: Any, name: str) -> float:
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        raise TypeError(f"{name} is of type {type(value).__name__}, expected a number")
    if math.isnan(value) or value < 0 or (name == "seconds" and value == 0):
        raise InvalidError(f"{name} is {value}, expected {'more than 0' if name == 'seconds' else '0 or more'}")
    return float(value)


def _texts(value: Any, name: str) -> list[str]:
    """The texts of a text, of several, or of a mapping from names to complexities."""
    if isinstance(value, str):
        return [text_of(value, name)]
    if isinstance(value, Mapping):
        return [f"{text_of(key, f'a key of {name}')}:{cost}" for key, cost in value.items()]
    if not isinstance(value, Iterable) or isinstance(value, bytes):
        raise TypeError(f"{name} is of type {type(value).__name__}, expected a text or a list of texts")
    return [text_of(text, f"a part of {name}") for text in value]


class ProgressLines:
    """Writes a line to the standard error when the formula that would be chosen is another one."""

    def __init__(self) -> None:
        self._shown = ""

    def __call__(self, seconds: float, generations: int, candidates: int, front: list[tuple[Any, ...]], chosen: int) -> None:
        best = Formula(*front[chosen])
        if best.expression == self._shown:
            return
        self._shown = best.expression
        print(f"srjit: {seconds:.1f} s, {generations} generations: loss {best.loss:.4g}, complexity {best.complexity}: "
              f"{best.expression}", file=sys.stderr, flush=True)


class ProgressTable:
    """Shows the time, trees per second and the front so far in a notebook, in one place that changes."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html = HTML
        self._place = display(HTML(""), display_id=True)

    def __call__(self, seconds: float, generations: int, candidates: int, front: list[tuple[Any, ...]], chosen: int) -> None:
        rows = "".join(f"<tr><td>{one.complexity}</td><td>{one.loss:.4g}</td><td style='text-align: left'>"
                       f"<code>{escape(one.expression)}</code>{' (chosen)' if i == chosen else ''}</td></tr>"
                       for i, one in enumerate(Formula(*formula) for formula in front))
        self._place.update(self._html(
            f"<p>{seconds:.1f} s, {generations} generations, {candidates / max(seconds, 1e-3):.3g} trees per second</p><table>"
            f"<tr><th>complexity</th><th>loss</th><th style='text-align: left'>formula</th></tr>{rows}</table>"))


def _progress() -> ProgressLines | ProgressTable:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return ProgressTable() if shell is not None and "IPKernelApp" in shell.config else ProgressLines()


def write_report(path: Any, X: np.ndarray, y: np.ndarray, names: Sequence[str], front: Sequence[Formula], chosen: Formula,
                 *words: Any) -> None:
    """Writes the page of a search; `words` are the names of target and loss, the command, and a list of facts."""
    rows = [{**one._asdict(), "formula": one.expression, "chosen": one is chosen} for one in front]
    finite = [{key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
              for row in rows]
    _core.write_report(os.fsdecode(path), columns_of(X), column_of(y, "y"), list(names), json.dumps(finite), *words)


def run_search(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, names: Sequence[str], options: Any,
               checkpoint: Any, verbose: Any) -> Found:
    """Searches until a limit is reached or Ctrl-C is pressed.

    Raises:
        ValueError: Data or options that do not fit; no formula has a finite loss.
    """
    path = None if checkpoint is None else os.fsdecode(checkpoint)
    progress = _progress() if verbose else None
    found = _core.search(columns_of(X), column_of(y, "y"), weights, list(names), options, path, progress)
    if isinstance(progress, ProgressTable):  # whose constants are rounded now
        progress(found["seconds"], found["generations"], found["candidates"], found["front"], found["chosen"])
    return Found(**{**found, "front": [Formula(*formula) for formula in found["front"]]})
