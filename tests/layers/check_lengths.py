"""Checks that functions and folders are of a size that a reader can take in.

    check_lengths.py ROOT

A function of C++, or of a script in Python, has at most MAX_LINES lines, from that of its opening brace (`def` in Python)
to its end. A lambda is a part of its function. A folder has at most MAX_FILES files of code, without those of its folders.
Prints one line per violation, `file:line: message`, and exits with 1 if there is any.
"""

import ast
import pathlib
import re
import sys

from violations import conclude

MAX_LINES = 60
MAX_FILES = 25
FOLDERS = ["ir", "passes", "compiler", "runtime", "tools", "tests"]
CODE = {".h", ".cpp", ".def"}

# What has no braces and no parentheses of the code in it. A number may have quotes between its digits.
OTHER = re.compile(
    r'(?:u8|[uUL])?R"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)"'  # a raw string
    r'|//(?:\\\n|[^\n])*|/\*.*?\*/'
    r'|(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"'
    r"|(?<!\w)\d(?:'?[\w.])*|(?:u8|[uUL])?'(?:\\.|[^'\\\n])+'"
    r'|^[ \t]*\#(?:\\\n|//[^\n]*|/\*.*?\*/|[^\n\\]|\\.)*', re.DOTALL | re.MULTILINE)
TEMPLATE = re.compile(r"\btemplate\s*<[^<>]*(?:<[^<>]*(?:<[^<>]*>[^<>]*)*>[^<>]*)*>")
SCOPE = re.compile(r"(?:\w+\s+)*?(?:namespace|class|struct|union|extern)\b")
LAMBDA = re.compile(r"\[[^\[\]]*\]\s*$")
INITIALISER = re.compile(r"\s*[,{]")


def code_of(text):
    """`text` without comments, literals and lines of the preprocessor; its lines keep their numbers."""
    return OTHER.sub(lambda found: " " + "\n" * found[0].count("\n"), text)


def opens(head):
    """What a brace opens that stands behind `head` outside of functions: "scope", "function" or "list" (of values)."""
    head = TEMPLATE.sub("", re.sub(r"\b(?:public|private|protected)\s*:(?!:)", "", head)).strip()
    plain = re.sub(r"\b(?:alignas|__attribute__|decltype|requires)\s*\([^()]*\)", "", head)
    if SCOPE.match(plain) and "(" not in plain:
        return "scope"
    if head.endswith("=") or head.count("(") != head.count(")"):
        return "list"
    return "function" if ")" in head or LAMBDA.search(head) else "list"


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
            if kind == "function" and not INITIALISER.match(code, found.end()):
                yield first, line
                head = ""
        elif outside:
            head = (head + piece).rsplit(";", 1)[-1]
    if stack:
        raise ValueError(f"line {stack[-1][1]} opens a brace that is not closed")


def python_functions(text):
    """Yields (first line, last line) of the functions of a script."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno


def is_script(path):
    """Whether a file is in Python, by its name or its first line."""
    if path.suffix == ".py":
        return True
    with path.open("rb") as file:
        return re.match(rb"#!.*\bpython", file.readline()) is not None


def sources(root):
    """(path, its finder of functions) of every file that is checked."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".h", ".cpp"}:
                yield path, functions_of
            elif path.is_file() and is_script(path):
                yield path, python_functions


def long_functions(root):
    for path, functions in sources(root):
        name = path.relative_to(root)
        try:
            for first, last in functions(path.read_text(encoding="utf-8")):
                if last - first + 1 > MAX_LINES:
                    yield f"{name}:{first}: a function of {last - first + 1} lines: at most {MAX_LINES}"
        except ValueError as error:
            yield f"{name}:1: cannot find its functions: {error}"


def full_folders(root):
    for top in FOLDERS:
        for folder in [root / top, *sorted(path for path in (root / top).rglob("*") if path.is_dir())]:
            count = sum(path.suffix in CODE for path in folder.iterdir()) if folder.is_dir() else 0
            if count > MAX_FILES:
                yield f"{folder.relative_to(root)}:1: has {count} files of code: at most {MAX_FILES}, then it is divided"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    return conclude([*long_functions(root), *full_folders(root)],
                    "every function and every folder is short enough")


if __name__ == "__main__":
    sys.exit(main())
