"""Sums the lines that tests have run.

    coverage.py ROOT LCOV [--lines]

LCOV is what `llvm-cov export -format=lcov` writes. Prints a table of the layers, the sources with less than LEAST per cent,
and with --lines the lines that never ran. Exits with 1 if it is less than LEAST per cent of any layer. tools/ is no layer
of these: its tests run the command, and benchmarks.
"""

import collections
import pathlib
import sys

LAYERS = ["ir", "passes", "compiler", "runtime"]
LEAST = 92.0
LARGE = 20  # lines that a source has at least, to be listed


def lines_of(path):
    """{source: {line: times}} of an lcov file."""
    sources, current = collections.defaultdict(dict), None
    for record in path.read_text().splitlines():
        kind, _, rest = record.partition(":")
        if kind == "SF":
            current = sources[rest]
        elif kind == "DA":
            line, times = rest.split(",")[:2]
            current[int(line)] = max(int(times), current.get(int(line), 0))
    return sources


def share(covered, lines):
    return 100 * covered / lines if lines else 100.0


def ranges_of(numbers):
    """"3-5, 9" of 3, 4, 5 and 9."""
    ranges = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def main():
    root, lcov = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    counts = {}
    for source, lines in lines_of(lcov).items():
        path = pathlib.Path(source)
        if path.is_relative_to(root) and path.relative_to(root).parts[0] in LAYERS:
            counts[path.relative_to(root).as_posix()] = lines
    totals = {layer: [0, 0] for layer in LAYERS}
    below = []
    for source, lines in sorted(counts.items()):
        covered = sum(times > 0 for times in lines.values())
        total = totals[source.split("/")[0]]
        total[0] += covered
        total[1] += len(lines)
        if len(lines) >= LARGE and share(covered, len(lines)) < LEAST:
            below.append((share(covered, len(lines)), source, covered, len(lines)))
    print(f"{'layer':12} {'lines':>7} {'run':>7} {'share':>7}")
    for layer, (covered, lines) in [*totals.items(), ("all", [sum(x) for x in zip(*totals.values())])]:
        print(f"{layer:12} {lines:7} {covered:7} {share(covered, lines):6.1f}%")
    print(f"sources of {LARGE} lines or more, with less than {LEAST:.0f} %:")
    for part, source, covered, lines in sorted(below):
        print(f"{part:6.1f}% {covered:5} of {lines:5}  {source}")
    if "--lines" in sys.argv:
        for source, lines in sorted(counts.items()):
            missed = [line for line, times in lines.items() if times == 0]
            if missed:
                print(f"{source}: {ranges_of(missed)}")
    few = [layer for layer, (covered, lines) in totals.items() if not lines or share(covered, lines) < LEAST]
    if few:
        print(f"less than {LEAST:.0f} % of the lines were run in: {', '.join(few)}")
        sys.exit(1)


if __name__ == "__main__":
    main()
