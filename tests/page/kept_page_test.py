"""docs/explain.html is what the command in docs/internals/explain.md writes.

    kept_page_test.py SR-JIT ROOT

Not compared are the stages that depend on the processor, and numbers counted in them.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

SR_JIT, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
COMMAND = re.compile(r"^    (build/release/sr-jit explain .* --out docs/explain\.html)$", re.MULTILINE)
OF_THE_PROCESSOR = ("host-llvm", "asm")


def parts_of(page):
    """The page without its data, and the data that do not depend on the processor."""
    begin = page.index(">", page.index('id="explanation"')) + 1
    end = page.index("</script>", begin)
    data = json.loads(page[begin:end])
    data["stages"] = [stage for stage in data["stages"] if stage["name"] not in OF_THE_PROCESSOR]
    return page[:begin] + page[end:], data


def main():
    commands = COMMAND.findall((ROOT / "docs/internals/explain.md").read_text(encoding="utf-8"))
    if len(commands) != 1:
        sys.exit(f"docs/internals/explain.md has {len(commands)} commands that write docs/explain.html")
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder) / "page.html"
        words = shlex.split(commands[0])[1:-1]
        subprocess.run([SR_JIT, *words, str(made)], check=True, cwd=ROOT)
        kept_page, kept = parts_of((ROOT / "docs/explain.html").read_text(encoding="utf-8"))
        new_page, new = parts_of(made.read_text(encoding="utf-8"))
    different = [name for name in {*kept, *new} if kept.get(name) != new.get(name)]
    if kept_page != new_page:
        different.append("the page itself")
    if different:
        sys.exit(f"docs/explain.html is out of date ({', '.join(sorted(different))}); run\n    {commands[0]}")


if __name__ == "__main__":
    main()
