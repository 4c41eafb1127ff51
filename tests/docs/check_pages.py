"""Checks the code, the links and the paths of the pages for readers.

    check_pages.py ROOT

Pages are ROOT/*.md and those in ROOT/docs and its folders. Every paragraph of a block of C++ (```cpp), or of another
language of LANGUAGES, is part of one program of ROOT/docs/examples, which is compiled and run: the same lines, but for the indentation of the whole; and the
paragraphs of a block stand in the program in the order of the page. Every relative link names a file, and an anchor that
the page has. Every path in backticks that begins with a folder of FOLDERS names something under ROOT; it may be a pattern
(`*`, `{a,b}`) and may end in `:line`. A path with a placeholder, `<...>` or a part in capitals, is not checked. Prints one
line per violation, `file:line: message`, and exits with 1 if there is any.
"""

import argparse
import pathlib
import re
import sys
import textwrap

LANGUAGES = {"cpp": "*.cpp", "c": "*.c", "rust": "*.rs", "julia": "*.jl"}
FENCE = re.compile(r"^```(\w*)\s*$")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*?)\s*$")
FOLDERS = ["ir", "passes", "compiler", "runtime", "tools", "python", "tests", "docs"]
SPAN = re.compile(r"(?<!`)(`+)(?!`)((?:(?!\n\s*\n).)+?)(?<!`)\1(?!`)", re.DOTALL)
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/\S*")
PLACEHOLDER = re.compile(r"<|/(?!README)[A-Z_]+(?:[./]|$)")


def outside_code(lines):
    """Yields (number, line) of the lines that are neither in a fenced block nor indented as code."""
    fenced = False
    for number, line in enumerate(lines, start=1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def blocks_of(lines, language):
    """Yields (number of the first line, lines) of the fenced blocks in a language."""
    first, block = None, []
    for number, line in enumerate(lines, start=1):
        fence = FENCE.match(line)
        if fence and first is None:
            first, block, wanted = number + 1, [], fence[1] == language
        elif fence:
            if wanted:
                yield first, block
            first = None
        elif first is not None:
            block.append(line)


def paragraphs_of(block, first):
    """Yields (number of the first line, lines) of what empty lines divide."""
    paragraph = []
    for number, line in enumerate([*block, ""], start=first):
        if line.strip():
            paragraph.append(line)
        elif paragraph:
            yield number - len(paragraph), paragraph
            paragraph = []


def dedented(lines):
    return textwrap.dedent("\n".join(lines))


def place_in(source, paragraph, start):
    """The line of `source` behind the paragraph, which begins at line `start` or later; None without one."""
    wanted, length = dedented(paragraph), len(paragraph)
    for place in range(start, len(source) - length + 1):
        if source[place].strip() == paragraph[0].strip() and dedented(source[place : place + length]) == wanted:
            return place + length
    return None


def check_block(block, first, programs):
    """The number of the line that no program has, or None: of the program that has most of the block."""
    furthest = first
    for source in programs:
        place = 0
        for number, paragraph in paragraphs_of(block, first):
            place = place_in(source, paragraph, place)
            if place is None:
                furthest = max(furthest, number)
                break
        else:
            return None
    return furthest


def anchors_of(path):
    """The anchors that a forge gives the headings of a page."""
    anchors = set()
    for _, line in outside_code(path.read_text(encoding="utf-8").splitlines()):
        if heading := HEADING.match(line):
            text = re.sub(r"[^\w\- ]", "", heading[1].replace("`", "").lower())
            anchors.add(text.replace(" ", "-"))
    return anchors


def check_link(path, target):
    """The message for one link of a page, or None."""
    if re.match(r"[a-z]+:", target):
        return None
    name, _, anchor = target.partition("#")
    file = path.parent / name if name else path
    if not file.exists():
        return f"no file {name}"
    if anchor and anchor not in anchors_of(file):
        return f"no heading #{anchor} in {file.name}"
    return None


def paths_of(lines):
    """Yields (number, path) of the paths in backticks that begin with a folder of the repository; the first word of a span."""
    kept = dict(outside_code(lines))
    text = "\n".join(kept.get(number, "") for number in range(1, len(lines) + 1))
    for span in SPAN.finditer(text):
        if path := PATH.match(span[2].strip()):
            yield text.count("\n", 0, span.start()) + 1, path[0]


def patterns_of(path):
    """The patterns that a path with {a,b} stands for."""
    choice = re.search(r"\{([^{}]*)\}", path)
    if choice is None:
        return [path]
    return [pattern for word in choice[1].split(",")
            for pattern in patterns_of(path[: choice.start()] + word + path[choice.end() :])]


def check_path(root, path):
    """The message for one path of a page, or None."""
    name = re.sub(r":\d+$", "", path)
    if PLACEHOLDER.search(name):
        return None
    missing = [pattern for pattern in patterns_of(name) if not any(root.glob(pattern))]
    return f"nothing has the path {missing[0]}" if missing else None


def check(root):
    """All violations under `root`, as text."""
    programs = {language: [path.read_text(encoding="utf-8").splitlines()
                           for path in sorted((root / "docs/examples").glob(pattern))]
                for language, pattern in LANGUAGES.items()}
    for path in [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]:
        lines, name = path.read_text(encoding="utf-8").splitlines(), path.relative_to(root)
        for language, sources in programs.items():
            for first, block in blocks_of(lines, language):
                if (number := check_block(block, first, sources)) is not None:
                    yield f"{name}:{number}: no program of docs/examples has this code"
        for number, line in outside_code(lines):
            for target in LINK.findall(line):
                if message := check_link(path, target):
                    yield f"{name}:{number}: {message}"
        for number, target in paths_of(lines):
            if message := check_path(root, target):
                yield f"{name}:{number}: {message}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    found = list(check(parser.parse_args().root.resolve()))
    print("\n".join(found) if found else "all code is that of programs, and all links and paths have targets")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
