"""The page of `sr-jit explain` in a browser.

    page_test.py SR-JIT BROWSER

The page is made by the command, opened in the browser without a window, and used as a reader uses it: with the mouse,
with keys, in dark colours, on a phone, on paper.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from browser import Browser

SR_JIT, BROWSER = sys.argv.pop(1), sys.argv.pop(1)
EXPRESSIONS = ["sin(x0)^2 + x1/4", "p0*exp(-p1*x0) + sin(x0)"]
CODE = ["bytecode", "host-bytecode", "direct", "llvm", "ptx", "host-llvm", "asm"]


def explain(*words):
    return subprocess.run([SR_JIT, "explain", "--no-times", *words], check=True, capture_output=True, text=True).stdout


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        cls.path = folder / "page.html"
        explain(*EXPRESSIONS, "--out", str(cls.path))
        cls.data = json.loads(explain(*EXPRESSIONS, "--json"))
        cls.browser = Browser(BROWSER)
        cls.page = cls.open(cls.path)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    @classmethod
    def open(cls, path, **look):
        return cls.browser.open(path.as_uri(), **look)

    def setUp(self):
        self.page.value("document.activeElement.blur()")
        self.page.press("Escape")

    def tearDown(self):
        self.assertEqual(self.page.complaints(), [])

    def node_of(self, graph, operator):
        """The first node of a graph whose text begins with the operator."""
        return next(line["node"] for line in self.data["graphs"][graph]["lines"] if line["text"].startswith(operator))

    def test_is_one_small_file_that_asks_for_nothing(self):
        self.assertEqual(self.page.requests(), [self.path.as_uri()])
        self.assertLess(self.path.stat().st_size, 400_000)

    def test_shows_everything(self):
        self.assertEqual(self.page.texts(".expression"), EXPRESSIONS)
        self.assertEqual(self.page.count(".expression span"), sum(len(source["tokens"]) for source in self.data["sources"]))
        changed = [graph for graph in self.data["graphs"][1:] if graph["changed"]]
        self.assertEqual(self.page.count("#passes .pass"), 1 + len(changed) + 1)  # as given, and with derivatives
        self.assertEqual(self.page.count("#passes svg"), self.page.count("#passes .pass"))
        fired = sum(len(graph["fired"]) for graph in self.data["graphs"])
        self.assertGreater(fired, 3)
        self.assertEqual(self.page.count(".rules li"), fired)
        self.assertEqual([stage["name"] for stage in self.data["stages"]], CODE)
        for stage in self.data["stages"]:
            self.assertEqual(self.page.count(f"#stage-{stage['name']} .line"), len(stage["lines"]), stage["name"])
        machine = [line for line in self.data["stages"][2]["lines"] if "machine" in line]
        self.assertEqual(self.page.count("#stage-direct .line .machine"), len(machine))
        self.assertEqual(self.page.count("#nodes tbody tr"), len({*self.nodes_of_last()}))
        self.assertIn("derivative of expression 2 by p1", " ".join(self.page.texts("#passes .of-root")))

    def nodes_of_last(self):
        for line in self.data["graphs"][-1]["lines"]:
            yield line["node"]
            yield from (node for node in self.data["nodes"][line["node"]]["operands"])

    def lit(self):
        """By place: the ids of the lit elements there."""
        return self.page.value("""(() => {
            const lit = {};
            for (const element of document.querySelectorAll(".lit")) {
                const panel = element.closest("[id]").id;
                (lit[panel] ||= []).push(element.getAttribute("data-n"));
            }
            return lit;
        })()""")

    def test_pointing_at_a_token_lights_its_node_in_all_stages(self):
        sine = self.node_of(0, "sin")
        token = self.page.texts(".expression:first-of-type span").index("sin")
        self.page.move_to(".expression span", token)
        lit = self.lit()
        for place in ["source", "passes", "nodes", *(f"stage-{name}" for name in CODE)]:
            self.assertIn(place, lit)
            for ids in lit[place]:
                self.assertIn(sine, ids.split(" "))
        # No element of the node is left out.
        of_node = self.page.value(f"[...document.querySelectorAll('[data-n]')].filter((e) => "
                                  f"e.getAttribute('data-n').split(' ').includes({json.dumps(sine)})).length")
        self.assertEqual(self.page.count(".lit"), of_node)
        self.assertIn(f"{sine} = sin x0", self.page.texts("#inspector")[0])
        self.page.move_to("h1")
        self.assertEqual(self.page.count(".lit"), 0)

    def test_pointing_at_an_instruction_lights_its_node_and_what_it_came_from(self):
        fused = self.node_of(-1, "fma")
        for name in ["direct", "ptx", "asm", "llvm"]:
            rows = self.page.value(f"[...document.querySelectorAll('#stage-{name} .line')].map((e) => "
                                   "e.getAttribute('data-n'))")
            self.page.move_to(f"#stage-{name} .line", rows.index(fused))
            self.assertIn("passes", self.lit(), name)
            # The sum that was fused is lit more faintly, in the text, too.
            self.assertIn("+", self.page.texts(".expression .kin"), name)
        self.page.move_to("h1")

    def test_pointing_at_a_graph_lights_lines(self):
        self.page.move_to("#passes svg g", 0)
        self.assertGreater(self.page.count(".listing .lit"), 3)

    def test_a_click_keeps_a_node_and_scrolls_to_it(self):
        self.page.click(".expression span", 0)
        self.page.move_to("h1")
        self.assertGreater(self.page.count(".lit"), 20)
        hidden = self.page.value("""[...document.querySelectorAll(".stage .listing")].filter((listing) => {
            const row = listing.querySelector(".line.lit"), box = listing.getBoundingClientRect();
            if (!row) return false;
            const at = row.getBoundingClientRect();
            return at.top < box.top - 1 || at.bottom > box.bottom + 1;
        }).length""")
        self.assertEqual(hidden, 0)
        self.page.press("Escape")
        self.assertEqual(self.page.count(".lit"), 0)

    def test_keys_are_enough(self):
        self.page.value("document.querySelector('.expression span').focus()")
        self.assertGreater(self.page.count(".lit"), 20)
        self.page.press("Enter")
        self.page.value("document.activeElement.blur()")
        self.assertGreater(self.page.count(".lit"), 20)
        self.page.press("Escape")
        self.page.value("document.querySelector('#stage-direct .listing').focus()")
        self.page.press("End")
        self.page.press("ArrowUp")
        last = self.page.value("[...document.querySelectorAll('#stage-direct .line')].indexOf(document.activeElement)")
        self.assertEqual(last, self.page.count("#stage-direct .line") - 2)
        shown = []
        for _ in self.data["graphs"][-1]["lines"]:
            self.page.press("n")
            shown.append(self.page.texts("#inspector .what")[0].split(" ")[0])
        self.assertEqual(sorted(shown), sorted(line["node"] for line in self.data["graphs"][-1]["lines"]))
        self.assertEqual(self.page.count("span:focus"), 0)

    def test_colours_follow_the_system_and_the_button(self):
        paper = "getComputedStyle(document.body).backgroundColor"
        dark = self.open(self.path, dark=True)
        self.assertNotEqual(dark.value(paper), self.page.value(paper))
        dark.click("#theme")
        self.assertEqual(dark.value(paper), self.page.value(paper))
        self.assertEqual(dark.complaints(), [])

    def test_fits_a_phone(self):
        phone = self.open(self.path, width=390, height=844)
        self.assertLessEqual(phone.value("document.documentElement.scrollWidth"), 390)
        self.assertEqual(phone.complaints(), [])

    def test_can_be_printed(self):
        self.page.call("Emulation.setEmulatedMedia", media="print")
        self.assertEqual(self.page.value("getComputedStyle(document.querySelector('#inspector')).display"), "none")
        cut = self.page.value("[...document.querySelectorAll('.listing')].filter((e) => e.scrollHeight > e.clientHeight + 1).length")
        self.assertEqual(cut, 0)
        self.page.call("Emulation.setEmulatedMedia", media="")
        paper = self.path.with_suffix(".pdf")
        self.page.pdf(paper)
        self.assertGreater(paper.stat().st_size, 20_000)

    def test_names_of_columns_are_text(self):
        path = self.path.with_name("names.html")
        name = "</script><img src=x>"
        explain("--columns", name, f"`{name}` + 1", "--out", str(path))
        page = self.open(path)
        self.assertEqual(page.value("document.querySelector('.expression').textContent"), f"`{name}` + 1")
        self.assertEqual(page.value("document.images.length"), 0)
        self.assertEqual(page.complaints(), [])


if __name__ == "__main__":
    unittest.main()
