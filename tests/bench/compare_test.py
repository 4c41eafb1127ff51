"""tools/bench/compare on synthetic reports: compare_test.py COMPARE"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

COMPARE = sys.argv.pop(1)


def figure(what, value, better="less", spread=0.01, samples=9, unit="ms"):
    return {"part": "thesis-1", "what": what, "unit": unit, "better": better, "value": value, "samples": samples,
            "min": value * (1 - 2 * spread), "quartile1": value * (1 - spread), "quartile3": value * (1 + spread),
            "max": value * (1 + 2 * spread)}


class Compare(unittest.TestCase):
    def run_on(self, before, after, *options, **facts):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, figures in (("a", before), ("b", after)):
                paths.append(os.path.join(folder, name))
                with open(paths[-1], "w", encoding="utf-8") as file:
                    json.dump({"machine": {"device": "cpu"}, "figures": figures, **facts}, file)
            done = subprocess.run([sys.executable, COMPARE, *paths, *options], capture_output=True, text=True, check=False)
            return done.returncode, done.stdout, done.stderr

    def test_equal_reports_have_no_change(self):
        status, out, _ = self.run_on([figure("x", 10)], [figure("x", 10)])
        self.assertEqual(status, 0)
        self.assertIn("1 figures: 0 slower, 0 faster", out)

    def test_slower(self):
        status, out, _ = self.run_on([figure("x", 10)], [figure("x", 12)])
        self.assertEqual(status, 1)
        self.assertIn("SLOWER", out)
        self.assertIn("1.200x", out)

    def test_faster(self):
        status, out, _ = self.run_on([figure("x", 10)], [figure("x", 8)])
        self.assertEqual(status, 0)
        self.assertIn("faster", out)

    def test_a_lower_rate_is_slower(self):
        before, after = figure("x", 5.0, better="more", unit="T nodes/s"), figure("x", 4.0, better="more", unit="T nodes/s")
        self.assertEqual(self.run_on([before], [after])[0], 1)
        self.assertEqual(self.run_on([after], [before])[0], 0)

    def test_within_noise(self):
        status, out, _ = self.run_on([figure("x", 10, spread=0.2)], [figure("x", 12, spread=0.2)])
        self.assertEqual(status, 0)
        self.assertNotIn("SLOWER", out)

    def test_below_the_threshold(self):
        before, after = [figure("x", 10, spread=0.001)], [figure("x", 10.3, spread=0.001)]
        self.assertEqual(self.run_on(before, after)[0], 0)
        self.assertEqual(self.run_on(before, after, "--threshold", "0.01")[0], 1)

    def test_few_samples_need_a_larger_change(self):
        before = [figure("x", 10, samples=3)]
        self.assertEqual(self.run_on(before, [figure("x", 13, samples=3)])[0], 0)
        self.assertEqual(self.run_on(before, [figure("x", 16, samples=3)])[0], 1)

    def test_few_samples_must_not_overlap(self):
        before, after = figure("x", 10, samples=4, spread=0.1), figure("x", 16, samples=4, spread=0.1)
        self.assertEqual(self.run_on([before], [after])[0], 1)
        self.assertEqual(self.run_on([{**before, "max": 15}], [after])[0], 0)

    def test_a_single_sample_never_fails(self):
        status, out, _ = self.run_on([figure("x", 10, spread=0, samples=1)], [figure("x", 90, spread=0, samples=1)])
        self.assertEqual(status, 0)
        self.assertIn("single?", out)

    def test_scaled_against_measured_never_fails(self):
        status, out, _ = self.run_on([figure("x", 10)], [{**figure("x", 20), "extrapolated": True}])
        self.assertEqual(status, 0)
        self.assertIn("scaled?", out)

    def test_only_times_and_rates_count(self):
        status, out, _ = self.run_on([figure("x", 10), figure("n", 10, unit="nodes")],
                                     [figure("x", 10), figure("n", 90, unit="nodes")])
        self.assertEqual(status, 0)
        self.assertIn("1 figures", out)

    def test_a_figure_without_a_value_is_ignored(self):
        none = {**figure("n", 1), "value": None, "min": None}
        self.assertEqual(self.run_on([figure("x", 10), none], [figure("x", 10), none])[0], 0)

    def test_a_report_with_faults_is_rejected(self):
        same = [figure("x", 10)]
        fault = [{"part": "tiers", "message": "the device is lost"}]
        for facts in ({"faults": fault}, {"complete": False}):
            status, _, err = self.run_on(same, same, **facts)
            self.assertEqual(status, 2, facts)
            self.assertIn("note:", err)
            self.assertEqual(self.run_on(same, same, "--partial", **facts)[0], 0, facts)

    def test_missing_figures_are_an_error(self):
        before = [figure("x", 10), figure("y", 10)]
        status, _, err = self.run_on(before, before[:1])
        self.assertEqual(status, 2)
        self.assertIn("1 figures of", err)
        self.assertEqual(self.run_on(before, before[:1], "--partial")[0], 0)
        self.assertEqual(self.run_on(before[:1], before)[0], 0)

    def test_the_worst_change_is_first(self):
        _, out, _ = self.run_on([figure("x", 10), figure("y", 10)], [figure("x", 12), figure("y", 20)])
        self.assertLess(out.index("thesis-1: y"), out.index("thesis-1: x"))

    def test_different_devices_are_noted(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in "ab"]
            for path, device in zip(paths, ("cpu", "cuda:0")):
                with open(path, "w", encoding="utf-8") as file:
                    json.dump({"machine": {"device": device}, "figures": [figure("x", 1)]}, file)
            done = subprocess.run([sys.executable, COMPARE, *paths], capture_output=True, text=True, check=False)
            self.assertIn("differ in device", done.stdout)

    def test_reports_without_a_common_figure_are_an_error(self):
        status, _, err = self.run_on([figure("x", 10)], [figure("y", 10)])
        self.assertEqual(status, 2)
        self.assertIn("no figure is in both", err)

    def test_a_file_that_is_no_report_is_an_error(self):
        done = subprocess.run([sys.executable, COMPARE, "/dev/null", "/dev/null"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no report", done.stderr)


if __name__ == "__main__":
    unittest.main()
