"""The package as it is installed."""

import importlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import pytest
import srjit

from conftest import command


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def test_version():
    assert srjit.__version__ == importlib.metadata.version("srjit")
    assert run(sys.executable, "-m", "srjit", "--version").stdout == f"sr-jit {srjit.__version__}\n"


def test_commands():
    for name in ("srjit", "sr-jit"):
        assert run(command(name), "parse", "x0*2", "--to", "postfix").stdout == "x0 2 *\n"
        assert run(command(name), "parse", "x0*").returncode == 1
        assert run(command(name), "nothing").returncode == 2


def test_importing_needs_no_gpu_and_no_other_package():
    code = "import srjit, sys; print(sorted({'sympy', 'pandas', 'torch', 'sklearn', 'deap', 'gplearn'} & set(sys.modules)))"
    assert run(sys.executable, "-c", code).stdout == "[]\n"


@pytest.mark.parametrize("what, module, package", [
    ("import srjit.bingo", "bingo", "bingo-nasa"), ("import srjit.gplearn", "gplearn", "gplearn"),
    ("import srjit.gplearn", "joblib", "gplearn"), ("import srjit.mpi", "mpi4py", "mpi4py"),
    ("import srjit.operon", "pyoperon", "pyoperon"),
    ("import srjit.sklearn", "sklearn", "scikit-learn"), ("import srjit.torch", "torch", "torch"),
    ("srjit.SymbolicRegressor", "sklearn", "scikit-learn"), ("srjit.to_sympy", "sympy", "sympy"),
])
def test_messages_say_what_to_install(what, module, package):
    code = textwrap.dedent(f"""
        import sys
        class Finder:
            def find_spec(self, name, *_):
                if name == {module!r}:
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        sys.meta_path.insert(0, Finder())
        import srjit
        try:
            {what}
        except ImportError as problem:
            print(problem)
        """)
    done = run(sys.executable, "-c", code)
    assert done.stdout == f"srjit needs {package} for this: pip install {package}\n", done.stderr


def test_libraries_that_pip_installs_are_found(tmp_path):
    library = tmp_path / "nvidia" / "cu13" / "lib" / "libnvJitLink.so.13"
    library.parent.mkdir(parents=True)
    library.write_text("no library")
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("CUDA_HOME", "CUDA_PATH", "SRJIT_CUDA_HOME", "SRJIT_PYTHON_PACKAGES")}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def folders(**more):
        code = "import os, srjit; print(os.environ['SRJIT_PYTHON_PACKAGES'])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment | more, timeout=60)
        return done.stdout.strip().split(os.pathsep)

    assert str(tmp_path) in folders()
    assert folders(SRJIT_PYTHON_PACKAGES="/elsewhere") == ["/elsewhere"]
    doctor = subprocess.run([sys.executable, "-m", "srjit", "doctor", "--json"], capture_output=True, text=True,
                            env=environment, timeout=60)
    found = next(finding for finding in json.loads(doctor.stdout) if finding["name"] == "nvJitLink")
    assert found["found"] or str(library) in found["what"]  # one that can be loaded may be installed elsewhere


def test_only_public_names_are_shown():
    shown = set(dir(srjit))
    assert shown == {*srjit.__all__, "SymbolicRegressor", *srjit._MODULES}
    assert not shown & {"TYPE_CHECKING", "Any", "annotations"}


def test_adapters_are_attributes():
    code = "import srjit; print(srjit.sklearn.ExpressionRegressor.__name__, hasattr(srjit, 'nothing'))"
    pytest.importorskip("sklearn")
    assert run(sys.executable, "-c", code).stdout == "ExpressionRegressor False\n"


def wheel_tags():
    text = importlib.metadata.distribution("srjit").read_text("WHEEL") or ""
    return re.findall("^Tag: (.*)$", text, re.MULTILINE)


def test_the_wheel_is_for_many_pythons_and_systems():
    tags = wheel_tags()
    if not any("manylinux" in tag for tag in tags):
        pytest.skip("not installed from a repaired wheel")
    for tag in tags:
        python, abi, platform = tag.split("-")
        assert (python, abi) == ("cp310", "abi3")
        assert tuple(map(int, re.match(r"manylinux_(\d+)_(\d+)_", platform).groups())) <= (2, 35)


def test_the_wheel_is_small():
    wheels = list((pathlib.Path(__file__).resolve().parents[2] / "build" / "wheel").glob("srjit-*.whl"))
    if not wheels:
        pytest.skip("no wheel was built here")
    newest = max(wheels, key=lambda wheel: wheel.stat().st_mtime)
    assert newest.stat().st_size <= 25_000_000  # docs/python.md has its size


def test_the_extension_shows_nothing_of_its_libraries():
    if shutil.which("nm") is None:
        pytest.skip("no nm")
    listed = run("nm", "-D", "--defined-only", srjit._core.__file__).stdout.split("\n")
    assert [line.split()[-1] for line in listed if line] == ["PyInit__core"]


def test_it_is_typed():
    folder = os.path.dirname(srjit.__file__)
    assert os.path.exists(os.path.join(folder, "py.typed")) and os.path.exists(os.path.join(folder, "_core.pyi"))


def test_everything_public_is_documented():
    things = {name: getattr(srjit, name) for name in srjit.__all__}
    for module in ("sklearn", "deap", "gplearn", "bingo", "operon", "torch"):
        try:
            loaded = importlib.import_module(f"srjit.{module}")
        except ImportError:
            continue
        things |= {f"{module}.{name}": thing for name, thing in vars(loaded).items()
                   if not name.startswith("_") and getattr(thing, "__module__", None) == loaded.__name__}
    missing = []
    for name, thing in things.items():
        if callable(thing) and not thing.__doc__:
            missing.append(name)
        if isinstance(thing, type):
            missing += [f"{name}.{part}" for part, value in vars(thing).items()
                        if not part.startswith("_") and (callable(value) or isinstance(value, property)) and not value.__doc__]
    missing = [name for name in missing if not name.endswith((".codes", ".constants", ".offsets"))]
    assert missing == []
