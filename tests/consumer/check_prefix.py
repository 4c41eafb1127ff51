"""Checks an installed copy without CMake: its headers, and what pkg-config says of it.

    check_prefix.py CASE PREFIX LIBRARY_FOLDER CXX CC

CASE is a function below without `check_`. LIBRARY_FOLDER is relative to PREFIX. Every program is compiled with the
folders `ir/`, `passes/`, ... of a user in front of PREFIX/include; a header that is taken from there ends the compiler.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

case, prefix, library_folder, cxx, cc = sys.argv[1:]
prefix = pathlib.Path(prefix)
library_folder = prefix / library_folder
include = prefix / "include"
examples = pathlib.Path(__file__).parents[2] / "docs" / "examples"
headers = sorted(path.relative_to(include).as_posix() for path in include.rglob("*") if path.is_file())
scratch = tempfile.TemporaryDirectory(prefix="srjit-consumer-")
work = pathlib.Path(scratch.name)
environment = {**os.environ, "PKG_CONFIG_PATH": str(library_folder / "pkgconfig"), "LD_LIBRARY_PATH": str(library_folder)}


def run(*command, **options):
    """The output of a command; ends with its errors if it fails."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def pkg_config(*arguments):
    return run("pkg-config", *arguments).split()


def folders_of_a_user():
    """A folder that has every installed header under its name without `srjit/`, as an error."""
    own = work / "own"
    for header in headers:
        path = own / header.removeprefix("srjit/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#error a header of the user, not of sr-jit\n", encoding="utf-8")
    return own


def check_headers():
    """Every header compiles by itself, and no header or table includes a file in quotes."""
    for header in headers:
        text = (include / header).read_text(encoding="utf-8")
        if quoted := re.search(r'#\s*include\s*".*', text):
            sys.exit(f"{header} contains {quoted[0]}, which a program need not have")
    flags = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{folders_of_a_user()}", f"-I{include}"]

    def compile_header(header):
        run(cxx, *flags, "-x", "c++", "-", input=f"#include <{header}>\n")

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        alone = [header for header in headers if header.endswith(".h")]
        list(pool.map(compile_header, alone))
    return f"{len(alone)} headers compile by themselves"


def check_pkg_config_cpp():
    """The README's example is built by -IPREFIX/include and the libraries that pkg-config names."""
    [only] = pkg_config("--cflags", "srjit-cpp")
    if pathlib.Path(only.removeprefix("-I")).resolve() != include.resolve():
        sys.exit(f"pkg-config --cflags srjit-cpp gives {only}, which is not {include}")
    run(cxx, "-std=c++20", f"-I{folders_of_a_user()}", only, "-c", examples / "readme.cpp", "-o", work / "readme.o")
    for static in [[], ["--static"]]:
        run(cxx, work / "readme.o", "-o", work / "readme", *pkg_config("--libs", *static, "srjit-cpp"))
        said = run(work / "readme")
    return said


def check_pkg_config_c():
    """The example of docs/embedding.md is built by what pkg-config says."""
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{folders_of_a_user()}"]
    run(cc, *flags, examples / "embed.c", "-o", work / "embed", *pkg_config("--cflags", "--libs", "srjit"))
    return run(work / "embed")


print(globals()[f"check_{case}"]())
