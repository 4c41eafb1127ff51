"""tools/bench/compare on synthetic reports: compare_test.py COMPARE"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

COMPARE = sys.argv.pop(1)


def figure(value, what="x", better="less", spread=0.01, samples=9, unit="ms", **more):
    return {"part": "thesis-1", "what": what, "unit": unit, "better": better, "value": value, "samples": samples,
            "min": value * (1 - 2 * spread), "quartile1": value * (1 - spread), "quartile3": value * (1 + spread),
            "max": value * (1 + 2 * spread), **more}


def rate(value):
    return figure(value, better="more", unit="T nodes/s")


NONE, TWO = figure(1, "n") | {"value": None, "min": None}, [figure(10), figure(10, "y")]
FAULTS = [{"faults": [{"part": "tiers", "message": "the device is lost"}]}, {"complete": False}]

# What is checked, figures of both reports, exit status, words of the output, words that are not there, options, facts of the second.
ROWS = [
    ("equal", [figure(10)], [figure(10)], 0, ["1 figures: 0 slower, 0 faster"], []),
    ("slower", [figure(10)], [figure(12)], 1, ["SLOWER", "1.200x"], []),
    ("faster", [figure(10)], [figure(8)], 0, ["faster"], []),
    ("a lower rate", [rate(5.0)], [rate(4.0)], 1, [], []),
    ("a higher rate", [rate(4.0)], [rate(5.0)], 0, [], []),
    ("within noise", [figure(10, spread=0.2)], [figure(12, spread=0.2)], 0, [], ["SLOWER"]),
    ("below the threshold", [figure(10, spread=0.001)], [figure(10.3, spread=0.001)], 0, [], []),
    ("above it", [figure(10, spread=0.001)], [figure(10.3, spread=0.001)], 1, [], [], ["--threshold", "0.01"]),
    ("few samples", [figure(10, samples=3)], [figure(13, samples=3)], 0, [], []),
    ("a larger change of them", [figure(10, samples=3)], [figure(16, samples=3)], 1, [], []),
    ("few that are apart", [figure(10, samples=4, spread=0.1)], [figure(16, samples=4, spread=0.1)], 1, [], []),
    ("few that overlap", [figure(10, samples=4, spread=0.1) | {"max": 15}], [figure(16, samples=4, spread=0.1)], 0, [], []),
    ("a single sample", [figure(10, spread=0, samples=1)], [figure(90, spread=0, samples=1)], 0, ["single?"], []),
    ("scaled and measured", [figure(10)], [figure(20, extrapolated=True)], 0, ["scaled?"], []),
    ("no time or rate", [figure(10), figure(10, "n", unit="nodes")], [figure(10), figure(90, "n", unit="nodes")], 0, ["1 figures"], []),
    ("without a value", [figure(10), NONE], [figure(10), NONE], 0, [], []),
    *(("faults", [figure(10)], [figure(10)], 2, ["note:"], [], [], facts) for facts in FAULTS),
    *(("faults, partial", [figure(10)], [figure(10)], 0, [], [], ["--partial"], facts) for facts in FAULTS),
    ("missing figures", TWO, TWO[:1], 2, ["1 figures of"], []),
    ("missing, partial", TWO, TWO[:1], 0, [], [], ["--partial"]),
    ("more figures", TWO[:1], TWO, 0, [], []),
    ("another device", [figure(1)], [figure(1)], 0, ["differ in device"], [], [], {"machine": {"device": "cuda:0"}}),
    ("no common figure", [figure(10)], [figure(10, "y")], 2, ["no figure is in both"], []),
]


def compare(before, after, options=(), facts=None):
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder, name) for name in "ab"]
        for path, figures, more in zip(paths, (before, after), ({}, facts or {})):
            path.write_text(json.dumps({"machine": {"device": "cpu"}, "figures": figures, **more}), encoding="utf-8")
        return subprocess.run([sys.executable, COMPARE, *paths, *options], capture_output=True, text=True, check=False)


class Compare(unittest.TestCase):
    def test_rows(self):
        for name, before, after, status, there, absent, *more in ROWS:
            with self.subTest(name):
                done = compare(before, after, *more)
                said = done.stdout + done.stderr
                self.assertEqual(done.returncode, status, said)
                self.assertEqual([[word in said for word in words] for words in (there, absent)],
                                 [[True] * len(there), [False] * len(absent)], said)

    def test_the_worst_change_is_first(self):
        out = compare(TWO, [figure(12), figure(20, "y")]).stdout
        self.assertLess(out.index("thesis-1: y"), out.index("thesis-1: x"))

    def test_a_file_that_is_no_report_is_an_error(self):
        done = subprocess.run([sys.executable, COMPARE, "/dev/null", "/dev/null"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, "no report" in done.stderr), (2, True))


if __name__ == "__main__":
    unittest.main()
