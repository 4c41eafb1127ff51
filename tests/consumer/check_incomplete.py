"""Checks that an incomplete build installs nothing, and that tools/demo.sh builds all that is installed.

    check_incomplete.py ROOT MANIFEST CXX CC

MANIFEST lists the files of a complete installation. The build tree of the test is configured, but not built.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

root, manifest = map(pathlib.Path, sys.argv[1:3])
cxx, cc = sys.argv[3:]
scratch = tempfile.TemporaryDirectory(prefix="srjit-incomplete-")
build, prefix = pathlib.Path(scratch.name, "build"), pathlib.Path(scratch.name, "prefix")


def run(*command, status=0):
    """The output of a command; ends with it if the command's status is another one."""
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != status:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}, not {status}\n{done.stdout}")
    return done.stdout


run("cmake", "-S", root, "-B", build, "-G", "Ninja", "-DSRJIT_BUILD_TESTS=OFF", f"-DCMAKE_CXX_COMPILER={cxx}",
    f"-DCMAKE_C_COMPILER={cc}")
configured = {path.name for path in build.rglob("*")} | {"srjit.h"}
# After `--target sr-jit` these were there, and libsrjit.so.1 was not.
for file in ["sr-jit", *(f"{layer}/libsrjit_{layer}.a" for layer in ["ir", "passes", "compiler", "runtime"])]:
    (build / file).touch()
for component in [[], ["--component", "library"]]:
    said = " ".join(run("cmake", "--install", build, "--prefix", prefix, *component, status=1).split())
    for words in [f"{build}/runtime/libsrjit.so is not built", f"cmake --build '{build}' --target installable"]:
        if words not in said:
            sys.exit(f"the message lacks \"{words}\": {said}")
    if prefix.exists():
        sys.exit(f"half of an installation was written: {[*prefix.rglob('*')]}")

target = re.search(r"^build_preset release --target (\S+)$", (root / "tools/demo.sh").read_text(encoding="utf-8"), re.MULTILINE)
made = {pathlib.Path(line).name for line in run("ninja", "-C", build, "-t", "inputs", target[1]).splitlines()}
installed = {pathlib.Path(line).name for line in manifest.read_text(encoding="utf-8").splitlines()}
if missing := installed - configured - made:
    sys.exit(f"tools/demo.sh does not build {sorted(missing)}, which `cmake --install` needs")
print(f"{target[1]} makes all {len(installed - configured)} files that are compiled or copied before an installation")
