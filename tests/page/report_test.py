"""The page of `sr-jit search --report` in a browser.

    report_test.py SR-JIT BROWSER

The page is used as a reader uses it: with the mouse, with keys, in dark colours, on a phone. All that the command writes
in LaTeX is typeset.
"""

import json
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

from browser import Browser

SR_JIT, BROWSER = sys.argv.pop(1), sys.argv.pop(1)
NAME = "it's </script><img src=x> & `b`"
ROWS = 5000


def run(*words):
    return subprocess.run([SR_JIT, *words], check=True, capture_output=True, text=True).stdout


def nested(operators, names, drawn, depth):
    """A random expression in prefix, in which every name is used once."""
    name, arity = drawn.choice(operators)
    return " ".join([name, *(nested(operators, names, drawn, depth - 1) if depth and drawn.random() < 0.6 else next(names)
                             for _ in range(arity))])


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name) / "page.html"
        table = cls.path.with_name("table.csv")
        drawn = random.Random(1)
        with table.open("w") as file:
            print(f'mass,speed,"{NAME}",energy', file=file)
            for _ in range(ROWS):
                mass, speed = drawn.uniform(1, 3), drawn.uniform(1, 9)
                print(mass, speed, drawn.random(), math.sin(mass * speed) + mass + speed / 3 + 0.1 * drawn.gauss(0, 1), sep=",", file=file)
        cls.words = ["search", "--data", str(table), "--target", "energy", "--device", "cpu", "--generations", "4",
                     "--quiet", "--islands", "4", "--held-out", "0.2"]
        cls.front = json.loads(run(*cls.words, "--json", "--report", str(cls.path)))
        cls.chosen = next(i for i, formula in enumerate(cls.front) if formula["chosen"])
        text = cls.path.read_text()
        cls.data = json.loads(re.search(r'<script id="data" type="application/json">\n(.*)\n', text)[1])
        cls.browser = Browser(BROWSER)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def setUp(self):
        self.page = self.browser.open(self.path.as_uri())

    def tearDown(self):
        self.assertEqual(self.page.complaints(), [])

    def shown(self):
        """The formula in words, and what charts and table mark."""
        marked = [self.page.value(f"[...document.querySelectorAll({json.dumps(all)})].findIndex((e) => e.matches({json.dumps(one)}))")
                  for all, one in [("circle.dot", ".shown"), ("tbody tr", "[aria-current]")]]
        self.assertEqual(marked[0], marked[1])
        self.assertEqual(self.page.texts("#formula code.code")[0], self.front[marked[0]]["formula"])
        return marked[0]

    def test_is_one_file_that_asks_for_nothing(self):
        self.assertEqual(self.page.requests(), [self.path.as_uri()])
        self.assertEqual(self.page.value("document.images.length"), 0)
        self.assertIn(NAME, self.page.texts("option"))

    def test_shows_all(self):
        self.assertEqual(self.shown(), self.chosen)
        self.assertEqual(self.page.count("circle.dot"), len(self.front))
        self.assertEqual(self.page.count("circle.dot.chosen"), 1)
        heights = self.page.value("[...document.querySelectorAll('circle.dot')].map((e) => [e.cx.baseVal.value, e.cy.baseVal.value])")
        self.assertEqual(heights, sorted(heights))
        self.assertEqual([y for _, y in heights], sorted(y for _, y in heights))
        self.assertEqual(self.page.texts("option"), ["prediction", "energy", "row", *[column["name"] for column in self.data["columns"]]])
        words = self.page.value("document.querySelector('#again code').textContent")
        # The command line that the page shows makes the same front.
        again = subprocess.run(["/bin/sh", "-c", words.replace("sr-jit", '"$0"', 1), SR_JIT], check=True, capture_output=True, text=True)
        self.assertEqual(json.loads(again.stdout), self.front)

    def test_rows_are_drawn_where_they_are(self):
        moves = self.page.value("document.querySelectorAll('path.points')[0].getAttribute('d').split('M').slice(1).map((at) => at.split(/[ h]/).map(Number))")
        self.assertEqual(len(moves), 2000)
        ys = self.data["y"]
        predicted = [y - rest for y, rest in zip(ys, self.front_data()["residuals"])]
        for k, values in enumerate([ys, predicted]):
            low, high = min(range(2000), key=values.__getitem__), max(range(2000), key=values.__getitem__)
            scale = (moves[high][k] - moves[low][k]) / (values[high] - values[low])
            for i in range(0, 2000, 37):
                self.assertAlmostEqual(moves[i][k], moves[low][k] + (values[i] - values[low]) * scale, delta=0.2)

    def front_data(self):
        return self.data["front"][self.chosen]

    def test_the_mouse_tells_and_chooses(self):
        self.page.move_to("circle.dot", 0)
        self.assertIn("complexity 1", self.page.texts(".tip")[0])
        self.assertEqual(self.page.count(".tip math"), 1)
        self.page.click("circle.dot", 1)
        self.assertEqual(self.shown(), 1)
        self.page.click("tbody tr", 0)
        self.assertEqual(self.shown(), 0)
        before = self.page.value("document.querySelectorAll('path.points')[1].getAttribute('d')")
        self.page.value("document.querySelector('select').value = 3; document.querySelector('select').dispatchEvent(new Event('change'))")
        self.assertNotEqual(self.page.value("document.querySelectorAll('path.points')[1].getAttribute('d')"), before)
        self.page.value("document.querySelectorAll('.chart')[1].scrollIntoView({block: 'center'})")
        # Row 1 + i is drawn as the i-th point of all.
        x, y, left, top = self.page.value("""(() => {
            const chart = document.querySelectorAll('.chart')[1], box = chart.getBoundingClientRect();
            return [...chart.querySelector('path.points').getAttribute('d').match(/M([\\d.]+) ([\\d.]+)/).slice(1).map(Number), box.left, box.top];
        })()""")
        self.page.call("Input.dispatchMouseEvent", type="mouseMoved", x=left + x, y=top + y)
        self.assertRegex(self.page.texts(".tip")[0], r"^row \d+energy ")

    def test_keys_are_enough(self):
        self.page.value("document.querySelector('circle.dot.shown').focus()")
        self.page.press("Home")
        self.assertEqual(self.shown(), 0)
        self.page.press("ArrowRight")
        self.assertEqual(self.shown(), 1)
        self.page.press("End")
        self.page.press("ArrowRight")
        self.assertEqual(self.shown(), len(self.front) - 1)
        self.assertTrue(self.page.value("document.activeElement.matches('circle.dot.shown')"))
        self.page.value("document.querySelector('#formula button').focus()")
        self.page.press("Enter")
        self.page.press("Enter")
        self.assertEqual(self.shown(), len(self.front) - 3)

    def test_looks(self):
        paper = "getComputedStyle(document.body).backgroundColor"
        dark = self.browser.open(self.path.as_uri(), dark=True)
        self.assertNotEqual(dark.value(paper), self.page.value(paper))
        for width in [800, 390]:
            narrow = self.browser.open(self.path.as_uri(), width=width)
            self.assertLessEqual(narrow.value("document.documentElement.scrollWidth"), width)
            self.assertLessEqual(narrow.value("Math.max(...[...document.querySelectorAll('svg')].map((e) => e.clientWidth))"), width)
            self.assertEqual(narrow.complaints(), [])

    def with_front(self, front):
        """The page with another front."""
        text = self.path.read_text()
        begin = text.index("\n", text.index('<script id="data"'))
        end = text.index("</script>", begin)
        path = self.path.with_name("other.html")
        path.write_text(text[:begin + 1] + json.dumps({**self.data, "front": front}).replace("<", "\\u003c") + "\n" + text[end:])
        page = self.browser.open(path.as_uri())
        self.assertEqual(page.complaints(), [])
        return page

    def test_everything_that_latex_has_is_typeset(self):
        operators = [(one["name"], one["arity"]) for one in json.loads(run("ops", "--json"))]
        drawn = random.Random(2)
        expressions = []
        columns = [f"v{i}q" for i in range(200)]
        for depth, some in [(0, [[one] for one in operators]), (5, [operators] * 200)]:
            for allowed in some:
                expressions.append(nested(allowed, iter(columns), drawn, depth))
        expressions += ["-1.5e-20", "inf", "3.141592653589793", "add 2 mul -3 v0q", "sub v0q 1e300"]
        latex = run("parse", "--from", "prefix", "--to", "latex", "--columns", ",".join(columns), "--", *expressions).splitlines()
        self.assertEqual(len(latex), len(expressions))
        page = self.with_front([{**self.front_data(), "complexity": i, "latex": text} for i, text in enumerate(latex)])
        found = page.value("""[...document.querySelectorAll("tbody math")].map((math) => ({
            text: math.textContent,
            bad: [...math.querySelectorAll("mfrac, msup, msub, mroot")].filter((e) => e.children.length !== 2).length +
                math.querySelectorAll("msqrt:not(:has(> :only-child)), mtr:not(:has(> :nth-child(2):last-child))").length,
            loose: [...math.querySelectorAll("*")].filter((e) => e.namespaceURI !== "http://www.w3.org/1998/Math/MathML").length,
        }))""")
        self.assertEqual(len(found), len(expressions))
        for expression, source, one in zip(expressions, latex, found):
            self.assertEqual((one["bad"], one["loose"]), (0, 0), source)
            self.assertNotRegex(one["text"], r"[\\{}&^]" if "cases" not in source else r"[\\}&^]", source)
            self.assertEqual(sorted(re.findall(r"v\d+q", one["text"])), sorted(re.findall(r"v\d+q", expression)), source)
        texts = [one["text"] for one in found[-5:]]
        self.assertEqual(texts, ["−1.5⋅10−20", "∞", "π", "2−3\u2062v0q", "v0q−10300"])

    def test_fronts_that_are_hard_to_draw(self):
        def draws(losses, rest):
            page = self.with_front([{**self.front_data(), "complexity": i, "loss": loss, "residuals": [rest] * 2000,
                                     "quantiles": [] if rest is None else [rest] * 5} for i, loss in enumerate(losses)])
            places = page.value("[...document.querySelectorAll('circle.dot')].map((e) => e.getAttribute('cy'))")
            self.assertEqual(len(places), len(losses))
            self.assertNotIn("NaN", page.value("document.querySelector('main').innerHTML"))
            return [float(y) for y in places]

        for losses in [[1, 1e-3, 0], [0], [5], [1e300, 1e-300], [3, -2], [-4]]:
            for rest in [0, 1e-300, 1e300, None]:
                places = draws(losses, rest)
                self.assertEqual(places, sorted(places))
                self.assertEqual(len(set(places)), len(losses))
        self.assertIn("no formula", self.with_front([]).value("document.body.textContent"))


if __name__ == "__main__":
    unittest.main()
