"""No arrow of draw_rooms.py passes behind a room: of the repository's rooms, and of arrows over several rows."""

import itertools
import pathlib
import re
import unittest

from draw_rooms import GAP, HEIGHT, RISE, WIDTH, arrow_between, columns_of, draw

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOM = re.compile(r'<rect x="(\d+)" y="(\d+)" [^>]*class="room"/>')
ARROW = re.compile(r'<polyline points="([^"]+)"')


def passes_behind(points, room):
    """Whether an arrow has a point inside of a room, both as (left, top)."""
    left, top = room
    for (x, y), (to_x, to_y) in itertools.pairwise(points):
        for step in range(201):
            at_x, at_y = x + (to_x - x) * step / 200, y + (to_y - y) * step / 200
            if left < at_x < left + WIDTH and top < at_y < top + HEIGHT:
                return True
    return False


class Arrows(unittest.TestCase):
    def test_no_arrow_of_the_picture_is_behind_a_room(self):
        drawn = draw(ROOT)
        rooms = [(int(x), int(y)) for x, y in ROOM.findall(drawn)]
        arrows = [[tuple(map(int, point.split(","))) for point in points.split()] for points in ARROW.findall(drawn)]
        self.assertGreater(len(rooms), 10)
        self.assertGreater(len(arrows), 10)
        for room, arrow in itertools.product(rooms, arrows):
            self.assertFalse(passes_behind(arrow, room), (arrow, room))

    def test_arrows_over_full_rows(self):
        rooms = [(column * (WIDTH + GAP), row * (HEIGHT + RISE)) for column in range(4) for row in range(5)]
        for start, end in itertools.product(rooms, rooms):
            if end[1] > start[1]:
                self.assertFalse(any(passes_behind(arrow_between(start, end), room) for room in rooms), (start, end))

    def test_what_is_behind_a_room(self):
        self.assertTrue(passes_behind([(-10, -10), (WIDTH, HEIGHT)], (0, 0)))
        self.assertFalse(passes_behind([(0, -10), (WIDTH, -10)], (0, 0)))

    def test_rooms_stand_above_what_they_include(self):
        edges = {"a": [], "b": [], "c": [], "d": ["c"], "e": ["a"], "f": ["d", "e"]}
        depth = {"a": 0, "b": 0, "c": 0, "d": 1, "e": 1, "f": 2}
        columns = columns_of(list(edges), edges, depth)
        self.assertEqual(columns["d"], columns["c"])
        self.assertEqual(columns["e"], columns["a"])


if __name__ == "__main__":
    unittest.main()
