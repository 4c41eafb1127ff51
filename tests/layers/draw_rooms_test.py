"""The picture of draw_rooms.py can be read: its arrows, its text and its size, of the repository's rooms and of others."""

import html
import itertools
import pathlib
import re
import unittest

from draw_rooms import LAYERS, ROOMS, STYLE, TEXT, draw, lines_of, reduced, rows_of, width_of
from room_arrows import HEIGHT, WIDTH, arrows_between, columns_of, meet, place_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOX = re.compile(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)" rx="\d+" class="(\w+)"/>')
ARROW = re.compile(r'<polyline points="([^"]+)" class="(\w+)"')
WORDS = re.compile(r'<text x="(\d+)" y="(\d+)" class="(\w+)">([^<]*)</text>')
SIZE = re.compile(r'<svg [^>]*width="(\d+)" height="(\d+)"')


def passes_behind(points, room):
    """Whether an arrow has a point inside of a room, both as (left, top)."""
    left, top = room
    for (x, y), (to_x, to_y) in itertools.pairwise(points):
        for step in range(201):
            at_x, at_y = x + (to_x - x) * step / 200, y + (to_y - y) * step / 200
            if left < at_x < left + WIDTH and top < at_y < top + HEIGHT:
                return True
    return False


class Picture(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.drawn = draw(ROOT)
        boxes = [(*map(int, found[:4]), found[4]) for found in BOX.findall(cls.drawn)]
        cls.rooms, cls.layers = ([box[:4] for box in boxes if box[4] == kind] for kind in ("room", "layer"))
        arrows = [([tuple(map(float, point.split(","))) for point in points.split()], kind)
                  for points, kind in ARROW.findall(cls.drawn)]
        cls.arrows = [points for points, _ in arrows]
        cls.of_layers = [points for points, kind in arrows if kind == "layers"]

    def test_all_is_drawn(self):
        self.assertEqual((len(self.layers), len(self.rooms)), (len(LAYERS), len(ROOMS)))
        self.assertGreater(len(self.arrows), len(ROOMS))
        self.assertEqual(len(self.of_layers), len(LAYERS), "one for each two neighbours, and one in the legend")

    def test_no_arrow_is_behind_a_room(self):
        for room, arrow in itertools.product(self.rooms, self.arrows):
            self.assertFalse(passes_behind(arrow, room[:2]), (arrow, room))

    def test_no_arrow_crosses_another(self):
        for one, other in itertools.combinations(self.arrows, 2):
            self.assertFalse(meet(one, other), (one, other))

    def test_size(self):
        width, height = map(int, SIZE.search(self.drawn).groups())
        self.assertLessEqual(width, 1000)
        for x, y, box_width, box_height in self.layers:
            self.assertTrue(0 < x < x + box_width < width and 0 < y < y + box_height < height)
        self.assertGreaterEqual(min(map(int, re.findall(r"(\d+)px", STYLE))), 12)
        self.assertIn(f"font: {TEXT}px", STYLE)

    def test_text_is_inside_of_its_box(self):
        for x, y, kind, words in WORDS.findall(self.drawn):
            words = html.unescape(words)
            x, y, size = int(x), int(y), 14 if kind == "title" else TEXT
            right, bottom = x + width_of(words, size), y + 4
            around = [box for box in self.rooms + self.layers if box[0] < x < box[0] + box[2] and box[1] < y < box[1] + box[3]]
            for left, top, width, height in around:
                self.assertTrue(right < left + width and bottom < top + height and y - size > top, words)
            if not around:  # the legend
                self.assertFalse([box for box in self.layers if box[0] < right and x < box[0] + box[2] and
                                  box[1] < bottom and y - size < box[1] + box[3]], words)

    def test_rooms_are_inside_of_their_layers(self):
        for x, y, width, height in self.rooms:
            self.assertEqual(sum(left < x < x + width < left + of_width and top < y < y + height < top + of_height
                                 for left, top, of_width, of_height in self.layers), 1)


class Arrows(unittest.TestCase):
    def drawn(self, edges):
        """The arrows of a layer, and the corners of its rooms."""
        rows = rows_of(edges)
        columns = columns_of(edges, rows)
        highest = max(rows.values())
        return arrows_between(edges, rows, columns), [place_of(rows[room], columns[room], highest) for room in edges]

    def test_no_arrow_over_many_rows_is_behind_a_room(self):
        grid = {(row, column): [(row - 1, 0), (row - 1, 1)] if row else [] for row in range(4) for column in range(2)}
        for start, end in itertools.product(grid, grid):
            if start[0] > end[0] + 1:
                arrows, rooms = self.drawn({**grid, start: [*grid[start], end]})
                for arrow, room in itertools.product(arrows, rooms):
                    self.assertFalse(passes_behind(arrow, room), (start, end))

    def test_what_is_behind_a_room(self):
        self.assertTrue(passes_behind([(-10, -10), (WIDTH, HEIGHT)], (0, 0)))
        self.assertFalse(passes_behind([(0, -10), (WIDTH, -10)], (0, 0)))

    def test_what_meets(self):
        line = [(0, 0), (50, 50), (100, 50)]
        for other in [[(0, 50), (50, 0)], [(60, 0), (60, 100)], [(70, 50), (200, 50)], [(100, 52), (200, 52)]]:
            self.assertTrue(meet(line, other), other)
        for other in [[(0, 20), (30, 50)], [(0, 60), (200, 60)]]:
            self.assertFalse(meet(line, other), other)

    def test_rooms_stand_above_what_they_include(self):
        edges = {"a": [], "b": [], "c": [], "d": ["c"], "e": ["a"], "f": ["d", "e"]}
        rows = rows_of(edges)
        self.assertTrue(all(rows[room] > rows[other] for room in edges for other in edges[room]))
        self.assertEqual(max(rows.values()), 2)
        columns = columns_of(edges, rows)
        self.assertEqual(columns["d"], columns["c"])
        self.assertEqual(columns["e"], columns["a"])

    def test_a_room_that_may_be_in_several_rows_is_in_a_short_one(self):
        rows = rows_of({"a": [], "b": ["a"], "c": ["a"], "d": ["a"], "e": ["b", "c"], "f": ["e", "d"]})
        self.assertEqual(rows, {"a": 0, "b": 1, "c": 1, "d": 2, "e": 2, "f": 3})

    def test_ways_do_not_cross_where_they_need_not(self):
        edges = {"a": [], "b": [], "c": [], "d": ["a"], "e": ["a", "c"], "f": ["b", "c"]}
        arrows, _ = self.drawn(edges)
        self.assertFalse(any(meet(one, other) for one, other in itertools.combinations(arrows, 2)))

    def test_an_include_that_follows_from_others_has_no_arrow(self):
        self.assertEqual(reduced({"a": set(), "b": {"a"}, "c": {"a", "b"}}), {"a": [], "b": ["a"], "c": ["b"]})

    def test_lines(self):
        self.assertEqual(lines_of("one two three", width_of("one two") + 1), ["one two", "three"])


if __name__ == "__main__":
    unittest.main()
