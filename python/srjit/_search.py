"""The search for formulas, without scikit-learn: options, and what a search gives."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from . import _core
from ._arrays import column_of, columns_of, text_of, whole
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


class Progress(NamedTuple):
    """How far a search is."""

    seconds: float
    generations: int
    candidates: int  #: individuals whose loss was computed
    front: list[Formula]  #: so far; constants are not rounded yet
    chosen: Formula  #: that of `front` which would be chosen now


def choice_text(value: Any, name: str = "choose") -> str:
    """What the C++ search chooses by. A function of the caller is asked afterwards, so it is as good as the default."""
    if callable(value):
        return "evidence"
    if not isinstance(value, str):
        return str(whole(value, name, 1))
    if value not in ("evidence", "balance", "loss"):
        raise InvalidError(f"{name} is {value!r}, expected 'evidence', 'balance', 'loss', a complexity or a function of the "
                           "formulas")
    return str(value)


def flag(value: Any, name: str) -> bool:
    """`value`, which is to be a truth value, or a number such as 0 and 1."""
    if not isinstance(value, (bool, np.bool_, int, np.integer)):
        raise TypeError(f"{name} is of type {type(value).__name__}, expected bool")
    return bool(value)


def _number(value: Any, name: str) -> str:
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        raise TypeError(f"{name} is of type {type(value).__name__}, expected a number")
    if name == "seconds" and not value > 0:
        raise InvalidError(f"seconds is {value}, expected more than 0")
    return repr(float(value))


def _texts(value: Any, name: str) -> list[str]:
    """The texts of a text, of several, or of a mapping from names to words."""
    if isinstance(value, str):
        return [text_of(value, name)]
    if isinstance(value, Mapping):
        return [f"{text_of(key, f'a key of {name}')}:{of}" for key, of in value.items() if of is not None]
    if not isinstance(value, Iterable) or isinstance(value, bytes):
        raise TypeError(f"{name} is of type {type(value).__name__}, expected a text or a list of texts")
    return [text_of(text, f"a part of {name}") for text in value]


def _formulas(value: Any, name: str) -> list[str]:
    if isinstance(value, Mapping):
        raise TypeError(f"{name} is of type {type(value).__name__}, expected a text or a list of texts")
    return _texts(value, name)


def _list(value: Any, name: str) -> str:
    return ",".join(word for text in _texts(value, name) for word in text.replace(",", " ").split())


def _pairs(value: Any, name: str) -> str:
    return ",".join(_texts(value, name))


def _bounds(value: Any, name: str) -> str:
    if isinstance(value, Mapping):
        value = {key: ":".join("" if side is None else _number(side, name) for side in pair) for key, pair in value.items()}
    return _list(value, name)


def _flag(value: Any, name: str) -> str:
    return str(flag(value, name)).lower()


# By keyword: the option of `sr-jit search`, and what makes a value a word, or several: a function of value and keyword, or
# the least of a whole number.
_OPTIONS: dict[str, tuple[str, Any]] = {
    "operators": ("--ops", _list),
    "nesting": ("--nesting", _list),
    "links": ("--links", _list),
    "loss": ("--loss", text_of),
    "choose": ("--choose", choice_text),
    "self_nesting": ("--self-nesting", _flag),
    "guesses": ("--guess", _formulas),
    "define": ("--define", _formulas),
    "template": ("--template", text_of),
    "bounds": ("--bounds", _bounds),
    "units": ("--units", _pairs),
    "unit_constants": ("--unit-constants", text_of),
    "unit_rule": ("--unit-rule", text_of),
    "max_columns": ("--max-columns", 1),
    "monotone": ("--monotone", _pairs),
    "codata": ("--codata", _flag),
    "top": ("--top", 1),
    "max_complexity": ("--max-complexity", 1),
    "variable_complexity": ("--variable-complexity", 1),
    "constant_complexity": ("--constant-complexity", 1),
    "seconds": ("--seconds", _number),
    "generations": ("--generations", 1),
    "tol": ("--enough", _number),
    "seed": ("--seed", lambda value, _: str(value)),
    "held_out": ("--held-out", _number),
    "islands": ("--islands", 2),
    "population": ("--population", 2),
    "offspring": ("--offspring", 1),
    "rows": ("--rows", 1),
    "device": ("--device", text_of),
    "precision": ("--precision", text_of),
    "threads": ("--threads", 0),
}


def options_of(seconds: float | None, **given: Any) -> list[str]:
    """Words of `sr-jit search` for these options. Those that are None keep its defaults; without `seconds` there is no limit.

    Raises:
        ValueError, TypeError: A value whose type its option does not take.
    """
    words = ["--seconds=0"] if seconds is None else []
    for name, value in {"seconds": seconds, **given}.items():
        if value is not None:
            option, word_of = _OPTIONS[name]
            word = str(whole(value, name, word_of)) if isinstance(word_of, int) else word_of(value, name)
            words += [f"{option}={each}" for each in ([word] if isinstance(word, str) else word)]
    return words


class ProgressLines:
    """Writes a line to the standard error when the formula that would be chosen is another one."""

    def __init__(self) -> None:
        self._shown = ""

    def __call__(self, progress: Progress) -> None:
        best = progress.chosen
        if best.expression == self._shown:
            return
        self._shown = best.expression
        print(f"srjit: {progress.seconds:.1f} s, {progress.generations} generations: loss {best.loss:.4g}, "
              f"complexity {best.complexity}: {best.expression}", file=sys.stderr, flush=True)


class ProgressTable:
    """Shows the time, trees per second and the front so far in a notebook, in one place that changes."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html = HTML
        self._place = display(HTML(""), display_id=True)

    def __call__(self, progress: Progress) -> None:
        rows = "".join(f"<tr><td>{one.complexity}</td><td>{one.loss:.4g}</td><td style='text-align: left'>"
                       f"<code>{escape(one.expression)}</code>{' (chosen)' if one == progress.chosen else ''}</td></tr>"
                       for one in progress.front)
        speed = progress.candidates / max(progress.seconds, 1e-3)
        self._place.update(self._html(
            f"<p>{progress.seconds:.1f} s, {progress.generations} generations, {speed:.3g} trees per second</p><table>"
            f"<tr><th>complexity</th><th>loss</th><th style='text-align: left'>formula</th></tr>{rows}</table>"))


def progress_view() -> ProgressLines | ProgressTable:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return ProgressTable() if shell is not None and "IPKernelApp" in shell.config else ProgressLines()


def write_report(path: Any, X: np.ndarray, y: np.ndarray, names: Sequence[str], front: Sequence[Formula], chosen: Formula,
                 *words: Any) -> None:
    """Writes the page of a search; `words` are the names of target and loss, the command, and a list of facts."""
    rows = [{**one._asdict(), "formula": one.expression, "chosen": one is chosen} for one in front]
    finite = [{key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
              for row in rows]
    _core.write_report(os.fsdecode(path), columns_of(X), column_of(y, "y"), list(names), json.dumps(finite), *words)


def run_search(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, names: Sequence[str], options: Sequence[str],
               begun: float, checkpoint: Any, tell: Sequence[Callable[[Progress], Any]], last: str | None) -> SimpleNamespace:
    """Searches until a limit is reached, Ctrl-C is pressed, or a function of `tell` gives a true value.

    Args:
        begun: When its time began, of time.monotonic().
        last: `state` of the search to go on with, or an empty text; None: the result needs none.

    Raises:
        ValueError: Data or options that do not fit; no formula has a finite loss.
    """
    def tell_all(*so_far: Any) -> bool:
        *numbers, front, chosen = so_far
        progress = Progress(*numbers, [Formula(*formula) for formula in front], Formula(*chosen))
        return any([bool(each(progress)) for each in tell])

    path = None if checkpoint is None else os.fsdecode(checkpoint)
    try:
        found = _core.search(columns_of(X), column_of(y, "y"), weights, list(names), list(options), begun, path,
                             tell_all if tell else None, last)
    except InvalidError as problem:
        for name, (option, _) in _OPTIONS.items():
            if str(problem).startswith(f"{option}:"):  # the message names the command's option
                raise InvalidError(name + str(problem)[len(option):], problem.code, problem.where) from None
        raise
    front = [Formula(*formula) for formula in found["front"]]
    for each in tell:
        if isinstance(each, ProgressTable):  # the constants are rounded now
            each(Progress(found["seconds"], found["generations"], found["candidates"], front, front[found["chosen"]]))
    return SimpleNamespace(**{**found, "front": front})
