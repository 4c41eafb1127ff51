"""The examples of the pages, in the order of the page, in one namespace; and the reference."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(page):
    text = (ROOT / page).read_text()
    return [(text[:found.start(1)].count("\n"), found[1]) for found in BLOCK.finditer(text)]


@pytest.mark.parametrize("page, needs", [
    ("README.md", ["pandas", "sympy", "sklearn", "deap", "gplearn"]),
    ("docs/python.md", ["pandas", "sympy", "sklearn", "deap", "gplearn", "torch", "bingo", "pyoperon"]),
    ("python/README.md", []),
])
def test_examples_run(page, needs):
    for name in needs:
        pytest.importorskip(name)
    blocks = blocks_of(page)
    assert blocks
    namespace = {"__name__": page}
    for line, code in blocks:
        exec(compile("\n" * line + code, ROOT / page, "exec"), namespace)


def test_the_reference_is_that_of_the_docstrings():
    for name in ("torch", "sklearn", "deap", "gplearn", "bingo", "pyoperon", "mpi4py"):
        pytest.importorskip(name)
    if shutil.which("mpirun") is None:
        pytest.skip("no MPI")
    made = subprocess.run([sys.executable, ROOT / "python" / "docs" / "reference.py"], capture_output=True, text=True, check=True)
    assert made.stdout == (ROOT / "docs" / "python-reference.md").read_text(), (
        "run: python python/docs/reference.py > docs/python-reference.md")


def test_doctests():
    import doctest

    import srjit
    import srjit._expressions
    import srjit._lambdify

    pytest.importorskip("sympy")
    modules = [srjit, srjit._expressions, srjit._lambdify]
    if pytest.importorskip("sklearn"):
        import srjit.sklearn

        modules.append(srjit.sklearn)
    for module in modules:
        assert doctest.testmod(module).failed == 0, module.__name__
