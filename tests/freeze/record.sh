#!/usr/bin/env bash
# Writes one text file of what a change of structure must leave as it is: bits, machine code, interfaces and names.
#
#     tests/freeze/record.sh BUILD [DEVICE] >before.txt    # DEVICE: cuda:0, for the bits of a GPU of this machine
#     (change, build)
#     tests/freeze/record.sh BUILD [DEVICE] >after.txt && diff before.txt after.txt
#
# BUILD is a configured build folder; this script builds `freeze_results` and `sr-jit` there. Digests of two machines may
# differ in `fast`.
# Speed is compared on one card in one run: `sr-jit bench fresh gradients` of both versions.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
build="$(cd "$1" && pwd)"
device="${2:-}"
cd "$root"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
cmake --build "$build" --target freeze_results sr-jit >"$scratch/build.log" 2>&1 || { tail -n 20 "$scratch/build.log" >&2; exit 1; }
digest() { sha256sum | cut -c1-32; }

echo "## bits"
for machine in cpu model $device; do "$build/tests/freeze_results" "$machine"; done

echo "## code"
expressions=('x0*x1 + 2' 'sin(x0)/x1 - p0' 'exp(-square(x0 - p0)/p1)' 'pow(abs(x0), p0) + log(x1)' 'tanh(x0)*(1 + tanh(x0))'
  'max(x0, 0)*sqrt(x1)' 'mod(x0, x1) + cos(x2)' '1/(x0*x0 + x1*x1)')
forms=('ptx' 'ptx --arch sm_75' 'llvm' 'bytecode' 'bytecode --host' 'asm' 'sass --tier direct' 'sass --tier direct --arch sm_80'
  'passes --dot' 'passes --dot --gradient')
for form in "${forms[@]}"; do
  for precision in f32 f64; do
    for math in strict precise fast; do
      # The hash of the build's sources is in some outputs.
      printf '%s  %s %s %s\n' "$("$build/sr-jit" $form --precision "$precision" --math "$math" "${expressions[@]}" |
        sed -E 's/[0-9a-f]{64}//g' | digest)" "$form" "$precision" "$math"
    done
  done
done

echo "## interface of C"
"${CC:-cc}" -E -P -x c runtime/c_api/srjit.h | sed -n '/srjit_\|SRJIT_/,$p'
grep -E '^#define SRJIT_' runtime/c_api/srjit.h

echo "## installed headers"
# The list of the build's install script, without the libraries.
grep -rhoE '"[^"]*include[^"]*\.(h|def)"|[A-Za-z_/]+\.(h|def)"' "$build"/cmake_install.cmake "$build"/*/cmake_install.cmake |
  tr -d '"' | sed -E 's|.*/include/||; s|.*/(ir\|passes\|compiler\|runtime)/|\1/|' | sort -u

echo "## names of Python"
python3 -B - <<'PYTHON'
import ast, pathlib

trees = {path.with_suffix("").parts[1:]: ast.parse(path.read_text()) for path in pathlib.Path("python/srjit").rglob("*.py")}

def signature(name, function):
    for argument in ast.walk(function.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return f"{name}({ast.unparse(function.args)})"

def members(module, node):
    """Those of a class and of its bases in the package, by name."""
    found = {}
    for base in node.bases:
        name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
        home = (module[0], base.value.id) if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name) else module
        for other in trees[home].body if home in trees else ():
            if isinstance(other, ast.ClassDef) and other.name == name:
                found |= members(home, other)
    return found | {member.name: member for member in node.body if isinstance(member, ast.FunctionDef)}

for module, tree in sorted(trees.items()):
    if any(part.startswith("_") and part != "__init__" for part in module):
        continue
    for node in tree.body:
        name = ".".join((*module, getattr(node, "name", "")))
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            print(signature(name, node))
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            print(name)
            for member, function in sorted(members(module, node).items()):
                if not member.startswith("_") or member == "__init__":
                    print(signature(f"{name}.{member}", function))
        elif isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in node.targets):
            print(f"{name}__all__ = {ast.unparse(node.value)}")
PYTHON
