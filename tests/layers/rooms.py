"""The include rules: the layers from left to right, and the rooms of those that have some.

A layer may include itself and the layers to its left. A room is a folder of a layer. It may include the rooms that its
row lists, of its own layer and of layers to its left, the installed headers in the root of its layer, and all layers to
its left that have no rooms. The row of a room comes after the rows of the rooms that it includes, so there is no cycle.
Sources in the root of a layer, and headers there that are not installed, may include every room of the layer; no room may
include them.
"""

LAYERS = ["ir", "passes", "compiler", "runtime", "tools"]

# Room: what it owns, and what it may include.
ROOMS = {
    "compiler/loader": ("shared libraries that are opened at run time", []),
    "compiler/lowering": ("operators as LLVM IR, how long their code is, names of kernels, scopes of calls of LLVM", []),
    "compiler/target": ("the architectures of NVIDIA's GPUs", []),
    "compiler/nvptx": ("LLVM modules for GPUs, straight-line kernels, libdevice", ["compiler/target", "compiler/lowering"]),
    "compiler/interpreter": ("handlers, bytecode and the kernel of the GPU's interpreter",
                             ["compiler/target", "compiler/lowering", "compiler/nvptx"]),
    "compiler/host": ("machine code and programs for the processor", ["compiler/loader", "compiler/lowering"]),
    "compiler/sass": ("NVIDIA's machine instructions: table, encoder, listing, cubins", ["compiler/target"]),
    "compiler/direct": ("the direct tier's emitter: select, schedule, allocate", ["compiler/target", "compiler/sass"]),
    "compiler/kernels": ("loadable images and their keys, the assembler, how expressions share kernels",
                         ["compiler/loader", "compiler/lowering", "compiler/nvptx", "compiler/interpreter"]),
    "runtime/platform": ("memory, clocks, processes", []),
    "runtime/cuda": ("the driver, contexts, owners of its objects",
                     ["compiler/loader", "compiler/target", "compiler/nvptx", "compiler/kernels",
                      "runtime/platform"]),
    "runtime/cache": ("images of kernels in memory and on disk", ["compiler/kernels", "runtime/platform"]),
    "runtime/evaluation": ("what is evaluated: program, graphs, rows, losses; the interface of a device",
                           ["compiler/kernels", "runtime/platform"]),
    "runtime/host": ("evaluation on the processor",
                     ["compiler/host", "compiler/kernels", "runtime/evaluation"]),
    "runtime/gpu": ("an engine's streams and data on a GPU",
                    ["runtime/platform", "runtime/cuda", "runtime/evaluation"]),
    "runtime/code": ("code of programs for a GPU: made, found in the cache, loaded; what it costs",
                     ["compiler/target", "compiler/lowering", "compiler/nvptx", "compiler/interpreter", "compiler/sass",
                      "compiler/direct", "compiler/kernels", "runtime/platform", "runtime/cuda", "runtime/cache",
                      "runtime/evaluation", "runtime/gpu"]),
    "runtime/launch": ("evaluations on a GPU: plan, memory, kernels on the stream",
                       ["compiler/nvptx", "compiler/interpreter", "compiler/direct", "runtime/cuda",
                        "runtime/evaluation", "runtime/gpu", "runtime/code"]),
    "runtime/subtrees": ("values of subtrees that are kept in spare columns",
                         ["compiler/lowering", "compiler/direct", "runtime/platform", "runtime/evaluation",
                          "runtime/code", "runtime/launch"]),
    "runtime/tiers": ("which code serves a program, what is made in the background, the direct tier's self-test",
                      ["compiler/direct", "compiler/kernels", "runtime/platform", "runtime/cuda", "runtime/cache",
                       "runtime/evaluation", "runtime/host", "runtime/gpu", "runtime/code", "runtime/launch",
                       "runtime/subtrees"]),
}

# Folders of tests/ that other layers may include, with these layers.
SHARED_TESTS = {"tests/generators": ["tools/bench"]}


def room_of(name):
    """The room of a file, "compiler/sass" of "compiler/sass/encode.h"; None in the root of a layer or without rooms."""
    room = "/".join(name.split("/")[:2])
    return room if room in ROOMS else None


def rooms_of(layer):
    """The rooms of a layer, in order."""
    return [room for room in ROOMS if room.startswith(layer + "/")]
