"""The 100 formulas of the Feynman Symbolic Regression Database on random rows, against Python's math.

    feynman.py --command SR_JIT --data FOLDER [--rows N] [--only NAME]

FOLDER, or the environment variable SRJIT_DATA if set, holds feynman_equations.csv (S.-M. Udrescu, M. Tegmark, "AI
Feynman", Science Advances 2020). Every formula is evaluated by `sr-jit run` in f64 and f32 on rows drawn uniformly from
the ranges of its variables, and by Python in double on the same rows; f32 rows are rounded first. A value passes if it
is near Python's. Otherwise its rounding error is estimated for that row: every operation errs by
half an ulp, or ULPS ulp for a function, and errors propagate by the first derivatives (N. Higham, "Accuracy and Stability
of Numerical Algorithms", 3.3). Both sides must be NaN or infinite at the same rows.

Exit status: 0 passed, 1 failed, 77 the data are missing. Uses Python's standard library alone.
"""

import argparse
import array
import csv
import functools
import math
import multiprocessing
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import time

ULPS = 4
# Relative tolerance of a value, irrespective of its conditioning.
NEAR = {"f64": 1e-13, "f32": 5e-7}
HALF_ULP = {"f64": 2.0**-53, "f32": 2.0**-24}
SMALLEST = {"f64": 2.0**-1074, "f32": 2.0**-149}
TYPECODE = {"f64": "d", "f32": "f"}
FUNCTIONS = {"ln": "log", "arcsin": "asin", "arccos": "acos", "arctan": "atan"}
NAN = float("nan")


class Rounded:
    """A number with a first-order bound of the difference between a kernel's and Python's value."""

    half_ulp = smallest = 0.0

    def __init__(self, value, error=0.0):
        self.value, self.error = value, error

    @classmethod
    def of(cls, number):
        """A literal of the formula, which the kernel rounds."""
        return number if isinstance(number, cls) else cls(float(number), cls.half_ulp * abs(number))

    @classmethod
    def result(cls, value, error, ulps=0.5):
        return cls(value, error + 2 * ulps * ((cls.half_ulp + HALF_ULP["f64"]) * abs(value) + cls.smallest))

    def __neg__(self):
        return Rounded(-self.value, self.error)

    def __add__(self, other):
        other = Rounded.of(other)
        return Rounded.result(self.value + other.value, self.error + other.error)

    def __sub__(self, other):
        return self + -Rounded.of(other)

    def __mul__(self, other):
        other = Rounded.of(other)
        spread = abs(self.value) * other.error + abs(other.value) * self.error + self.error * other.error
        return Rounded.result(self.value * other.value, spread)

    def __truediv__(self, other):
        other = Rounded.of(other)
        value = self.value / other.value
        return Rounded.result(value, (self.error + abs(value) * other.error) / max(abs(other.value) - other.error, 0.0))

    def __pow__(self, power):
        """Integer exponents only, as in the formulas: the kernel may multiply or call pow."""
        slope = abs(power * self.value ** (power - 1))
        return Rounded.result(self.value**power, slope * self.error, ULPS)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other):
        return -self + other

    def __rtruediv__(self, other):
        return Rounded.of(other) / self


SLOPES = {
    "sqrt": lambda x, r: 0.5 / r,
    "exp": lambda x, r: r,
    "ln": lambda x, r: 1 / x,
    "sin": lambda x, r: math.cos(x),
    "cos": lambda x, r: math.sin(x),
    "tanh": lambda x, r: 1 - r * r,
    "arcsin": lambda x, r: 1 / math.sqrt(1 - x * x),
}


def plain(name):
    return getattr(math, FUNCTIONS.get(name, name))


def rounded(name):
    function, slope = plain(name), SLOPES[name]

    def apply(x):
        x = Rounded.of(x)
        value = function(x.value)
        return Rounded.result(value, abs(slope(x.value, value)) * x.error, ULPS)

    return apply


class Formula:
    """One row of the table: its name, its text, and the names and ranges of its variables in order."""

    def __init__(self, row):
        self.name, self.text = row["Filename"], row["Formula"]
        numbers = range(1, int(row["# variables"]) + 1)
        self.names = [row[f"v{i}_name"] for i in numbers]
        self.ranges = [(float(row[f"v{i}_low"]), float(row[f"v{i}_high"])) for i in numbers]

    def infix(self):
        """The formula in sr-jit's infix syntax, with variables x0, x1, ..."""

        def word(match):
            name = match[0]
            if name in self.names:
                return f"x{self.names.index(name)}"
            return FUNCTIONS.get(name, name)

        return re.sub(r"[A-Za-z_]\w*", word, self.text).replace("**", "^")

    @functools.cache
    def function(self, over):
        """The formula as a Python function of one row; `over` maps names to functions."""
        names = dict(zip(self.names, (f"v{i}" for i in range(len(self.names)))))
        text = re.sub(r"[A-Za-z_]\w*", lambda match: names.get(match[0], match[0]), self.text)
        scope = {name: over(name) for name in SLOPES} | {"pi": math.pi}
        return eval(f"lambda {', '.join(names.values())}: {text}", scope)

    def values(self, columns):
        """Python's values of all rows; NaN where math raises a domain error."""
        function = self.function(plain)

        def value(*row):
            try:
                return function(*row)
            except (ValueError, ZeroDivisionError):
                return NAN

        try:
            return list(map(function, *columns))
        except (ValueError, ZeroDivisionError):
            return list(map(value, *columns))

    def error(self, row, precision):
        """The rounding error bound of one row; infinite if the value is undefined within that error."""
        Rounded.half_ulp, Rounded.smallest = HALF_ULP[precision], SMALLEST[precision]
        try:
            return Rounded.of(self.function(rounded)(*map(Rounded, row))).error
        except (ValueError, ZeroDivisionError):
            return math.inf


def write_npy(path, columns, code):
    """A matrix of rows x columns in Fortran order; format 1.0."""
    shape = f"({len(columns[0])}, {len(columns)})"
    header = f"{{'descr': '<f{array.array(code).itemsize}', 'fortran_order': True, 'shape': {shape}, }}"
    header = header.ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        for column in columns:
            column.tofile(file)


def read_npy(path, code, rows):
    """The one column of a matrix that sr-jit wrote."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<H", content, 8)
    header = content[10 : 10 + length].decode()
    if content[:6] != b"\x93NUMPY" or f"({rows}, 1)" not in header or f"'<f{array.array(code).itemsize}'" not in header:
        raise ValueError(f"not the matrix that was asked for: {header}")
    return array.array(code, content[10 + length :])


def mismatches(formula, precision, columns, got, wanted):
    """Messages for rows outside of their error bound, and the number of rows outside of NEAR but within the bound."""
    near, found, explained = NEAR[precision], [], 0
    for row, (value, reference) in enumerate(zip(got, wanted)):
        if abs(value - reference) <= near * abs(reference) < math.inf:
            continue
        if value == reference or (math.isnan(value) and math.isnan(reference)):
            continue
        operands = [column[row] for column in columns]
        both_finite = math.isfinite(value) and math.isfinite(reference)
        if both_finite and abs(value - reference) <= formula.error(operands, precision):
            explained += 1
            continue
        what = f"{formula.name} {precision}: {formula.infix()} at {operands}"
        found.append(f"{what} is {value!r}, Python says {reference!r}")
    return found, explained


def check(task):
    """Both precisions of one formula: messages of failures, rows explained by conditioning, non-finite rows."""
    formula, command, rows = task
    failures, explained, non_finite = [], 0, 0
    generator = random.Random(formula.name)
    doubles = [
        array.array("d", [low + (high - low) * unit for unit in (generator.random() for _ in range(rows))])
        for low, high in formula.ranges
    ]
    with tempfile.TemporaryDirectory() as folder:
        data, out = pathlib.Path(folder, "rows.npy"), pathlib.Path(folder, "out.npy")
        for precision, code in TYPECODE.items():
            columns = [array.array(code, column) for column in doubles]
            write_npy(data, columns, code)
            words = [command, "run", "--precision", precision, "--threads", "1", "--data", data, "--out", out, "--"]
            done = subprocess.run([*words, formula.infix()], capture_output=True, text=True)
            if done.returncode != 0:
                failures.append(f"{formula.name} {precision}: exit status {done.returncode}: {done.stderr}")
                continue
            wanted = formula.values(columns)
            found, more = mismatches(formula, precision, columns, read_npy(out, code, rows), wanted)
            failures += found
            explained += more
            non_finite += sum(not math.isfinite(value) for value in wanted)
    return failures, explained, non_finite


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command", required=True)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=100_000 if os.environ.get("SRJIT_ACCEPTANCE") == "full" else 10_000)
    parser.add_argument("--only", help="the name of one formula")
    options = parser.parse_args()
    table = pathlib.Path(os.environ.get("SRJIT_DATA", options.data)) / "feynman_equations.csv"
    if not table.is_file():
        print(f"skipped: no file {table}")
        return 77
    started = time.monotonic()
    with open(table, newline="", encoding="utf-8-sig") as file:
        formulas = [Formula(row) for row in csv.DictReader(file) if row["Formula"]]
    if len(formulas) != 100:
        print(f"{table} has {len(formulas)} formulas, not 100")
        return 1
    tasks = [(f, options.command, options.rows) for f in formulas if options.only in (None, f.name)]
    with multiprocessing.Pool() as pool:
        results = pool.map(check, tasks, chunksize=1)
    failures = [failure for found, _, _ in results for failure in found]
    for failure in failures[:20]:
        print(failure)
    explained, non_finite = (sum(result[i] for result in results) for i in (1, 2))
    print(
        f"{len(tasks)} formulas x {options.rows} rows x f64 and f32: {len(failures)} wrong; {explained} values beyond"
        f" the plain tolerance but within the error of their roundings; {non_finite} non-finite;"
        f" {time.monotonic() - started:.1f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
