"""Checks of the repository's structure: the rows of CHECKS.

    checks.py ROOT --installed HEADER... --hashed FILE    prints one line per violation, `file:line: message`; fails if any
    checks.py ROOT --draw                                 draws ROOT/docs/rooms.svg again, with Graphviz

HEADERs are those that are installed. FILE lists, one per line, the sources whose hash goes into the keys of kernels. Only
files that git tracks count; without a .git (an exported archive), all files outside of build/, dist/ and venv/.
"""

import argparse
import ast
import collections
import functools
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import rooms
from rooms import LAYERS, room_of, rooms_of

TOP_LEVEL = {*LAYERS, "tests", "docs", "python", "CMakeLists.txt", "CMakePresets.json", "README.md",
             "LICENSE", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff"}  # code hosting sites show the last four
CODE = (".h", ".cpp", ".def")
FORBIDDEN_FOLDERS = {"common", "detail", "details", "helpers", "impl", "misc", "util", "utils"}
PLAIN_GLOB = re.compile(r"\bfile\(\s*GLOB\s[^)]*\.cpp\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')

# Libraries by the prefixes of their headers, and the leftmost layer that may include them.
LIBRARIES = {
    "LLVM": (re.compile(r"(llvm|llvm-c)/"), "compiler"),
    "oneTBB": (re.compile(r"(oneapi/)?tbb(/|\.h)"), "compiler"),
    "nvJitLink": (re.compile(r"(nvJitLink|nvPTXCompiler|nvrtc)\.h"), "compiler"),
    "CUDA": (re.compile(r"cu(da\w*)?\.h|cuda/|cuda_runtime\w*\.h"), "runtime"),
    "CLI11": (re.compile(r"CLI/"), "tools"),
    "libcsv": (re.compile(r"csv\.h"), "tools"),
    "Boost": (re.compile(r"boost/"), "tools"),
}
ONE_ROOM = {"dlfcn.h": "compiler/loader", "llvm/BinaryFormat/ELF.h": "compiler/sass"}
# A program that uses the installed headers needs none of these.
FOREIGN = re.compile(r"(llvm|llvm-c|oneapi|tbb|fmt|nlohmann|boost|CLI)/|tbb\.h|cuda\w*\.h|nv\w+\.h|csv\.h")

MAX_LINES = 60  # of a function
MAX_FILES = 25  # of a folder, without those of its folders

TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),[^{]*\{(?:[^\n]*\}$|.*?^\})", re.DOTALL | re.MULTILINE)
THREADS = re.compile(r"\bstd::(?:j?thread|async)\b(?!::)|\bpthread_create\b|\btbb::(?:parallel_\w+|task_group|task_arena)\b")
# Suites with threads that the test preset `tsan` does not run, and why.
EXCEPTIONS = {
    "AbandonedPrograms": "test_tools is not built for this preset; the threads meet at one lock (compiler/kernels/assembler.cpp)",
    "HostObjects": "test_compiler is not built for this preset; KeptCode makes and finds the same objects in parallel",
    "LlvmFailures": "one thread at a time, in a process that ends by lack of memory",
    "Registry": "test_passes is not built for this preset; the registry is one lock (passes/pass.cpp)",
}

READS_LOSSES = re.compile(
    r"^\s*#include \"ir/losses\.def\"|^(?!\s*//).*\b(lossTerm|eachLossTerm|rowTerm|withLossFormula|scaledLossFormula)\b", re.MULTILINE)
LAUNCH = re.compile(r"\bDirect(Arguments|Grid)\b|^Graphs directGraphs\(|^struct DirectScratch \{|\boffsetOf\(const ParameterSource", re.M)


class Tree:
    """The files of a repository, by their names below its root."""

    def __init__(self, root, installed=(), hashed=()):
        self.root, listed = root, ""
        if (root / ".git").exists() and shutil.which("git"):
            listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True).stdout
        tops = [path for path in root.iterdir() if not path.name.startswith(".") and path.name not in {"build", "dist", "venv"}]
        paths = [root / name for name in listed.split("\0")] if listed else [path for top in tops for path in [top, *top.rglob("*")]]
        self.names = sorted(str(path.relative_to(root)) for path in paths if path.is_file())
        self.installed, self.hashed = ({str((root / name).relative_to(root)) for name in names} for names in (installed, hashed))

    @functools.cache
    def text(self, name):
        return (self.root / name).read_text(encoding="utf-8")

    @functools.cache
    def includes(self, name):
        """(line number, quoted, included name) of every include of a file."""
        found = [(number, INCLUDE.match(line)) for number, line in enumerate(self.text(name).splitlines(), start=1)]
        return [(number, include[1] == '"', include[2]) for number, include in found if include]

    def quoted(self, name):
        return [included for _, quoted, included in self.includes(name) if quoted]

    def below(self, *folders, ending=CODE):
        return [name for name in self.names if name.startswith(tuple(folder + "/" for folder in folders)) and name.endswith(ending)]

    def reached(self, name, enter=lambda name: True):
        """`name`, its quoted includes, theirs, and so on through the files that `enter` accepts."""
        seen, waiting = set(), [name]
        while waiting:
            each = waiting.pop()
            if each not in seen and enter(each) and (self.root / each).is_file():
                waiting += self.quoted(each)
            seen.add(each)
        return seen


def places(tree):
    """Files and folders whose names do not tell their contents, and folders of a layer that are no room."""
    for name in sorted({name.split("/")[0] for name in tree.names}):
        if not name.startswith(".") and name not in TOP_LEVEL:
            yield f"{name}:1: has no place at the top level"
    folders = {folder for name in tree.below(*LAYERS, "tests", "docs", ending="") for folder in pathlib.PurePath(name).parents}
    for folder in sorted(folders):
        if folder.name in FORBIDDEN_FOLDERS:
            yield f"{folder}:1: a folder named {folder.name} does not say what is in it"
    for name in tree.below(*LAYERS, "tests"):
        path = pathlib.PurePath(name)
        if rooms_of(path.parts[0]) and len(path.parts) > 2 and room_of(name) is None:
            yield f"{name}:1: {path.parent} is no room (tests/layers/rooms.py)"
        if len(path.parts) > 2 and {path.parent.name, path.parent.name.rstrip("s")} & {*path.stem.split("_"), path.stem}:
            yield f"{name}:1: the name repeats that of its folder"


def violation_of(tree, source, quoted, name):
    """The message for one include of a layer's source, or None."""
    layer, target, room, other = source.split("/")[0], name.split("/")[0], room_of(source), room_of(name)
    reach = LAYERS[: LAYERS.index(layer) + 1]
    if ONE_ROOM.get(name, room) != room:
        return f"<{name}> is only for {ONE_ROOM[name]}/"
    if not quoted:
        if name.startswith("srjit/"):
            return f"<{name}> is the installed spelling: inside the repository includes are quoted"
        library, first = next(((library, first) for library, (names, first) in LIBRARIES.items() if names.match(name)), ("", "ir"))
        return None if first in reach else f"<{name}> is of {library}, allowed from {first}/ on"
    if any(name.startswith(tests + "/") and source.startswith(user + "/") for tests, user in rooms.SHARED_TESTS.items()):
        return None
    if target not in reach:
        return (f'"{name}" is to the right of {layer}/, which may include {", ".join(reach)}' if target in LAYERS else
                f'"{name}" does not begin with a layer: quoted includes are written from the root')
    if name not in tree.names:
        return f'"{name}" does not exist, or git does not track it'
    if room is not None and room != other:
        if room not in rooms.FACADE.get(name, [room]):
            return f'"{name}" is for users of {target}/: no room may include it but {rooms.FACADE[name]} (tests/layers/rooms.py)'
        if other is None and rooms_of(target) and name not in tree.installed:
            return f'"{name}" lies in the root of {target}/ and is not installed: it is no room\'s to include'
        if other not in (None, *rooms.ROOMS[room]):
            named = [allowed for allowed in rooms.ROOMS[room] if allowed.startswith(target + "/")]
            return f'"{name}" is not for {room}/, which may include {", ".join(named) or "no room"} of {target}/'
    doors = [f"{other}/{door}" for door in rooms.DOORS.get(other, [])]
    if doors and other != room and name not in doors:
        return f'"{name}" is no door of {other}/: others include only {", ".join(doors)}'
    return None


def includes(tree):
    """Includes of sources against the order of layers and rooms, past a door, or of a library that belongs elsewhere."""
    for source in tree.below(*LAYERS):
        for number, quoted, name in tree.includes(source):
            if message := violation_of(tree, source, quoted, name):
                yield f"{source}:{number}: {message}"


def installed(tree):
    """Includes of installed headers that a program that uses them may lack, and the operator table in the runtime's."""
    for header in sorted(tree.installed):
        for number, quoted, name in tree.includes(header):
            if not quoted and FOREIGN.match(name):
                yield f"{header}:{number}: <{name}> in an installed header"
            if quoted and name in tree.names and name not in tree.installed:
                yield f'{header}:{number}: "{name}" is not installed, but this header is'
    for header in tree.below("runtime", ending=".h"):
        if header.count("/") == 1 and "ir/ops.def" in tree.reached(header):
            yield f"{header}:1: reads ir/ops.def through its includes: a header needs ir/op.h at most"


def tests(tree):
    """Tests that include, also through headers of tests, what their layer or room may not include."""
    for layer, name in [(layer, name) for layer in LAYERS for name in tree.below("tests/" + layer)]:
        later = LAYERS[LAYERS.index(layer) + 1:]
        for number, quoted, start in tree.includes(name):
            for reached in sorted(tree.reached(start, lambda name: name.startswith("tests/"))) if quoted else []:
                if reached.removeprefix("tests/").split("/")[0] in later:
                    through = "" if reached == start else f', which "{start}" includes,'
                    yield f'{name}:{number}: "{reached}"{through} is to the right of tests of {layer}/'
    for room, allowed in rooms.ROOMS.items():
        for name in tree.below("tests/" + room):
            for number, quoted, other in tree.includes(name):
                if quoted and room_of(other) not in (None, room, *allowed, *rooms.TESTED_WITH.get(room, [])):
                    yield f'{name}:{number}: "{other}" is not for tests of {room}/ (ROOMS, TESTED_WITH of rooms.py)'


def rows(tree):
    """Rows of rooms.py that are in the wrong order or that nobody uses."""
    used = {room: {name for source in tree.below(room) for name in tree.quoted(source)} for room in rooms.ROOMS}
    roots = {name for source in tree.below(*LAYERS) if room_of(source) is None for name in tree.quoted(source)}
    for number, (room, allowed) in enumerate(rooms.ROOMS.items()):
        for other in allowed:
            if other in list(rooms.ROOMS)[number:]:
                yield f"tests/layers/rooms.py:1: {room} includes {other}, which is not named before it"
            elif other not in map(room_of, used[room]):
                yield f"tests/layers/rooms.py:1: {room} may include {other}, and does not"
        others = roots.union(*(names for other, names in used.items() if other != room))
        for door in sorted({f"{room}/{door}" for door in rooms.DOORS.get(room, [])} - others):
            yield f"tests/layers/rooms.py:1: {door} is a door that nobody includes"
        tested = {room_of(name) for source in tree.below("tests/" + room) for name in tree.quoted(source)} - set(allowed)
        for other in sorted(set(rooms.TESTED_WITH.get(room, [])) - tested):
            yield f"tests/layers/rooms.py:1: tests of {room} are in TESTED_WITH for {other}, and need not be"


def words(tree):
    """WORDS of rooms.py, where they are not those of the layers and rooms in their order."""
    wanted = [name for layer in LAYERS for name in [layer, *rooms_of(layer)]]
    if list(rooms.WORDS) != wanted:
        differ = ", ".join(sorted(set(rooms.WORDS) ^ set(wanted))) or "the order"
        yield f"tests/layers/rooms.py:1: WORDS differs from LAYERS and ROOMS: {differ}"


def targets(tree):
    """Lists of sources that leave out folders, and folders of tests that no CMakeLists.txt adds."""
    lists = ["CMakeLists.txt", *tree.below(*LAYERS, "tests", ending=(".cmake", "CMakeLists.txt"))]
    for name, found in [(name, found) for name in lists for found in PLAIN_GLOB.finditer(tree.text(name))]:
        line = tree.text(name).count("\n", 0, found.start()) + 1
        yield f"{name}:{line}: a source in a folder below would be in no target: use GLOB_RECURSE"
    added = {folder for name in lists for folder in re.findall(r"add_subdirectory\((?:tests/)?(\w+)\)", tree.text(name))}
    for folder in sorted({name.split("/")[1] for name in tree.below("tests", ending=".cpp")} - {*LAYERS, *added}):
        yield f"tests/{folder}:1: has sources, but no CMakeLists.txt adds it"


# No brace or parenthesis in one of these belongs to the code. A number may have quotes between its digits.
OTHER = re.compile(
    r'(?:u8|[uUL])?R"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)"'  # a raw string
    r'|//(?:\\\n|[^\n])*|/\*.*?\*/'
    r'|(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"'
    r"|(?<!\w)\d(?:'?[\w.])*|(?:u8|[uUL])?'(?:\\.|[^'\\\n])+'"
    r'|^[ \t]*\#(?:\\\n|//[^\n]*|/\*.*?\*/|[^\n\\]|\\.)*', re.DOTALL | re.MULTILINE)
TEMPLATE = re.compile(r"\btemplate\s*<[^<>]*(?:<[^<>]*(?:<[^<>]*>[^<>]*)*>[^<>]*)*>")
SCOPE = re.compile(r"(?:\w+\s+)*?(?:namespace|class|struct|union|extern)\b")


def code_of(text):
    """`text` without comments, literals and lines of the preprocessor; its lines keep their numbers."""
    return OTHER.sub(lambda found: " " + "\n" * found[0].count("\n"), text)


def opens(head):
    """The kind of a brace behind `head`, outside of functions: "scope", "function" or "list" (of values)."""
    head = TEMPLATE.sub("", re.sub(r"\b(?:public|private|protected)\s*:(?!:)", "", head)).strip()
    plain = re.sub(r"\b(?:alignas|__attribute__|decltype|requires)\s*\([^()]*\)", "", head)
    if SCOPE.match(plain) and "(" not in plain:
        return "scope"
    if head.endswith("=") or head.count("(") != head.count(")"):
        return "list"
    return "function" if ")" in head or re.search(r"\[[^\[\]]*\]\s*$", head) else "list"


def functions_of(text):
    """Yields (first line, last line) of the bodies of a C++ source; raises ValueError where braces do not match."""
    code, line, head, stack = code_of(text), 1, "", []
    for found in re.finditer(r"[{}]|[^{}]+", code):
        piece = found[0]
        line += piece.count("\n")
        outside = all(kind == "scope" for kind, _ in stack)
        if piece == "{":
            stack.append((opens(head) if outside else "block", line))
            head = "" if stack[-1][0] == "scope" else head
        elif piece == "}":
            if not stack:
                raise ValueError(f"line {line} closes a brace that is not open")
            kind, first = stack.pop()
            # Behind an initialiser's braces is more of the same function, `Class() : first_{0}, second_(1) {`.
            if kind == "function" and not re.compile(r"\s*[,{]").match(code, found.end()):
                yield first, line
                head = ""
        elif outside:
            head = (head + piece).rsplit(";", 1)[-1]
    if stack:
        raise ValueError(f"line {stack[-1][1]} opens a brace that is not closed")


def python_functions(text):
    """Yields (first line, last line) of the functions of a script."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    yield from ((node.lineno, node.end_lineno) for node in nodes)


def lengths(tree):
    """Functions and folders that a reader cannot take in. A lambda is a part of its function."""
    for name in tree.below(*LAYERS, "tests", ending=""):
        is_script = name.endswith(".py") or re.match(rb"#!.*\bpython", (tree.root / name).read_bytes())
        find = functions_of if name.endswith((".h", ".cpp")) else python_functions if is_script else lambda _: []
        try:
            for first, last in find((tree.root / name).read_text(encoding="utf-8", errors="replace")):
                if last - first + 1 > MAX_LINES:
                    yield f"{name}:{first}: a function of {last - first + 1} lines: at most {MAX_LINES}"
        except ValueError as error:
            yield f"{name}:1: cannot find its functions: {error}"
    for folder, count in collections.Counter(name.rsplit("/", 1)[0] for name in tree.below(*LAYERS, "tests")).items():
        if count > MAX_FILES:
            yield f"{folder}:1: has {count} files of code: at most {MAX_FILES}, then it is divided"


def suites_of(text):
    """The suites of a test source, each with the line where it uses threads, or None."""
    code = code_of(text)
    ranges = [(found[1], found.start(), found.end()) for found in TEST.finditer(code)]
    used = {suite: None for suite, _, _ in ranges}
    for found in THREADS.finditer(code):
        # A use outside of all tests is one of every suite.
        for suite in {suite for suite, first, last in ranges if first <= found.start() < last} or used:
            used[suite] = used[suite] or code.count("\n", 0, found.start()) + 1
    return used


def thread_suites(tree):
    """Suites with threads that the preset `tsan` does not name (those in Slow are not for sanitizers), and names of no suite."""
    presets = json.loads(tree.text("CMakePresets.json"))["testPresets"]
    pattern = next(preset for preset in presets if preset["name"] == "tsan")["filter"]["include"]["name"]
    named, existing, threaded = set(re.findall(r"\(([\w|]+)\)", pattern)[-1].split("|")), set(), set()
    for name in tree.below(*("tests/" + layer for layer in LAYERS), ending=".cpp"):
        used = suites_of(tree.text(name))
        existing |= set(used) if name.startswith("tests/runtime/") else set()
        threaded |= {suite for suite, line in used.items() if line}
        for suite, line in sorted(used.items()):
            if line and suite not in named and suite not in EXCEPTIONS and not suite.endswith("Slow"):
                yield f"{name}:{line}: the preset tsan does not name {suite}, which has threads"
    for suite in sorted(named - existing):
        yield f"CMakePresets.json:1: the preset tsan names the suite {suite}, which tests/runtime does not have"
    for suite in sorted((set(EXCEPTIONS) - threaded) | (set(EXCEPTIONS) & named)):
        why = "the preset tsan names it" if suite in named else "no such suite has threads"
        yield f"tests/layers/checks.py:1: {suite} is no exception: {why}"


def loss_readers(tree):
    """Sources that have the rows of ir/losses.def in their code, but are not compiled again by tests/more_losses; and others.

    They include the table, or they, or a header that they include, call a template of ir/losses.h.
    """
    at = "tests/more_losses/CMakeLists.txt"
    listed = set(re.search(r"set\(readers([^)]*)\)", tree.text(at))[1].split())
    sources = tree.below("ir", "passes", "compiler", "runtime", "tests/gpu_model", "tests/generators", ending=".cpp")
    readers = {source for source in sources for name in tree.reached(source, lambda name: name != "ir/losses.h")
               if name != "ir/losses.h" and name in tree.names and READS_LOSSES.search(tree.text(name))}
    yield from (f"{name}:1: reads the table of losses, but {at} does not list it" for name in sorted(readers - listed))
    yield from (f"{at}:1: {name} does not read the table of losses" for name in sorted(listed - readers))


def kernel_keys(tree):
    """Sources that decide the code of kernels and are not in the hash of their keys, and others that are.

    All of ir/, passes/ and compiler/ decide, and sources of runtime/ that name, or whose other half names, what a launch of
    direct code gets.
    """
    launching = {name.rsplit(".", 1)[0] for name in tree.below("runtime") if LAUNCH.search(tree.text(name))}
    needed = {*tree.below("ir", "passes", "compiler", ending=(*CODE, ".cc")),
              *(name for name in tree.below("runtime") if name.rsplit(".", 1)[0] in launching)}
    for name in sorted(needed - tree.hashed):
        yield f"{name}:1: decides the code of kernels, but is not in the hash of their keys"
    for name in sorted(tree.hashed - needed):
        if name in tree.names or not (tree.root / name).exists():  # else git does not track it
            yield f"{name}:1: is in the hash of kernels' keys, but {'decides no code' if name in tree.names else 'does not exist'}"


def graph_of(tree):
    """The picture of layers, rooms and the includes between rooms of a layer, in Graphviz' language."""
    def reach(room):
        return set().union(*({other} | reach(other) for other in edges[room]))
    edges = {room: {room_of(name) for source in tree.below(room) for name in tree.quoted(source)} for room in rooms.ROOMS}
    edges = {room: edges[room] & {*rooms_of(room.split("/")[0])} - {room} for room in edges}
    grey, texts = 'style="rounded,filled", fillcolor="#f3f5f7", color="#8c959f"', rooms.WORDS
    lines = [f'digraph {{ compound=true; newrank=true; nodesep=0.15; ranksep=0.35; fontname="sans-serif"; graph [{grey}]',
             'node [shape=box, fontname="sans-serif", fontsize=12, style="rounded,filled", fillcolor=white, color="#0969da"]']
    for layer in LAYERS:
        if not rooms_of(layer):
            lines.append(f'"{layer}" [label="{layer}/\\n{texts[layer]}", {grey}]')
            continue
        lines.append(f'subgraph "cluster_{layer}" {{ label="{layer}/: {texts[layer]}"')
        for room in rooms_of(layer):
            label = "\\n".join([room.split("/")[1] + "/", *textwrap.wrap(texts[room], 22)])
            shown = edges[room] - set().union(*(reach(other) for other in edges[room]))
            lines += [f'"{room}" [label="{label}"]', *(f'"{room}" -> "{other}"' for other in sorted(shown))]
        lines.append("}")
    for left, right in itertools.pairwise(LAYERS):
        start, end = (rooms_of(right) or [right])[0], (rooms_of(left) or [left])[-1]
        lines.append(f'"{start}" -> "{end}" [ltail="cluster_{right}", lhead="cluster_{left}", color="#8250df", penwidth=2]')
    return "\n".join([*lines, "}"])


def picture(tree):
    """docs/rooms.svg, where it was drawn from other includes: its last lines are the graph that it shows."""
    if not tree.text("docs/rooms.svg").endswith(f"<!--\n{graph_of(tree)}\n-->\n"):
        yield "docs/rooms.svg:1: shows other includes than the sources: python3 -B tests/layers/checks.py . --draw"


CHECKS = [places, includes, installed, tests, rows, words, targets, lengths, thread_suites, loss_readers, kernel_keys, picture]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--installed", nargs="*", default=[])
    parser.add_argument("--hashed", type=pathlib.Path)
    parser.add_argument("--draw", action="store_true")
    arguments = parser.parse_args()
    hashed = arguments.hashed.read_text(encoding="utf-8").split() if arguments.hashed else []
    tree = Tree(arguments.root.resolve(), arguments.installed, hashed)
    if arguments.draw:
        graph = graph_of(tree)
        drawn = subprocess.run(["dot", "-Tsvg"], input=graph, capture_output=True, text=True, check=True).stdout
        (tree.root / "docs/rooms.svg").write_text(f"{drawn}<!--\n{graph}\n-->\n", encoding="utf-8")
        return 0
    found = [violation for check in CHECKS for violation in check(tree)]
    print("\n".join(found) or f"no violation of {len(CHECKS)} checks")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
