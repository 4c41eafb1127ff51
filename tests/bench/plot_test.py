"""Figures of a quick run's JSON: plot_test.py PLOT REPORT. Exits with 3 without matplotlib."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree

PLOT, REPORT = sys.argv[1:3]
FIGURES = ["break-even", "compile-and-run", "compile-stages", "generation", "roofline", "scaling", "sharing",
           "thesis-losses", "thesis-predictions", "thesis-stages"]


def plot(*arguments):
    return subprocess.run([sys.executable, "-B", PLOT, *arguments], capture_output=True, text=True, check=False)


def quick_report():
    with open(REPORT, encoding="utf-8") as file:
        return json.load(file)


def with_baselines(report):
    """The report with added measurements of published designs and of a GPU's limits."""
    for scenario in ("thesis-1", "thesis-2", "thesis-3", "mit-generation"):
        report["details"][scenario]["baselines"] = [
            {"name": "stack-once", "result": result, "total_seconds": 3.5, "step_seconds": 0.03, "extrapolated": False}
            for result in ("losses", "predictions")] + [
            {"name": "nvrtc", "result": "losses", "total_seconds": 350.0, "step_seconds": 0.03, "extrapolated": True},
            {"name": "ptx-each", "not_run": "no CUDA driver"}]
    own = report["details"]["mit-generation"]
    own["baselines_over_expressions"] = [
        {"name": "stack-once", "expressions": count, "loss_seconds": count * 1e-4} for count in (50, 100, 200)]
    own["baselines_over_rows"] = [{"name": "nvrtc", "rows": own["rows"], "loss_seconds": 0.5, "extrapolated": True}]
    for population in ("mixed", "arithmetic"):
        for shape in report["details"][population]["shapes"]:
            for run in shape["tiers"]:
                run["least_seconds"] = {"issue": 1e-5, "special": 2e-5 if population == "mixed" else 0, "bandwidth": 3e-6}
    return report


def with_direct(report):
    """The report with added measurements of the direct tier."""
    details = report["details"]
    for scenario in ("thesis-1", "thesis-2", "thesis-3"):
        details[scenario]["direct_losses"] = details[scenario]["interpreted_losses"] = details[scenario]["losses"]
    own = details["mit-generation"]
    own["generation_tier"] = "direct"
    own["interpreted_generations"] = own["generations"]
    own["direct_steady"] = own["steady"]
    for point in own["over_expressions"]:
        point["direct"] = {**point["interpret"], "ready_seconds": 2 * point["interpret"]["ready_seconds"]}
    for point in own["over_rows"]:
        point["direct"] = point["interpret"]
    for population in ("mixed", "arithmetic"):
        for shape in details[population]["shapes"]:
            shape["tiers"] += [{**run, "tier": "direct"} for run in shape["tiers"] if run["tier"] == "interpret"]
    for size in details["compile"]["sizes"]:
        size["direct_seconds"] = 2 * size["interpret_seconds"]
    for one in details["tiers"]["maps"]:
        for point in one["points"]:
            point.update(cpu_ready_seconds=1e-6, cpu_evaluation_seconds=1e-6 * point["rows"])
            point.update(direct_ready_seconds=1.5 * point["interpret_ready_seconds"], measured_direct_evaluations=30,
                         direct_evaluation_seconds=0.8 * point["interpret_evaluation_seconds"], predicted_direct_evaluations=None)
    return report


class Plot(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def check_figures(self):
        self.assertEqual(sorted(os.listdir(self.path("out"))), sorted(f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")))
        for name in FIGURES:
            svg = tree.parse(self.path(f"out/{name}.svg")).getroot()
            self.assertTrue(any(element.tag.endswith("text") for element in svg.iter()), name)
            with open(self.path(f"out/{name}.png"), "rb") as file:
                header = file.read(24)
            width, height = (int.from_bytes(header[i:i + 4], "big") for i in (16, 20))
            self.assertTrue(header.startswith(b"\x89PNG") and 500 < width < 2000 and 300 < height < 2000, (name, width, height))

    def drawn(self, report, *arguments):
        """The texts of a report's figures by name, of SVG files."""
        with open(self.path("report.json"), "w", encoding="utf-8") as file:
            json.dump(report, file)
        done = plot(self.path("report.json"), "--out", self.path("out"), "--format", "svg", *arguments)
        texts = {}
        for name in os.listdir(self.path("out")):
            with open(self.path(f"out/{name}"), encoding="utf-8") as file:
                texts[name.removesuffix(".svg")] = file.read()
        return done, texts

    def test_all_figures(self):
        done = plot(REPORT, "--out", self.path("out"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_figures()

    def test_preparation_time_is_of_new_expressions(self):
        report = quick_report()
        own = report["details"]["mit-generation"]
        for point in own["over_expressions"]:
            for tier in ("interpret", "compile"):
                at_full_size = point["expressions"] == own["expressions"]
                point[tier]["ready_seconds"] = (0.123 if tier == "interpret" else 4.56) if at_full_size else 77
        self.assertTrue(all("ready_seconds" not in point["compile"] for point in own["over_rows"]))
        _, texts = self.drawn(report, "--only", "compile-and-run")
        for text in ("123 ms to make ready", "4.56 s to make ready"):
            self.assertTrue(text in texts["compile-and-run"], text)

    def test_published_bars_are_for_their_sizes(self):
        report, names = quick_report(), ("thesis-losses", "generation", "scaling")
        only = [word for name in names for word in ("--only", name)]
        _, texts = self.drawn(report, *only)
        for name in names:
            self.assertFalse("published" in texts[name], name)
        report["details"]["thesis-3"].update(expressions=10000, rows=10860, steps=100)
        own = report["details"]["mit-generation"]
        own.update(expressions=2000, rows=1000000)
        own["over_expressions"][-1]["expressions"] = 2000
        own["over_rows"][-1]["rows"] = 1000000
        _, texts = self.drawn(report, *only)
        for name, text in zip(names, ("25.4 s", "220 ms", "published, cached")):
            self.assertTrue(text in texts[name], name)

    def test_a_figure_that_fails_does_not_stop_the_others(self):
        report = quick_report()
        report["details"]["compile"]["sizes"] = [{}]
        report["details"]["mit-generation"]["over_rows"] = []
        done, texts = self.drawn(report, "--only", "compile-stages", "--only", "compile-and-run", "--only", "scaling")
        self.assertEqual(done.returncode, 1)
        self.assertIn("compile-stages cannot be drawn", done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(sorted(texts), ["compile-and-run", "scaling"])

    def test_wrong_usage_has_its_exit_status(self):
        for arguments, status in ((("--format", "bmp"), 2), (("--only", "none"), 2), (("--out", "/dev/null/x"), 1)):
            done = plot(REPORT, *arguments)
            self.assertEqual(done.returncode, status, arguments)
            self.assertNotIn("Traceback", done.stderr)

    def test_with_baselines_and_limits(self):
        report = with_baselines(quick_report())
        with open(self.path("report.json"), "w", encoding="utf-8") as file:
            json.dump(report, file)
        done = plot(self.path("report.json"), "--out", self.path("out"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_figures()
        with open(self.path("out/thesis-losses.svg"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("stack-once", text)
        self.assertIn("nvrtc *", text)
        with open(self.path("out/scaling.svg"), encoding="utf-8") as file:
            self.assertTrue("nvrtc *" in file.read())

    def test_with_the_direct_tier(self):
        report = with_direct(quick_report())
        with open(self.path("report.json"), "w", encoding="utf-8") as file:
            json.dump(report, file)
        done = plot(self.path("report.json"), "--out", self.path("out"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_figures()
        for name in ("break-even", "compile-and-run", "generation", "roofline", "scaling", "thesis-losses", "thesis-stages"):
            with open(self.path(f"out/{name}.svg"), encoding="utf-8") as file:
                self.assertIn("direct code", file.read(), name)
        with open(self.path("out/break-even.svg"), encoding="utf-8") as file:
            self.assertTrue(">processor<" in file.read())

    def test_the_same_report_gives_the_same_figure(self):
        for out in ("one", "two"):
            self.assertEqual(plot(REPORT, "--out", self.path(out), "--only", "scaling", "--format", "svg").returncode, 0)
        files = []
        for out in ("one", "two"):
            with open(self.path(f"{out}/scaling.svg"), encoding="utf-8") as file:
                files.append(file.read())
        self.assertTrue(files[0] == files[1])

    def test_a_missing_scenario_is_left_out(self):
        report = quick_report()
        report["details"] = {"sharing": report["details"]["sharing"]}
        with open(self.path("report.json"), "w", encoding="utf-8") as file:
            json.dump(report, file)
        self.assertEqual(plot(self.path("report.json"), "--out", self.path("out"), "--format", "png").returncode, 0)
        self.assertEqual(os.listdir(self.path("out")), ["sharing.png"])

    def test_a_file_that_is_no_report_is_an_error(self):
        done = plot("/dev/null", "--out", self.path("out"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("no report", done.stderr)


if __name__ == "__main__":
    if plot("--help").returncode == 3:
        print("skipped: no matplotlib")
        sys.exit(3)
    unittest.main(argv=sys.argv[:1])
