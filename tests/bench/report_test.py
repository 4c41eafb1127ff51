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

    def test_figures_have_their_spread_in_order(self):
        for row in REPORT["figures"]:
            order = [row[key] for key in ("min", "quartile1", "value", "quartile3", "max")]
            self.assertEqual(order, sorted(order), row["what"])
            self.assertGreaterEqual(row["samples"], 1)
            self.assertIn(row["better"], ("more", "less"))

    def test_figures_have_names_of_their_own(self):
        names = [(row["part"], row["what"]) for row in REPORT["figures"]]
        self.assertEqual(len(names), len(set(names)))

    def test_stages_add_up(self):
        for scenario in ("thesis-1", "thesis-2", "thesis-3"):
            run = REPORT["details"][scenario]["losses"]
            stages = sum(seconds[0] for seconds in run["stages_seconds"].values())
            self.assertGreater(stages, 0)
            self.assertLess(stages, 3 * run["quartiles"][1], scenario)

    def test_what_was_scaled_says_so(self):
        run = REPORT["details"]["thesis-1"]["compiled_losses"]
        self.assertEqual(run["extrapolated"], run["expressions_measured"] < REPORT["details"]["thesis-1"]["expressions"])
        rows = [row for row in REPORT["figures"] if row["part"] == "thesis-1" and "machine code" in row["what"]]
        self.assertEqual([row.get("extrapolated", False) for row in rows], [run["extrapolated"]])


if __name__ == "__main__":
    unittest.main()
