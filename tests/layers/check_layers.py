"""Checks that includes follow the order of the layers and rooms and use the doors, and that files are well named.

    check_layers.py ROOT --installed HEADER...

ROOT is a repository laid out as in docs/internals/architecture.md; HEADERs (absolute, or relative to ROOT) are those that are
installed. Prints one line per violation, `file:line: message`, and exits with 1 if there is any.
"""

import argparse
import pathlib
import re
import sys

from rooms import DOORS, FACADE, LAYERS, ROOMS, SHARED_TESTS, TESTED_WITH, room_of, rooms_of
from violations import conclude

TOP_LEVEL = {*LAYERS, "tests", "docs", "CMakeLists.txt", "CMakePresets.json", "README.md", "build", "dist", "python"}
# Files that code hosting sites show.
TOP_LEVEL |= {"LICENSE", "CONTRIBUTING.md", "SECURITY.md"}
SOURCES = {".h", ".cpp", ".def"}
FORBIDDEN_FOLDERS = {"common", "detail", "details", "helpers", "impl", "misc", "util", "utils"}
PLAIN_GLOB = re.compile(r"\bfile\(\s*GLOB\s[^)]*\.cpp\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# Libraries by prefix of their headers' names, and the leftmost layer whose sources may include them.
LIBRARIES = {
    "LLVM targets": (re.compile(r"llvm/(MC|Target|ExecutionEngine|CodeGen)/"), "compiler"),
    "LLVM": (re.compile(r"(llvm|llvm-c)/"), "passes"),
    "oneTBB": (re.compile(r"(oneapi/)?tbb(/|\.h)"), "compiler"),
    # The assembler (nvJitLink) belongs to the compiler; the driver is the runtime's.
    "nvJitLink": (re.compile(r"(nvJitLink|nvPTXCompiler|nvrtc)\.h"), "compiler"),
    "CUDA": (re.compile(r"cu(da\w*)?\.h|cuda/|cuda_runtime\w*\.h"), "runtime"),
    "CLI11": (re.compile(r"CLI/"), "tools"),
    "libcsv": (re.compile(r"csv\.h"), "tools"),
    "Boost": (re.compile(r"boost/"), "tools"),
}
# Headers whose use is the task of one room.
ONE_ROOM = {
    "dlfcn.h": "compiler/loader",
    "llvm/BinaryFormat/ELF.h": "compiler/sass",
}
# What a program that uses the installed headers need not have or see.
FOREIGN = re.compile(r"(llvm|llvm-c|oneapi|tbb|fmt|nlohmann|boost|CLI)/|tbb\.h|cuda\w*\.h|nv\w+\.h|csv\.h")


def includes_of(path):
    """Yields (line number, quoted, name) for every include of a file."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if found := INCLUDE.match(line):
            yield number, found[1] == '"', found[2]


def check_quoted(root, layer, name, path, installed):
    """The message for one quoted include of a source of `layer`, or None."""
    folder = name.split("/")[0]
    reach = LAYERS[: LAYERS.index(layer) + 1]
    place = "/".join(path.relative_to(root).parts[:2])
    shared = next((users for tests, users in SHARED_TESTS.items() if name.startswith(tests + "/")), None)
    if shared is not None and place in shared:
        return None
    if folder not in LAYERS:
        return f'"{name}" does not begin with a layer: quoted includes are written from the root'
    if folder not in reach:
        return f'"{name}" is to the right of {layer}/, which may include {", ".join(reach)}'
    if not (root / name).is_file():
        return f'"{name}" does not exist'
    source = path.relative_to(root).as_posix()
    return check_room(root, source, name, installed) or check_door(source, name)


def check_room(root, source, name, installed):
    """The message for an include of `name`, which exists, in a source of a room that may not include its room, or None."""
    room, target, layer = room_of(source), room_of(name), name.split("/")[0]
    if room is None or room == target:
        return None
    if room not in FACADE.get(name, [room]):
        return f'"{name}" is for users of {layer}/: no room may include it but {FACADE[name]} (tests/layers/rooms.py)'
    allowed = ROOMS[room][1]
    if target is None:
        if not rooms_of(layer) or (root / name).resolve() in installed:
            return None
        return f'"{name}" lies in the root of {layer}/ and is not installed: it is no room\'s to include'
    if target in allowed:
        return None
    named = [other for other in allowed if other.startswith(layer + "/")]
    return f'"{name}" is not for {room}/, which may include {", ".join(named) or "no room"} of {layer}/'


def check_door(source, name):
    """The message for an include of a header that only its own room includes, or None."""
    target = room_of(name)
    doors = [f"{target}/{door}" for door in DOORS.get(target, [])]
    if not doors or target == room_of(source) or name in doors:
        return None
    return f'"{name}" is no door of {target}/, of which others include {", ".join(doors)} alone'


def check_library(layer, name):
    """The message for one include of another library in a source of `layer`, or None."""
    reach = LAYERS[: LAYERS.index(layer) + 1]
    if name.startswith("srjit/"):
        return f"<{name}> is the installed spelling: inside the repository includes are quoted"
    for library, (pattern, first) in LIBRARIES.items():
        if pattern.match(name):
            return None if first in reach else f"<{name}> is of {library}, which is allowed from {first}/ on"
    return None


def check_one_room(root, path, name):
    """The message for one include of a header that belongs to another room, or None."""
    room = ONE_ROOM.get(name)
    if room is None or room_of(str(path.relative_to(root))) == room:
        return None
    return f"<{name}> is included by {room}/ alone"


def unused_rows(root):
    """Rooms that a room or its tests may include but do not, and doors that nobody includes."""
    included = {}
    for layer in LAYERS:
        for path in (root / layer).rglob("*"):
            if path.suffix in SOURCES:
                room = room_of(path.relative_to(root).as_posix())
                included.setdefault(room, set()).update(name for _, quoted, name in includes_of(path) if quoted)
    for room, (_, allowed) in ROOMS.items():
        for other in sorted(set(allowed) - {room_of(name) for name in included.get(room, ())}):
            yield f"tests/layers/rooms.py:1: {room} may include {other}, and does not"
    for room, doors in DOORS.items():
        others = set().union(*(names for other, names in included.items() if other != room))
        for door in sorted({f"{room}/{door}" for door in doors} - others):
            yield f"tests/layers/rooms.py:1: {door} is a door that nobody includes"
    for room, others in TESTED_WITH.items():
        used = {target for _, _, _, target in includes_of_tests(root, room)} - set(ROOMS[room][1])
        for other in sorted(set(others) - used):
            yield f"tests/layers/rooms.py:1: tests of {room} are in TESTED_WITH for {other}, and need not be"


def check_names(root):
    """Files whose name repeats their folder, folders of a layer that are no room, and rooms that include later ones."""
    for number, (room, (_, allowed)) in enumerate(ROOMS.items()):
        for later in set(allowed) & set(list(ROOMS)[number:]):
            yield f"tests/layers/rooms.py:1: {room} includes {later}, which is not named before it"
    for folder in [*LAYERS, "tests"]:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root)
            if path.suffix not in SOURCES:
                continue
            if rooms_of(folder) and len(name.parts) > 2 and room_of(str(name)) is None:
                yield f"{name}:1: {name.parent} is no room (tests/layers/rooms.py)"
            words = path.stem.split("_")
            if len(name.parts) > 2 and {name.parent.name, name.parent.name.rstrip("s")} & {*words, path.stem}:
                yield f"{name}:1: the name repeats that of its folder"


def included_through_tests(root, name):
    """`name`, and what it includes if it is a header of the tests, and so on."""
    reached, waiting = set(), [name]
    while waiting:
        each = waiting.pop()
        if each in reached:
            continue
        reached.add(each)
        if each.startswith("tests/") and (root / each).is_file():
            waiting += [other for _, quoted, other in includes_of(root / each) if quoted]
    return reached


def check_tests(root):
    """Tests of a layer include neither what is to the right of it nor its tests, also through headers that tests share."""
    for layer in LAYERS:
        later = LAYERS[LAYERS.index(layer) + 1:]
        for path in sorted((root / "tests" / layer).rglob("*")):
            if path.suffix not in SOURCES:
                continue
            for number, quoted, name in includes_of(path):
                for reached in sorted(included_through_tests(root, name)) if quoted else []:
                    if reached.removeprefix("tests/").split("/")[0] in later:
                        through = "" if reached == name else f', which "{name}" includes,'
                        yield f'{path.relative_to(root)}:{number}: "{reached}"{through} is to the right of tests of {layer}/'


def includes_of_tests(root, room):
    """Yields (path, line number, name, its room) for every quoted include of another room in tests of a room."""
    for path in sorted((root / "tests" / room).rglob("*")):
        for number, quoted, name in includes_of(path) if path.suffix in SOURCES else []:
            if quoted and room_of(name) not in (None, room):
                yield path, number, name, room_of(name)


def check_tests_of_rooms(root):
    """Tests of a room include what the room may include, and the rooms of TESTED_WITH."""
    for room, (_, allowed) in ROOMS.items():
        for path, number, name, target in includes_of_tests(root, room):
            if target not in [*allowed, *TESTED_WITH.get(room, [])]:
                yield f'{path.relative_to(root)}:{number}: "{name}" is not for tests of {room}/ (ROOMS, TESTED_WITH of rooms.py)'


def check_table(root):
    """Headers that the runtime's users include, and all that those include, do not read the operator table."""
    for start in sorted((root / "runtime").glob("*.h")):
        seen, waiting = set(), [start.relative_to(root).as_posix()]
        while waiting:
            name = waiting.pop()
            if name in seen or not (root / name).is_file():
                continue
            seen.add(name)
            if name == "ir/ops.def":
                yield f"{start.relative_to(root)}:1: reads ir/ops.def through its includes: a header needs ir/op.h at most"
                break
            waiting += [other for _, quoted, other in includes_of(root / name) if quoted]


def check_targets(root):
    """Lists of sources that leave out folders, and folders of tests that no CMakeLists.txt adds."""
    paths = [root / "CMakeLists.txt", *(path for folder in [*LAYERS, "tests"] for path in sorted((root / folder).rglob("*")))]
    lists = {path: path.read_text(encoding="utf-8") for path in paths
             if path.is_file() and (path.name == "CMakeLists.txt" or path.suffix == ".cmake")}
    for path, text in lists.items():
        for found in PLAIN_GLOB.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield f"{path.relative_to(root)}:{line}: a source in a folder below would be in no target: use GLOB_RECURSE"
    added = {folder for text in lists.values() for folder in re.findall(r"add_subdirectory\((?:tests/)?(\w+)\)", text)}
    for folder in sorted(path for path in (root / "tests").glob("*") if path.name not in {*LAYERS, *added}):
        if next(folder.rglob("*.cpp"), None):
            yield f"{folder.relative_to(root)}:1: has sources, but no CMakeLists.txt adds it"


def check(root, installed):
    """All violations under `root`, as text."""
    root = root.resolve()
    installed = {(root / header).resolve() for header in installed}
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
            if path.suffix not in SOURCES:
                continue
            for number, quoted, name in includes_of(path):
                message = check_quoted(root, layer, name, path, installed) if quoted else check_library(layer, name)
                message = message or check_one_room(root, path, name)
                if message:
                    found.append(f"{path.relative_to(root)}:{number}: {message}")
    found += [*check_names(root), *check_tests(root), *check_tests_of_rooms(root), *check_table(root), *check_targets(root)]
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
    return conclude([*check(arguments.root, arguments.installed), *unused_rows(arguments.root)],
                    "every include follows the order of the layers")


if __name__ == "__main__":
    sys.exit(main())
