"use strict";
// What the pages of `sr-jit explain` and `sr-jit search` have in common.
const data = JSON.parse(document.getElementById("data").textContent);

const namespaces = {
  "http://www.w3.org/2000/svg": ["svg", "g", "rect", "path", "text", "title", "circle", "line", "polygon", "clipPath"],
  "http://www.w3.org/1998/Math/MathML": ["math", "mrow", "mi", "mn", "mo", "mtext", "mfrac", "msqrt", "mroot", "msup", "msub", "mtable", "mtr", "mtd"],
};
/** An element with attributes, and children: elements or texts. */
function make(name, attributes = {}, ...children) {
  const space = Object.keys(namespaces).find((key) => namespaces[key].includes(name)) || "http://www.w3.org/1999/xhtml";
  const made = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A section, and a link to it. */
function addSection(id, title, lead, ...children) {
  document.getElementById("contents").append(make("a", {href: `#${id}`}, title));
  document.querySelector("main").append(make("section", {id, "aria-labelledby": `${id}-title`},
    make("h2", {id: `${id}-title`}, title), lead && make("p", {class: "lead"}, lead), ...children));
}

const showFacts = (facts) => document.getElementById("facts").append(...facts.map((fact) => make("li", {}, fact)));

function number(value, digits = 3) {
  if (typeof value !== "number") return value === undefined || value === null ? "" : value === "inf" ? "∞" : value;
  const exponent = value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6);
  const text = exponent ? value.toExponential(digits - 1).replace(/\.?0*e\+?/, "e") : String(Number(value.toPrecision(digits)));
  return text.replaceAll("-", "−");
}

/** Colours: those of the system until the button is pressed. */
{
  const root = document.documentElement, button = document.getElementById("theme"), system = matchMedia("(prefers-color-scheme: dark)");
  const setTheme = (theme) => {
    root.dataset.theme = theme;
    button.setAttribute("aria-label", `Colours: ${theme}`);
  };
  const followSystem = () => setTheme(system.matches ? "dark" : "light");
  system.addEventListener("change", followSystem);
  button.addEventListener("click", () => {
    system.removeEventListener("change", followSystem);
    setTheme(root.dataset.theme === "dark" ? "light" : "dark");
  });
  followSystem();
}
