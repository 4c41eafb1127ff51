"""Checks that includes follow the order of the layers, and that no folder has a name that answers no question.

    check_layers.py ROOT --installed HEADER...

ROOT is a repository laid out as in docs/architecture.md; HEADERs (absolute, or relative to ROOT) are those that are
installed. Prints one line per violation, `file:line: message`, and exits with 1 if there is any.
"""

import argparse
import pathlib
import re
import sys

LAYERS = ["ir", "passes", "compiler", "runtime", "tools"]
TOP_LEVEL = {*LAYERS, "tests", "docs", "CMakeLists.txt", "CMakePresets.json", "README.md", "build", "dist", "python"}
# What a forge shows beside the code.
TOP_LEVEL |= {"LICENSE", "CONTRIBUTING.md", "SECURITY.md"}
FORBIDDEN_FOLDERS = {"common", "detail", "details", "helpers", "impl", "misc", "util", "utils"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# Libraries by the beginning of their headers' names, and the leftmost layer whose sources may include them.
LIBRARIES = {
    "LLVM targets": (re.compile(r"llvm/(MC|Target|ExecutionEngine|CodeGen)/"), "compiler"),
    "LLVM": (re.compile(r"(llvm|llvm-c)/"), "passes"),
    "oneTBB": (re.compile(r"(oneapi/)?tbb(/|\.h)"), "compiler"),
    # The assembler (nvJitLink) belongs to the compiler; the driver is the runtime's.
    "nvJitLink": (re.compile(r"(nvJitLink|nvPTXCompiler|nvrtc)\.h"), "compiler"),
    "CUDA": (re.compile(r"cu(da\w*)?\.h|cuda/|cuda_runtime\w*\.h"), "runtime"),
    "SQLite": (re.compile(r"sqlite3\.h"), "runtime"),
    "CLI11": (re.compile(r"CLI/"), "tools"),
    "libcsv": (re.compile(r"csv\.h"), "tools"),
    "Boost": (re.compile(r"boost/"), "tools"),
}
# What a program that uses the installed headers need not have or see.
FOREIGN = re.compile(r"(llvm|llvm-c|oneapi|tbb|fmt|nlohmann|boost|CLI)/|tbb\.h|cuda\w*\.h|nv\w+\.h|sqlite3\.h|csv\.h")


def includes_of(path):
    """Yields (line number, quoted, name) for every include of a file."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if found := INCLUDE.match(line):
            yield number, found[1] == '"', found[2]


def check_include(root, layer, quoted, name, path):
    """The message for one include of a source of `layer`, or None."""
    reach = LAYERS[: LAYERS.index(layer) + 1]
    if quoted:
        folder = name.split("/")[0]
        if folder not in LAYERS:
            return f'"{name}" does not begin with a layer: quoted includes are written from the root'
        if folder not in reach:
            return f'"{name}" is to the right of {layer}/, which may include {", ".join(reach)}'
        if not (root / name).is_file():
            return f'"{name}" does not exist'
        return None
    if name.startswith("srjit/"):
        return f"<{name}> is the installed spelling: inside the repository includes are quoted"
    for library, (pattern, first) in LIBRARIES.items():
        if pattern.match(name) and first not in reach:
            return f"<{name}> is of {library}, which is allowed from {first}/ on"
        if pattern.match(name):
            return None
    return None


def check(root, installed):
    """All violations under `root`, as text."""
    root = root.resolve()
    found = []
    for entry in sorted(root.iterdir()):
        if not entry.name.startswith(".") and entry.name not in TOP_LEVEL:
            found.append(f"{entry.name}:1: has no place at the top level")
    for folder in [*LAYERS, "tests", "docs"]:
        for path in sorted((root / folder).rglob("*")):
            if path.is_dir() and path.name in FORBIDDEN_FOLDERS:
                found.append(f"{path.relative_to(root)}:1: a folder named {path.name} does not say what is in it")
    for layer in LAYERS:
        for path in sorted((root / layer).rglob("*")):
            if path.suffix not in {".h", ".cpp", ".def"}:
                continue
            for number, quoted, name in includes_of(path):
                if message := check_include(root, layer, quoted, name, path):
                    found.append(f"{path.relative_to(root)}:{number}: {message}")
    installed = {(root / header).resolve() for header in installed}
    for path in sorted(installed):
        for number, quoted, name in includes_of(path):
            if not quoted and FOREIGN.match(name):
                found.append(f"{path.relative_to(root)}:{number}: <{name}> in an installed header")
            if quoted and (root / name).is_file() and (root / name).resolve() not in installed:
                found.append(f'{path.relative_to(root)}:{number}: "{name}" is not installed, but this header is')
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--installed", nargs="*", default=[])
    arguments = parser.parse_args()
    found = check(arguments.root, arguments.installed)
    print("\n".join(found) if found else "every include follows the order of the layers")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
