"""The recipe of docs/scaling.md, on a local cluster of two processes."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import srjit

from test_docs import blocks_of

distributed = pytest.importorskip("distributed")
RECIPE = next(code for _, code in blocks_of("docs/scaling.md") if "dask.distributed" in code)


def test_losses_are_those_of_one_engine_also_after_a_worker_died():
    recipe = {"__name__": "recipe"}
    exec(RECIPE, recipe)
    random = np.random.default_rng(3)
    population = srjit.parse([f"x0^{power} + {shift}" for power, shift in random.uniform(-2, 2, (200, 2))] + ["log(-x0)"])
    arrays = population.codes, population.constants, population.offsets
    one = srjit.Engine("cpu", "f64")
    expected = one.loss(arrays, one.upload(*recipe["load"]())).values
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        client.register_plugin(recipe["Evaluator"](recipe["load"]))
        for _ in range(2):
            assert recipe["evaluate"](client, *arrays).tobytes() == expected.tobytes()
        few = srjit.parse("x0")
        assert len(recipe["evaluate"](client, few.codes, few.constants, few.offsets)) == 1
        engines = client.run(lambda dask_worker: id(dask_worker.plugins["srjit"].data))
        assert len(engines) == 2 and engines == client.run(lambda dask_worker: id(dask_worker.plugins["srjit"].data))
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        assert recipe["evaluate"](client, *arrays).tobytes() == expected.tobytes()


def test_it_runs_as_a_script(tmp_path):
    (tmp_path / "recipe.py").write_text(RECIPE)
    done = subprocess.run([sys.executable, tmp_path / "recipe.py"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n"
