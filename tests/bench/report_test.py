"""The JSON of a quick run: report_test.py REPORT SCENARIOS.DEF"""

import json
import re
import sys
import unittest

DEFINITIONS = open(sys.argv.pop(2), encoding="utf-8").read()
REPORT = json.load(open(sys.argv.pop(1), encoding="utf-8"))
NAMES = re.findall(r'^SRJIT_SCENARIO\(\w+, "([\w-]+)"', DEFINITIONS, re.MULTILINE)
FIGURES = REPORT["figures"]


def figures(part, **facts):
    return [row for row in FIGURES if row["part"] == part and all(row["facts"].get(k) == v for k, v in facts.items())]


def metrics(rows):
    return {row["metric"]: row for row in rows}


class Report(unittest.TestCase):
    def test_is_complete(self):
        self.assertTrue(REPORT["complete"])
        self.assertEqual(REPORT["faults"], [])

    def test_has_all_scenarios(self):
        self.assertGreaterEqual(len(NAMES), 12)
        self.assertEqual(list(dict.fromkeys(row["part"] for row in FIGURES)), NAMES)

    def test_describes_the_machine(self):
        for fact in ("date", "device", "host_cores", "found"):
            self.assertIn(fact, REPORT["machine"])

    def test_quantiles_of_figures_ascend(self):
        for row in FIGURES:
            order = [row[key] for key in ("min", "quartile1", "value", "quartile3", "max")]
            self.assertEqual(order, sorted(order), row["what"])
            if row["samples"] == 2:
                self.assertAlmostEqual(row["value"], (row["min"] + row["max"]) / 2, msg=row["what"])
            self.assertEqual(row["samples"], len(row["values"]))
            self.assertGreaterEqual(row["samples"], 1)
            self.assertIn(row["better"], ("more", "less"))

    def test_figure_names_are_unique(self):
        names = [(row["part"], row["what"]) for row in FIGURES]
        self.assertEqual(len(names), len(set(names)))

    def test_stages_add_up(self):
        stages = ("frontend", "upload", "compile", "kernels", "copies and host")
        for scenario in ("thesis-1", "thesis-2", "thesis-3"):
            for result in ("losses", "predictions"):
                run = metrics(row for row in figures(scenario, result=result) if "design" not in row["facts"])
                parts = [run["of that, " + stage]["values"] for stage in stages]
                for total, *milliseconds in zip(run["text to last result"]["values"], *parts, strict=True):
                    self.assertAlmostEqual(sum(milliseconds) / 1e3, total, delta=0.1 * total, msg=scenario)

    def test_designs_were_checked(self):
        seen = 0
        for row in FIGURES:
            if "sums_compared" not in row["facts"] or row["metric"] not in ("to last result", "expressions to losses"):
                continue
            seen += 1
            sums = int(re.search(r"within their bound, (\d+) sums", row["note"]).group(1))
            self.assertGreater(sums, 0, row["what"])
            self.assertEqual(row["facts"]["sums_compared"], row["facts"]["measured"])
            self.assertGreater(row["facts"]["sums_finite"], 0, row["what"])
        self.assertGreaterEqual(seen, 8)

    def test_designs_that_cannot_run_are_reported(self):
        told = {(row["part"], row["name"]) for row in REPORT["not_run"]}
        for scenario in ("thesis-1", "mit-generation", "mixed"):
            self.assertIn((scenario, "nvrtc"), told)

    def test_fresh_generations_are_timed(self):
        for population in ("small expressions", "random trees", "mutated formulas"):
            rows = figures("fresh", population=population)
            run = metrics(row for row in rows if row["facts"].get("tier") == "auto")
            for total, compiling, front_end in zip(
                    *(run[key]["values"] for key in ("the same by compile() and loss()", "of that, compile()",
                                                     "of that, passes and encoding")), strict=True):
                self.assertGreater(front_end, 0)
                self.assertLessEqual(front_end, compiling)
                self.assertLess(compiling, total)
            self.assertGreater(run["evaluated again"]["min"], 0)
            self.assertGreater(run["token arrays to losses"]["min"], 0)
            # Designs that compile code are left out.
            names = {row["facts"]["design"] for row in rows if "design" in row["facts"]}
            names |= {row["name"] for row in REPORT["not_run"] if row["part"] == "fresh"}
            self.assertLessEqual({"stack-once", "tree-arrays", "cpu-switch"}, names)
            self.assertTrue(names.isdisjoint({"ptx-each", "nvrtc"}))


if __name__ == "__main__":
    unittest.main()
