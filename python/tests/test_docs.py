"""The examples of the pages, in the order of the page, in one namespace; and those of the docstrings."""

import pathlib
import re
import runpy

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(page):
    text = (ROOT / page).read_text()
    return [(text[:found.start(1)].count("\n"), found[1]) for found in BLOCK.finditer(text)]


@pytest.mark.parametrize("page, needs", [
    ("README.md", ["pandas", "sklearn"]),
    ("docs/tutorial.md", ["pandas", "sklearn", "sympy", "matplotlib"]),
    ("docs/coming-from.md", ["pandas", "sympy", "sklearn", "deap", "gplearn", "bingo", "pyoperon"]),
    ("docs/python.md", ["pandas", "sympy", "sklearn", "torch"]),
    ("python/README.md", []),
])
def test_examples_run(page, needs, monkeypatch, tmp_path):
    for name in needs:
        pytest.importorskip(name)
    blocks = blocks_of(page)
    assert blocks
    monkeypatch.chdir(ROOT)
    namespace = {"__name__": page, "folder": tmp_path}
    for line, code in blocks:
        exec(compile("\n" * line + code, ROOT / page, "exec"), namespace)


def test_the_python_example_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    runpy.run_path("docs/examples/planets.py")
    assert "p0*x0^p1" in capsys.readouterr().out


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
