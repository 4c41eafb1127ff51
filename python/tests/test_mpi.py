"""Ranks of MPI: programs of python/tests/mpi, which mpirun runs on the CPU, and the example of docs/scaling.md."""

import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from test_docs import blocks_of

FOLDER = pathlib.Path(__file__).parent / "mpi"

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun")
pytest.importorskip("mpi4py")


def mpirun(ranks, *words):
    """Runs Python on these ranks. A job that hangs fails."""
    command = ["mpirun", "-n", str(ranks), sys.executable, *map(str, words)]
    # Of Open MPI: root may run it, and more ranks than cores.
    settings = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    return subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("ranks, root", [(1, 0), (2, 0), (3, 2), (4, 0)])
def test_bits_are_those_of_one_engine(ranks, root):
    done = mpirun(ranks, FOLDER / "same_bits.py", root)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"same bits on {ranks} ranks\n"


@pytest.mark.parametrize("case", ["arguments", "other_rank", "device"])
def test_exceptions_leave_the_ranks_serving(case):
    done = mpirun(3, FOLDER / "wrong.py", case)
    assert done.returncode == 0 and done.stderr == "", done.stderr


@pytest.mark.parametrize("case, words", [
    ("caught", ["RuntimeError: a mistake in the search"]),
    ("raised", ["RuntimeError: a mistake on a rank", "srjit.mpi: rank 1 on ", "raised an exception, which ends the job"]),
    ("left", ["srjit.mpi: rank 1 on ", "ended while the engine was open, which ends the job"]),
    ("killed", ["rank 1", "signal 9"]),
])
def test_a_rank_that_dies_ends_the_job_with_a_message(case, words):
    done = mpirun(3, FOLDER / "wrong.py", case)
    assert done.returncode != 0
    for word in words:
        assert word in done.stderr, done.stderr


def test_an_engine_outside_of_a_block_does_not_hang():
    assert mpirun(3, FOLDER / "wrong.py", "open", "left").returncode == 0
    done = mpirun(3, FOLDER / "wrong.py", "open", "raised")
    assert done.returncode != 0 and "rank 0 on " in done.stderr


@pytest.mark.parametrize("script, words", [("search.py", "p0*x0^p1/x1 [2.5"), ("islands.py", "x0^2*")])
def test_examples_of_the_page(script, words, tmp_path):
    code = next(code for _, code in blocks_of("docs/scaling.md") if code.startswith(f"# mpirun -n 4 python {script}\n"))
    (tmp_path / script).write_text(code)
    done = mpirun(4, tmp_path / script)
    assert done.returncode == 0, done.stderr
    assert words in done.stdout


def test_populations_are_divided_by_cost():
    from srjit._ranks import bounds_by_cost

    random = np.random.default_rng(0)
    for expressions in 0, 1, 2, 3, 1000:
        tokens = random.integers(0, 50, expressions)
        offsets = np.concatenate([[0], np.cumsum(tokens)]).astype(np.int64)
        for ranks in 1, 2, 3, 7:
            bounds = bounds_by_cost(offsets, ranks)
            assert len(bounds) == ranks + 1 and bounds[0] == 0 and bounds[-1] == expressions and (np.diff(bounds) >= 0).all()
            costs = np.diff(offsets[bounds] + bounds)
            assert costs.max() <= (offsets[-1] + expressions) / ranks + (tokens.max(initial=0) + 1)


class Node:
    """A rank of a host, among ranks that may use these processors."""

    def __init__(self, rank, processors):
        self.rank = rank
        self._processors = processors

    def allgather(self, _):
        return self._processors


def test_a_rank_takes_the_gpu_of_its_number_on_the_host(monkeypatch):
    from srjit import _ranks

    class Driver:
        def cuInit(self, _):
            return 0

        def cuDeviceGetCount(self, count):
            count._obj.value = 2
            return 0

    monkeypatch.setattr(_ranks.ctypes, "CDLL", lambda _: Driver())
    assert [_ranks.device_of(Node(rank, [])) for rank in range(4)] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    monkeypatch.setattr(Driver, "cuInit", lambda *_: 100)
    assert _ranks.device_of(Node(1, [])) == "auto"


def test_ranks_divide_the_processors_that_they_share(monkeypatch):
    from srjit import _ranks

    monkeypatch.setattr(_ranks.os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert _ranks.threads_of(Node(0, [{0, 1, 2, 3}])) == 4
    assert _ranks.threads_of(Node(0, [{0, 1, 2, 3}] * 2)) == 2
    assert _ranks.threads_of(Node(0, [{0, 1, 2, 3}, {4, 5, 6, 7}])) == 4
    assert _ranks.threads_of(Node(0, [{0, 1, 2, 3}] * 8)) == 1
    monkeypatch.setattr(_ranks.os, "sched_getaffinity", lambda _: set(range(12)))
    assert _ranks.threads_of(Node(0, [set(range(12))] * 6)) == 2
