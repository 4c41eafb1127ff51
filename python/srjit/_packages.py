"""Packages of others: what adapters are for, and where pip puts NVIDIA's libraries."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator


def name_nvidia_packages() -> None:
    """Sets ``SRJIT_PYTHON_PACKAGES``, unless it is set, to the folders of packages that have a folder ``nvidia``.

    The extras cu12 and cu13 bring them, and the library's search (compiler/kernels/assembler.h) looks there.
    """
    try:
        spec = importlib.util.find_spec("nvidia")
    except ValueError:  # a module of this name that was not imported from anywhere
        return
    folders = [os.path.dirname(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    if folders:
        os.environ.setdefault("SRJIT_PYTHON_PACKAGES", os.pathsep.join(folders))


@contextlib.contextmanager
def needs(package: str, *modules: str) -> Iterator[None]:
    """Around imports of `modules` (by default of its name) of what pip installs as ``package``: an error says so."""
    try:
        yield
    except ModuleNotFoundError as problem:
        if problem.name not in (modules or (package,)):
            raise
        raise ModuleNotFoundError(f"srjit needs {package} for this: pip install {package}", name=problem.name) from problem
