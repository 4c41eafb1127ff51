"""The JSON of a quick run: report_test.py REPORT SCENARIOS.DEF"""

import json
import re
import sys
import unittest

DEFINITIONS = open(sys.argv.pop(2), encoding="utf-8").read()
REPORT = json.load(open(sys.argv.pop(1), encoding="utf-8"))
NAMES = re.findall(r'^SRJIT_SCENARIO\(\w+, "([\w-]+)"', DEFINITIONS, re.MULTILINE)


class Report(unittest.TestCase):
    def test_is_complete(self):
        self.assertTrue(REPORT["complete"])
        self.assertEqual(REPORT["faults"], [])

    def test_has_all_scenarios(self):
        self.assertGreaterEqual(len(NAMES), 9)
        self.assertEqual(list(REPORT["details"]), NAMES)
        self.assertEqual({row["part"] for row in REPORT["figures"]}, set(NAMES))

    def test_describes_the_machine(self):
        for fact in ("date", "device", "host_cores", "found"):
            self.assertIn(fact, REPORT["machine"])

    def test_quantiles_of_figures_ascend(self):
        for row in REPORT["figures"]:
            order = [row[key] for key in ("min", "quartile1", "value", "quartile3", "max")]
            self.assertEqual(order, sorted(order), row["what"])
            if row["samples"] == 2:
                self.assertAlmostEqual(row["value"], (row["min"] + row["max"]) / 2, msg=row["what"])
            self.assertGreaterEqual(row["samples"], 1)
            self.assertIn(row["better"], ("more", "less"))

    def test_figure_names_are_unique(self):
        names = [(row["part"], row["what"]) for row in REPORT["figures"]]
        self.assertEqual(len(names), len(set(names)))

    def test_stages_add_up(self):
        for scenario in ("thesis-1", "thesis-2", "thesis-3"):
            details = REPORT["details"][scenario]
            runs = [details["losses"]] + [run for run in details["predictions"].values() if isinstance(run, dict)]
            for run in runs:
                stages = run["stages_seconds"]
                self.assertEqual(set(stages), {"frontend", "upload", "compile", "kernels", "copies and host"})
                self.assertGreater(sum(seconds[0] for seconds in stages.values()), 0)
                # Medians of several samples need not add up.
                if run["samples"] == 1:
                    total = run["total_seconds"]
                    self.assertAlmostEqual(sum(s[0] for s in stages.values()), total, delta=0.1 * total, msg=scenario)

    def test_baselines_were_checked(self):
        seen = 0
        for scenario, details in REPORT["details"].items():
            for one in [details] + details.get("shapes", []):
                for row in one.get("baselines", []):
                    self.assertNotIn("failed", row, scenario)
                    if "total_seconds" not in row:
                        continue
                    seen += 1
                    sums = int(re.search(r"within their bound, (\d+) sums", row["check"]).group(1))
                    self.assertGreater(sums, 0, scenario)
                    self.assertEqual(row["sums_compared"], row["expressions_measured"])
                    self.assertGreater(row["sums_finite"], 0, scenario)
                    self.assertGreater(row["total_seconds"], 0)
        self.assertGreaterEqual(seen, 3)

    def test_designs_that_cannot_run_are_reported(self):
        told = {(row["part"], row["name"]) for row in REPORT["not_run"]}
        for scenario in ("thesis-1", "mit-generation", "mixed"):
            self.assertIn((scenario, "nvrtc"), told)

    def test_only_new_expressions_have_a_preparation_time(self):
        own = REPORT["details"]["mit-generation"]
        for point in own["over_expressions"]:
            self.assertGreater(point["compile"]["ready_seconds"], 0)
        for point in own["over_rows"]:
            self.assertNotIn("ready_seconds", point["compile"])

    def test_fresh_generations_are_timed(self):
        shapes = REPORT["details"]["fresh"]["shapes"]
        self.assertEqual([shape["population"] for shape in shapes],
                         ["small expressions", "random trees", "mutated formulas"])
        for shape in shapes:
            fresh = shape["fresh"]
            for total, compiling, passes, encoding in zip(
                    *(fresh[key + "_ms"] for key in ("total", "compile", "passes", "encoding")), strict=True):
                self.assertGreater(passes, 0)
                self.assertLessEqual(passes + encoding, compiling)
                self.assertLess(compiling, total)
            self.assertGreater(min(fresh["again_ms"]), 0)
            self.assertEqual(len(fresh["one_call_ms"]), len(fresh["total_ms"]))
            self.assertGreater(min(fresh["one_call_ms"]), 0)
            self.assertGreater(min(shape["front_end_ns"]), 0)
            # Designs that compile code are left out.
            names = {row["name"] for row in shape["baselines"]}
            self.assertLessEqual({"stack-once", "tree-arrays", "cpu-switch"}, names)
            self.assertTrue(names.isdisjoint({"ptx-each", "nvrtc"}))
        half = shapes[1]["half_kept"]
        self.assertEqual(half["ratios"], [kept / new for kept, new in zip(half["half_kept_ms"], half["fresh_ms"])])

    def test_extrapolated_figures_are_marked(self):
        run = REPORT["details"]["thesis-1"]["compiled_losses"]
        self.assertEqual(run["extrapolated"], run["expressions_measured"] < REPORT["details"]["thesis-1"]["expressions"])
        rows = [row for row in REPORT["figures"] if row["part"] == "thesis-1" and "machine code" in row["what"]]
        self.assertEqual([row.get("extrapolated", False) for row in rows], [run["extrapolated"]])


if __name__ == "__main__":
    unittest.main()
