"""The include rules: the layers from left to right, and the rooms of those that have some.

A layer may include itself and the layers to its left. A room is a folder of a layer. It may include the rooms that its
row lists, of its own layer and of layers to its left, the installed headers in the root of its layer, and all layers to
its left that have no rooms. The row of a room comes after the rows of the rooms that it includes, so there is no cycle.
Sources in the root of a layer may include every room of the layer; no room may include what FACADE has, but the rooms
that it lists there. Of a room in DOORS other rooms and layers include only the headers that it lists.
Tests in tests/<layer>/<room>/ may include what the room may include, and the rooms that TESTED_WITH adds.
"""

LAYERS = ["ir", "passes", "compiler", "runtime", "tools"]

# What each layer and room has: the words of docs/rooms.svg.
WORDS = {
    "ir": "expressions, operators, losses, errors",
    "passes": "graphs and their rewriting",
    "compiler": "from graphs to machine code",
    "compiler/loader": "shared libraries opened at run time",
    "compiler/lowering": "operators to LLVM IR, how long their code is",
    "compiler/target": "NVIDIA's architectures",
    "compiler/nvptx": "PTX of straight-line kernels",
    "compiler/interpreter": "the GPU's interpreter",
    "compiler/host": "code and programs for the CPU",
    "compiler/sass": "NVIDIA's machine instructions, cubins",
    "compiler/direct": "machine code without LLVM",
    "compiler/kernels": "loadable images and their keys",
    "runtime": "devices, data, evaluations",
    "runtime/platform": "memory, clocks, processes, the trace",
    "runtime/cuda": "the driver, owners of its objects",
    "runtime/cache": "images in memory and on disk",
    "runtime/evaluation": "what is evaluated, on any device",
    "runtime/fit": "fitting of parameters: one expression's iteration, starts",
    "runtime/host": "evaluation on the CPU, without CUDA",
    "runtime/gpu": "an engine's streams and data",
    "runtime/code": "code for a GPU: made, found, loaded; its costs",
    "runtime/launch": "evaluations on a GPU: plan, memory, kernels",
    "runtime/subtrees": "cached values of subtrees",
    "runtime/tiers": "choice of the tier, background compilation",
    "runtime/pool": "evaluation on several GPUs at once, choice of devices",
    "runtime/engine": "calls: checks and phases; losses, gradients, fits",
    "runtime/c_api": "the interface for C and other languages",
    "tools": "the command, benchmarks, set-up",
}

# Room: the rooms that it may include.
ROOMS = {
    "compiler/loader": [],
    "compiler/lowering": [],
    "compiler/target": [],
    "compiler/nvptx": ["compiler/target", "compiler/lowering"],
    "compiler/interpreter": ["compiler/target", "compiler/lowering", "compiler/nvptx"],
    "compiler/host": ["compiler/loader", "compiler/lowering"],
    "compiler/sass": ["compiler/target"],
    "compiler/direct": ["compiler/target", "compiler/sass"],
    "compiler/kernels": ["compiler/loader", "compiler/lowering", "compiler/nvptx", "compiler/interpreter", "compiler/host"],
    "runtime/platform": [],
    "runtime/cuda": ["compiler/loader", "compiler/target", "compiler/nvptx", "compiler/kernels", "runtime/platform"],
    "runtime/cache": ["compiler/kernels", "runtime/platform"],
    "runtime/evaluation": ["compiler/lowering", "runtime/platform"],
    "runtime/fit": [],
    "runtime/host": ["compiler/lowering", "compiler/host", "compiler/kernels", "runtime/platform", "runtime/cache",
                     "runtime/evaluation"],
    "runtime/gpu": ["runtime/platform", "runtime/cuda", "runtime/evaluation"],
    "runtime/code": ["compiler/target", "compiler/lowering", "compiler/nvptx", "compiler/interpreter", "compiler/sass",
                     "compiler/direct", "compiler/kernels", "runtime/platform", "runtime/cuda", "runtime/cache", "runtime/evaluation",
                     "runtime/gpu"],
    "runtime/launch": ["compiler/nvptx", "compiler/interpreter", "compiler/direct", "runtime/platform", "runtime/cuda",
                     "runtime/evaluation", "runtime/gpu", "runtime/code"],
    "runtime/subtrees": ["compiler/lowering", "compiler/direct", "runtime/platform", "runtime/evaluation", "runtime/code", "runtime/launch"],
    "runtime/tiers": ["compiler/direct", "compiler/kernels", "runtime/platform", "runtime/cuda", "runtime/cache", "runtime/evaluation",
                     "runtime/host", "runtime/gpu", "runtime/code", "runtime/launch", "runtime/subtrees"],
    "runtime/pool": ["compiler/kernels", "runtime/platform", "runtime/cuda", "runtime/evaluation", "runtime/host", "runtime/tiers"],
    "runtime/engine": ["compiler/kernels", "runtime/platform", "runtime/cuda", "runtime/evaluation", "runtime/fit", "runtime/pool"],
    "runtime/c_api": ["runtime/platform"],
}

# The one or few headers of a room that others include.
DOORS = {
    "compiler/direct": ["emitter.h"],
    "runtime/subtrees": ["kept.h"],
}

# Headers of the runtime that are over all its rooms, and the rooms that may include them nevertheless.
FACADE = {"runtime/engine.h": ["runtime/engine", "runtime/c_api"]}

# Tests of a room may include what the room may include, and these rooms: others of the layer that they compare it with,
# or whose code they run it on.
TESTED_WITH = {
    "compiler/interpreter": ["compiler/host", "compiler/kernels"],
    "compiler/sass": ["compiler/kernels", "compiler/nvptx"],
    "runtime/tiers": ["compiler/lowering"],
    "runtime/pool": ["runtime/cache", "runtime/code"],
    "runtime/c_api": ["runtime/cuda"],
}

# Folders of tests/ that a folder of another layer may include.
SHARED_TESTS = {"tests/generators": "tools/bench"}


def room_of(name):
    """The room of a file, "compiler/sass" of "compiler/sass/encode.h"; None in the root of a layer or without rooms."""
    room = "/".join(name.split("/")[:2])
    return room if room in ROOMS else None


def rooms_of(layer):
    """The rooms of a layer, in order."""
    return [room for room in ROOMS if room.startswith(layer + "/")]
