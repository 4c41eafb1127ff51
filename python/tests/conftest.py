"""What tests of the package have in common. SRJIT_TEST_DEVICE names another device than the CPU."""

import os
import sys

import numpy as np
import pytest
import srjit

DEVICE = os.environ.get("SRJIT_TEST_DEVICE", "cpu")


def command(name):
    """The path of a command of the package: beside the interpreter, or in `bin` of a folder of its own."""
    folders = os.path.dirname(sys.executable), os.path.join(os.path.dirname(os.path.dirname(srjit.__file__)), "bin")
    return next(path for path in (os.path.join(folder, name) for folder in folders) if os.path.exists(path))


@pytest.fixture(scope="session")
def engine():
    return srjit.Engine(DEVICE, precision="f64")


@pytest.fixture(scope="session")
def table():
    """Rows of three variables and a target, none near a pole."""
    random = np.random.default_rng(1)
    X = random.uniform(0.5, 2.0, (1000, 3))
    return X, X[:, 0] ** 2 + np.sin(X[:, 1]) * X[:, 2]


@pytest.fixture(scope="session")
def data(engine, table):
    return engine.upload(*table)
