"""Draws the picture at the top of docs/internals/architecture.md: layers, rooms, and the includes between rooms in the sources.

    draw_rooms.py ROOT [--check FILE]

Writes an SVG to standard output. With --check it writes nothing and exits with 1 unless FILE equals the drawing.
"""

import argparse
import html
import itertools
import pathlib
import sys

from check_layers import SOURCES, includes_of
from rooms import LAYERS, LAYER_CONTENTS, ROOMS, room_of, rooms_of
from room_arrows import GAP, HEIGHT, RISE, WIDTH, arrows_between, columns_of

PADDING, TITLE, MARGIN, BETWEEN = 18, 58, 8, 36  # of a layer; of the picture; between layers
TEXT, LINE = 13, 16  # size of text in pixels, and distance of lines
# Layers from top to bottom in each column of the picture, so that arrows lead down or to the left.
COLUMNS = [["compiler", "passes", "ir"], ["tools", "runtime"]]
STYLE = """
text { font: 13px "DejaVu Sans", Verdana, Arial, sans-serif; fill: #24292f; }
.layer { fill: #f3f5f7; stroke: #8c959f; }
.room { fill: #ffffff; stroke: #0969da; }
.title { font-size: 14px; font-weight: bold; }
.include { stroke: #57606a; stroke-width: 1.2; fill: none; }
.layers { stroke: #8250df; stroke-width: 3; fill: none; }
"""
MARKERS = """<defs>
<marker id="include" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto" markerUnits="userSpaceOnUse">
<path d="M0,0 L9,4 L0,8 z" fill="#57606a"/></marker>
<marker id="layers" markerWidth="14" markerHeight="14" refX="12" refY="7" orient="auto" markerUnits="userSpaceOnUse">
<path d="M0,0 L14,7 L0,14 z" fill="#8250df"/></marker>
</defs>"""


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


def rows_of(edges):
    """The row of each room, 0 for the lowest: as few rows as the edges allow, and no row longer than it must be."""
    above = {}
    for room in reversed(edges):  # a room comes after those that it includes
        above[room] = 1 + max((above[other] for other in above if room in edges[other]), default=-1)
    least = 1 + max(above.values())
    for longest in range(1, len(edges) + 1):
        found = {}
        for room in sorted(edges, key=lambda room: -above[room]):
            row = 1 + max((found[other] for other in edges[room]), default=-1)
            while list(found.values()).count(row) == longest:
                row += 1
            found[room] = row
        if max(found.values()) < least:
            return found
    raise ValueError("rooms include each other")


def width_of(words, size=TEXT):
    """About the width of a line of text in pixels, in a wide font."""
    narrow, wide = sum(sign in "iljft.,:;'|()[] /-I" for sign in words), sum(sign in "mwMWGOQ" for sign in words)
    return size * (0.38 * narrow + 0.9 * wide + 0.63 * (len(words) - narrow - wide))


def lines_of(words, width):
    """`words` in lines of at most `width` pixels."""
    lines = [""]
    for word in words.split():
        if lines[-1] and width_of(f"{lines[-1]} {word}") > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def text(x, y, words, kind="words"):
    return f'<text x="{x}" y="{y}" class="{kind}">{html.escape(words)}</text>'


def box(x, y, width, height, kind):
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" class="{kind}"/>'


def arrow(points, kind):
    joined = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline points="{joined}" class="{kind}" marker-end="url(#{kind})"/>'


class Layer:
    """A layer's box with its rooms, at its own place (left, top), which is set after its size is known."""

    def __init__(self, name, edges):
        self.name, self.rooms = name, rooms_of(name)
        self.edges = {room: edges[room] for room in self.rooms}
        self.width, self.height = 0, TITLE
        if self.rooms:
            self.rows = rows_of(self.edges)
            self.columns = columns_of(self.edges, self.rows)
            self.width = 2 * PADDING + (1 + max(self.columns.values())) * (WIDTH + GAP) - GAP
            self.height = TITLE + (1 + max(self.rows.values())) * (HEIGHT + RISE) - RISE + PADDING

    def drawn(self, left, top):
        yield box(left, top, self.width, self.height, "layer")
        yield text(left + PADDING, top + 22, f"{self.name}/", "title")
        yield text(left + PADDING, top + 40, LAYER_CONTENTS[self.name])
        if not self.rooms:
            return
        left, top = left + PADDING, top + TITLE
        for points in arrows_between(self.edges, self.rows, self.columns):
            yield arrow([(left + x, top + y) for x, y in points], "include")
        for room in self.rooms:
            x = left + self.columns[room] * (WIDTH + GAP)
            y = top + (max(self.rows.values()) - self.rows[room]) * (HEIGHT + RISE)
            yield box(x, y, WIDTH, HEIGHT, "room")
            yield text(x + 8, y + 18, room.split("/")[1] + "/", "title")
            for number, line in enumerate(lines_of(ROOMS[room][0], WIDTH - 16)):
                yield text(x + 8, y + 36 + LINE * number, line)


def legend(left, top, width):
    """What the arrows mean."""
    rows = [("", "Grey boxes are layers, folders at the top level. White boxes are rooms, folders of their layer."),
            ("include", "A → B: sources of room A include headers of room B. There is no arrow where a longer way of "
                        "arrows leads to B."),
            ("layers", "A layer may include every layer to which these arrows lead. The order of the layers is "
                       f"{', '.join(LAYERS)}. Includes between rooms of different layers are not drawn.")]
    for kind, words in rows:
        if kind:
            yield arrow([(left, top), (left + 34, top)], kind)
        indent = 48 if kind else 0
        for line in lines_of(words, width - indent):
            yield text(left + indent, top + 4, line)
            top += LINE + 1
        top += 9


def layer_arrows(places, layers):
    """An arrow from each layer to the one before it."""
    for name, later in itertools.pairwise(LAYERS):
        (x, y), (to_x, to_y) = places[later], places[name]
        if x == to_x:
            yield arrow([(x + 60, y + layers[later].height), (x + 60, to_y - 1)], "layers")
        else:
            yield arrow([(x, to_y + 60), (to_x + layers[name].width + 1, to_y + 60)], "layers")


def draw(root):
    """The SVG, as text."""
    edges = reduced(including_rooms(root))
    layers = {name: Layer(name, edges) for name in LAYERS}
    tall = max(sum(layers[name].height + BETWEEN for name in column) - BETWEEN for column in COLUMNS)
    places, left = {}, MARGIN
    for column in COLUMNS:
        width, bottom = max(layers[name].width for name in column), MARGIN + tall
        for name in reversed(column):
            layers[name].width = width
            places[name] = (left, bottom - layers[name].height)
            bottom -= layers[name].height + BETWEEN
        left += width + BETWEEN
    parts = [part for name in LAYERS for part in layers[name].drawn(*places[name])]
    parts += [*layer_arrows(places, layers), *legend(MARGIN + 6, MARGIN + 16, layers["compiler"].width - 10)]
    width, height = left - BETWEEN + MARGIN, tall + 2 * MARGIN
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{STYLE}</style>", MARKERS, f'<rect width="{width}" height="{height}" fill="#ffffff"/>', *parts, "</svg>", ""])


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
