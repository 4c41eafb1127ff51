"""Where pip puts NVIDIA's libraries (the extras cu12 and cu13), for the library's search (compiler/nvptx/toolkit.h)."""

from __future__ import annotations

import importlib.util
import os


def name_nvidia_packages() -> None:
    """Sets ``SRJIT_PYTHON_PACKAGES``, unless it is set, to the folders of packages that have a folder ``nvidia``."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except ValueError:  # a module of this name that was not imported from anywhere
        return
    folders = [os.path.dirname(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    if folders:
        os.environ.setdefault("SRJIT_PYTHON_PACKAGES", os.pathsep.join(folders))
