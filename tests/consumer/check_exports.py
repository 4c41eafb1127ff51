"""Checks that libsrjit.so exports the functions that srjit.h declares, and nothing else.

    check_exports.py NM LIBRARY HEADER

Prints one line per difference, and exits with 1 if there is any.
"""

import re
import subprocess
import sys

nm, library, header = sys.argv[1:]
symbols = subprocess.run([nm, "-D", "--defined-only", "--format=posix", library], check=True, capture_output=True, text=True)
# An absolute symbol (A) names the version node.
exported = {name.partition("@")[0] for name, kind, *_ in map(str.split, symbols.stdout.splitlines()) if kind != "A"}
with open(header, encoding="utf-8") as file:
    text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
declared = set(re.findall(r"\b(srjit_\w+)\s*\([^;{]*\);", text))
found = [f"{name} is exported, but not declared" for name in sorted(exported - declared)]
found += [f"{name} is declared, but not exported" for name in sorted(declared - exported)]
print("\n".join(found) or f"{len(declared)} functions are declared and exported")
sys.exit(1 if found or not declared else 0)
