"""Where the rooms of a layer stand in the picture of draw_rooms.py, and the ways of the arrows between them.

Rooms stand on a grid of rows, numbered from the lowest, and columns. A room stands above those that it includes. Points
are (x, y) in pixels from the left end of the first column and the top of the highest row.
"""

import functools
import itertools
import math

WIDTH, HEIGHT, GAP, RISE = 160, 78, 22, 30  # size of a room, and distances between rooms
NEAR = 4  # pixels: lines that are nearer to each other look like one, or like a crossing


def place_of(row, column, highest):
    """The left upper corner of a room."""
    return column * (WIDTH + GAP), (highest - row) * (HEIGHT + RISE)


def distance(point, start, end):
    """From a point to a line between two points."""
    (x, y), (to_x, to_y) = start, end
    length = (to_x - x) ** 2 + (to_y - y) ** 2
    at = 0 if length == 0 else max(0, min(1, ((point[0] - x) * (to_x - x) + (point[1] - y) * (to_y - y)) / length))
    return math.dist(point, (x + at * (to_x - x), y + at * (to_y - y)))


def side(point, start, end):
    return (end[0] - start[0]) * (point[1] - start[1]) - (end[1] - start[1]) * (point[0] - start[0])


def meet(one, other):
    """Whether two ways, lists of points, cross or nearly touch."""
    for (a, b), (c, d) in itertools.product(itertools.pairwise(one), itertools.pairwise(other)):
        if side(a, c, d) * side(b, c, d) < 0 and side(c, a, b) * side(d, a, b) < 0:
            return True
        if min(distance(a, c, d), distance(b, c, d), distance(c, a, b), distance(d, a, b)) < NEAR:
            return True
    return False


def vias(start, end, taken, count):
    """Where a way may go down beside the rooms between two, each (row, column): x; None if there is no row between.

    That is a column in which none of the rooms between stands, or a gap beside a column.
    """
    if start[0] - end[0] == 1:
        return [None]
    between = range(end[0] + 1, start[0])
    free = [column for column in range(count) if not any((row, column) in taken for row in between)]
    gaps = [column * (WIDTH + GAP) - GAP / 2 for column in range(count + 1)]
    return [column * (WIDTH + GAP) + WIDTH / 2 for column in free] + gaps


def ways_of(edges, places, highest, via):
    """The points of each edge, (room, other), where `via` has its x beside the rooms between. Ends do not touch."""
    corner = {room: place_of(*places[room], highest) for room in places}
    middle = {room: x + WIDTH / 2 for room, (x, _) in corner.items()}
    at = {}
    for room in places:
        for end in (0, 1):  # those that leave the room, and those that reach it
            own = [edge for edge in edges if edge[end] == room]
            own.sort(key=lambda edge: (middle[edge[1 - end]] if via[edge] is None else via[edge], middle[edge[1 - end]]))
            at |= {(edge, end): corner[room][0] + WIDTH * (number + 1) / (len(own) + 1) for number, edge in enumerate(own)}
    found = {}
    for edge in edges:
        (_, top), (_, to_top) = corner[edge[0]], corner[edge[1]]
        points = [(at[edge, 0], top + HEIGHT), (at[edge, 1], to_top)]
        if via[edge] is not None:
            # In the column of one of its ends a way goes straight on.
            x = next((points[end][0] for end in (0, 1) if via[edge] == middle[edge[end]]), via[edge])
            points[1:1] = [(x, top + HEIGHT + RISE), (x, to_top - RISE)]
        found[edge] = points
    return found


def cost_of(ways):
    """What is wrong with the ways: crossings, then length to the side."""
    crossings = sum(meet(one, other) for one, other in itertools.combinations(ways.values(), 2))
    return crossings * 10_000 + sum(abs(x - to_x) for points in ways.values() for (x, _), (to_x, _) in itertools.pairwise(points))


def best_ways(edges, rows, columns):
    """The ways of all edges for rooms in these columns: each long one, in turn, goes where it is best."""
    places = {room: (rows[room], columns[room]) for room in rows}
    listed = [(room, other) for room in edges for other in edges[room]]
    taken, count, highest = set(places.values()), 1 + max(columns.values()), max(rows.values())
    choices = {edge: vias(places[edge[0]], places[edge[1]], taken, count) for edge in listed}
    via = {edge: choices[edge][0] for edge in listed}
    for edge in [edge for edge in listed if len(choices[edge]) > 1]:
        via[edge] = min(choices[edge], key=lambda x: cost_of(ways_of(listed, places, highest, {**via, edge: x})))
    return ways_of(listed, places, highest, via)


def first_columns(edges, levels, lowest, count):
    """The column of each room, where the rooms of the lowest row are in columns `lowest`: near to those that it includes."""
    found = dict(zip(levels[0], lowest))
    for level in levels[1:]:
        below = [[found[other] for other in edges[room]] or [(count - 1) / 2] for room in level]
        wanted = [sum(columns) / len(columns) for columns in below]
        columns = min(itertools.permutations(range(count), len(level)),
                      key=lambda columns: (sum(abs(a - b) for a, b in zip(columns, wanted)), columns))
        found |= dict(zip(level, columns))
    return found


def improved(levels, found, count, cost):
    """(cost, columns) after rooms have changed places in their rows as long as the arrows get better."""
    least, last = cost(tuple(found.items())), None
    while least != last:
        last = least
        for level in levels:
            for columns in itertools.permutations(range(count), len(level)):
                tried = {**found, **dict(zip(level, columns))}
                if (other := cost(tuple(tried.items()))) < least:
                    found, least = tried, other
    return least, found


def columns_of(edges, rows):
    """The column of each room: the best that are found from all orders of the lowest row."""
    levels = [[room for room in rows if rows[room] == row] for row in range(1 + max(rows.values()))]
    count = max(len(level) for level in levels)
    cost = functools.cache(lambda columns: cost_of(best_ways(edges, rows, dict(columns))))
    starts = [first_columns(edges, levels, lowest, count) for lowest in itertools.permutations(range(count), len(levels[0]))]
    return min((improved(levels, start, count, cost) for start in starts), key=lambda found: found[0])[1]


def arrows_between(edges, rows, columns):
    """The points of all arrows."""
    return list(best_ways(edges, rows, columns).values())
