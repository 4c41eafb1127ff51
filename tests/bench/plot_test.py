"""Figures of a quick run's JSON: plot_test.py PLOT REPORT. Exits with 3 without matplotlib."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree

PLOT, REPORT = sys.argv[1:3]
FIGURES = ["break-even", "compile-stages", "generation", "rates", "thesis-losses", "thesis-predictions", "thesis-stages"]


def plot(*arguments):
    return subprocess.run([sys.executable, "-B", PLOT, *arguments], capture_output=True, text=True, check=False)


class Plot(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        with open(REPORT, encoding="utf-8") as file:
            self.report = json.load(file)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def drawn(self, *arguments):
        """The texts of the report's figures by name, of SVG files."""
        with open(self.path("report.json"), "w", encoding="utf-8") as file:
            json.dump(self.report, file)
        done = plot(self.path("report.json"), "--out", self.path("out"), "--format", "svg", *arguments)
        texts = {}
        for name in os.listdir(self.path("out")):
            with open(self.path(f"out/{name}"), encoding="utf-8") as file:
                texts[name.removesuffix(".svg")] = file.read()
        return done, texts

    def test_all_figures(self):
        # On a processor LLVM's code may never repay.
        self.report["figures"] += [{
            "part": "tiers", "what": f"{rows} rows", "metric": "repays", "unit": "evaluations", "value": rows / 10,
            "facts": {"rows": rows, "population": "mixed f32", "expressions": 4, "tier": "compile"}} for rows in (10, 20)]
        with open(self.path("report.json"), "w", encoding="utf-8") as file:
            json.dump(self.report, file)
        done = plot(self.path("report.json"), "--out", self.path("out"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(self.path("out"))),
                         sorted(f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")))
        for name in FIGURES:
            svg = tree.parse(self.path(f"out/{name}.svg")).getroot()
            self.assertTrue(any(element.tag.endswith("text") for element in svg.iter()), name)

    def test_published_bars_are_for_their_sizes(self):
        _, texts = self.drawn("--only", "thesis-losses")
        self.assertNotIn("published", texts["thesis-losses"])
        for row in self.report["figures"]:
            if row["part"] == "thesis-3":
                row["facts"]["expressions"] = 10000
        _, texts = self.drawn("--only", "thesis-losses")
        self.assertIn("published transpiler", texts["thesis-losses"])

    def test_a_figure_that_fails_does_not_stop_the_others(self):
        for row in self.report["figures"]:
            if row["part"] == "compile":
                del row["facts"]["nodes"]
        done, texts = self.drawn("--only", "compile-stages", "--only", "rates")
        self.assertEqual(done.returncode, 1)
        self.assertIn("compile-stages cannot be drawn", done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(sorted(texts), ["rates"])

    def test_wrong_usage_has_its_exit_status(self):
        for arguments, status in ((("--format", "bmp"), 2), (("--only", "none"), 2), (("--out", "/dev/null/x"), 1)):
            done = plot(REPORT, *arguments)
            self.assertEqual(done.returncode, status, arguments)
            self.assertNotIn("Traceback", done.stderr)

    def test_designs_and_extrapolated_figures_are_marked(self):
        for row in self.report["figures"]:
            if row["facts"].get("design") == "cpu-switch":
                row["extrapolated"] = True
        _, texts = self.drawn("--only", "thesis-losses")
        self.assertIn("cpu-switch, losses: to last result *", texts["thesis-losses"])

    def test_the_same_report_gives_the_same_figure(self):
        first = self.drawn("--only", "compile-stages")[1]
        self.assertEqual(first, self.drawn("--only", "compile-stages")[1])

    def test_a_missing_scenario_is_left_out(self):
        self.report["figures"] = [row for row in self.report["figures"] if row["part"] == "mixed"]
        self.assertEqual(list(self.drawn()[1]), ["rates"])

    def test_a_file_that_is_no_report_is_an_error(self):
        done = plot("/dev/null", "--out", self.path("out"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("no report", done.stderr)


if __name__ == "__main__":
    if plot("--help").returncode == 3:
        print("skipped: no matplotlib")
        sys.exit(3)
    unittest.main(argv=sys.argv[:1])
