"""Draws the picture at the top of docs/architecture.md: layers, rooms, and the includes between rooms in the sources.

    draw_rooms.py ROOT [--check FILE]

Writes an SVG to standard output. With --check it writes nothing and exits with 1 unless FILE equals the drawing.
"""

import argparse
import html
import itertools
import pathlib
import sys

from check_layers import SOURCES, includes_of
from rooms import LAYERS, ROOMS, room_of, rooms_of

WIDTH, HEIGHT, GAP, RISE = 176, 74, 22, 40  # size of a room, and distances between rooms
PADDING, TITLE = 18, 30  # of a layer
QUESTIONS = {
    "ir": "What is an expression? Op, Token, Expression, Error; parsers and printers",
    "passes": "What may be rewritten? Dag, Pass, Pipeline",
    "compiler": "How does it become machine code?",
    "runtime": "Where does it run? Engine, Program, Dataset",
    "tools": "How does a person use it? The command sr-jit; bench/",
}
STYLE = """
text { font: 13px sans-serif; fill: #1b1f24; }
.layer { fill: #f6f8fa; stroke: #8c959f; }
.room { fill: #ffffff; stroke: #0969da; }
.title { font-weight: bold; }
.small { font-size: 11px; fill: #57606a; }
.include { stroke: #57606a; fill: none; }
"""


def including_rooms(root):
    """The rooms that each room includes, of its own layer."""
    edges = {room: set() for room in ROOMS}
    for room in ROOMS:
        for path in sorted((root / room).rglob("*")):
            if path.suffix in SOURCES:
                named = {room_of(name) for _, quoted, name in includes_of(path) if quoted}
                edges[room] |= {other for other in named if other in rooms_of(room.split("/")[0]) and other != room}
    return edges


def reduced(edges):
    """The transitive reduction of the edges."""
    def reach(room):
        return set().union(*({other} | reach(other) for other in edges[room]), set())
    return {room: sorted(other for other in targets if not any(other in reach(step) for step in targets))
            for room, targets in edges.items()}


def depths(edges):
    """The length of the longest path below each room."""
    found = {}
    for room in ROOMS:  # a room comes after those that it includes
        found[room] = 1 + max((found[other] for other in edges[room]), default=-1)
    return found


def columns_of(rooms, edges, depth):
    """The column of each room of a layer: in each row, from the lowest, as near as possible to the rooms that it includes."""
    rows = [[room for room in rooms if depth[room] == level] for level in range(1 + max(depth[room] for room in rooms))]
    count = max(len(row) for row in rows)
    found = {}
    for row in rows:
        below = [[found[other] for other in edges[room]] or [(count - 1) / 2] for room in row]
        wanted = [sum(columns) / len(columns) for columns in below]
        columns = min(itertools.permutations(range(count), len(row)),
                      key=lambda columns: (sum(abs(a - b) for a, b in zip(columns, wanted)), columns))
        found |= dict(zip(row, columns))
    return found


def arrow_between(start, end):
    """The points of an arrow from the room at `start` to the one at `end`, below it: (left, top) of each.

    Beside the rows between them it runs between two columns, where no room is.
    """
    (x, y), (to_x, to_y) = start, end
    points = [(x + WIDTH // 2, y + HEIGHT)]
    if to_y - y > HEIGHT + RISE:
        gap = x + WIDTH + GAP // 2 if to_x > x else x - GAP // 2
        points += [(gap, y + HEIGHT + RISE), (gap, to_y - RISE)]
    return [*points, (to_x + WIDTH // 2, to_y - 5)]


def lines_of(text, width):
    """`text` in lines of at most `width` characters."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def text(x, y, words, kind=""):
    return f'<text x="{x}" y="{y}" class="{kind}">{html.escape(words)}</text>'


def draw(root):
    """The SVG, as text."""
    included = including_rooms(root)
    depth, edges = depths(included), reduced(included)
    levels = 1 + max(depth.values())
    height = TITLE + 2 * PADDING + levels * (HEIGHT + RISE)
    parts, left, places = [], 10, {}
    for layer in LAYERS:
        rooms = rooms_of(layer)
        columns = columns_of(rooms, edges, depth) if rooms else {layer: 0}
        width = 2 * PADDING + (1 + max(columns.values())) * (WIDTH + GAP) - GAP
        parts.append(f'<rect x="{left}" y="10" width="{width}" height="{height}" rx="6" class="layer"/>')
        parts.append(text(left + PADDING, 32, f"{layer}/", "title"))
        parts += [text(left + PADDING, 50 + 14 * n, line, "small") for n, line in enumerate(lines_of(QUESTIONS[layer], 28 if not rooms else 60))]
        for room in rooms:
            places[room] = (left + PADDING + columns[room] * (WIDTH + GAP),
                            10 + height - PADDING - HEIGHT - depth[room] * (HEIGHT + RISE))
        left += width + GAP
    for room, others in edges.items():
        for other in others:
            points = " ".join(f"{x},{y}" for x, y in arrow_between(places[room], places[other]))
            parts.append(f'<polyline points="{points}" class="include" marker-end="url(#arrow)"/>')
    for room, (x, y) in places.items():
        parts.append(f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4" class="room"/>')
        parts.append(text(x + 8, y + 16, room.split("/")[1] + "/", "title"))
        parts += [text(x + 8, y + 31 + 12 * n, line, "small") for n, line in enumerate(lines_of(ROOMS[room][0], 26))]
    arrow = ('<defs><marker id="arrow" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">'
             '<path d="M0,0 L6,3 L0,6 z" fill="#57606a"/></marker></defs>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left}" height="{height + 20}" viewBox="0 0 {left} {height + 20}">',
        f"<style>{STYLE}</style>", arrow, f'<rect width="{left}" height="{height + 20}" fill="#ffffff"/>', *parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--check", type=pathlib.Path)
    arguments = parser.parse_args()
    drawn = draw(arguments.root.resolve())
    if arguments.check is None:
        sys.stdout.write(drawn)
        return 0
    if arguments.check.read_text(encoding="utf-8") == drawn:
        return 0
    print(f"{arguments.check} is not what the sources say: draw it again with "
          "python3 -B tests/layers/draw_rooms.py . >docs/rooms.svg")
    return 1


if __name__ == "__main__":
    sys.exit(main())
