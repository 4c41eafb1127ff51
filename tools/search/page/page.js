(() => {
  const {front} = data, rows = data.y.length;
  const rowOf = (i) => Math.floor((i * data.rows) / rows);
  const finite = (value) => typeof value === "number";
  const minus = (text) => String(text).replaceAll("-", "−");

  // ---- Formulas

  const symbols = {cdot: "⋅", bmod: " mod ", infty: "∞", ",": "\u2062"};
  const characters = {asciitilde: "~", asciicircum: "^", backslash: "\\", less: "<", greater: ">", bar: "|", quotedblright: "\""};
  /** A Greek letter, or another sign, that HTML names as LaTeX does; else the name itself. */
  const named = (name) => symbols[name] || new DOMParser().parseFromString(`&${name};`, "text/html").body.textContent.replace(/^&|;$/g, "");

  /** LaTeX of ir/text/latex.cpp as MathML: all that it writes, not all that there is. */
  function typeset(latex) {
    const tokens = latex.match(/\\(?:text|mathrm|operatorname|begin|end)\{(?:\\[a-z]+\{\}|\\.|[^\\{}])*\}|\\[a-z]+|\\.|[\d.]+|\S/gi) || [];
    let at = 0;
    const argument = () => (++at, row("}"));
    const sign = (text, look) => make("mo", look, text);
    /** The elements up to a token that is one of `ends`, which is read, too. */
    function row(...ends) {
      const made = [];
      while (at < tokens.length && !ends.includes(tokens[at])) {
        const token = tokens[at++], script = {"^": "msup", "_": "msub"}[token];
        made.push(script ? make(script, {}, made.pop(), argument()) : element(token));
      }
      ++at;
      return make("mrow", {}, ...made);
    }
    function element(token) {
      const [, command, body] = /^\\([a-z]+|.)(?:\{(.*)\})?$/is.exec(token) || [];
      if (command === "frac") return make("mfrac", {}, argument(), argument());
      if (command === "sqrt") return tokens[at] === "[" ? (++at, ((index) => make("mroot", {}, argument(), index))(row("]"))) : make("msqrt", {}, argument());
      if (command === "left") {
        // Fonts without glyphs for mathematics draw fences that stretch too large.
        const open = fence(), inner = row("\\right"), look = {stretchy: inner.querySelector("mfrac, msqrt, mroot, mtable") !== null};
        return make("mrow", {}, sign(open, look), inner, sign(fence(), look));
      }
      if (command === "begin") {
        const lines = [];
        while (at < tokens.length && tokens[at - 1] !== "\\end{cases}") {
          lines.push(make("mtr", {}, make("mtd", {}, row("&")), make("mtd", {}, row("\\\\", "\\end{cases}"))));
        }
        return make("mrow", {}, sign("{"), make("mtable", {columnalign: "left"}, ...lines));
      }
      if (body !== undefined) {
        const text = body.replace(/\\text([a-z]+)\{\}|\\(.)/g, (_, name, character) => characters[name] || character);
        return command === "text" ? make("mtext", {}, text.replaceAll(" ", "\u00a0")) : make("mi", {mathvariant: "normal"}, text);
      }
      if (command === ",") return sign(symbols[command], {lspace: "0.1em", rspace: "0.1em"});
      if (command) return make(["cdot", "bmod", "le"].includes(command) ? "mo" : "mi", {}, named(command));
      return make(/[\d.]/.test(token) ? "mn" : /[a-z]/i.test(token) ? "mi" : "mo", {}, minus(token));
    }
    const fence = () => (tokens[at].length > 1 ? named(tokens[at++].slice(1)) : tokens[at++]);
    return make("math", {}, row());
  }

  // ---- Charts

  /** An axis for numbers: its range with a margin, and ticks [value, text] of at most `most`. */
  function axis(values, {log = false, whole = false, most = 6} = {}) {
    const [least, largest] = values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
    if (log) {
      const low = Math.floor(Math.log10(least) - 0.1), high = Math.ceil(Math.log10(largest) + 0.1), step = Math.ceil((high - low) / most), ticks = [];
      for (let power = low; power <= high; power += step) {
        ticks.push([power, `10${[...String(power)].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("")}`]);
      }
      return {low, high, ticks, of: Math.log10};
    }
    if (!(least <= largest)) return {low: 0, high: 1, ticks: [], of: Number};
    const margin = (largest / 2 - least / 2) * 0.08 || Math.abs(largest) * 0.1 || 1, low = least - margin, high = largest + margin;
    const rough = (high / most - low / most), power = 10 ** Math.floor(Math.log10(rough)), step = Math.max([1, 2, 5, 10].find((by) => by * power >= rough) * power, whole ? 1 : 0);
    const digits = Math.max(1, Math.ceil(Math.log10(Math.max(Math.abs(low), Math.abs(high)) / step) + 1)), ticks = [];
    for (let i = Math.ceil(low / step); i * step <= high && ticks.length < 20; ++i) ticks.push([i * step, number(i * step, digits)]);
    return {low, high, ticks, of: Number};
  }

  let charts = 0;
  /** Draws into `place`, at its width: axes {name, ...axis()}, then what `body(X, Y)` gives, cut to the frame. */
  function draw(place, label, x, y, height, body) {
    const width = Math.max(240, place.clientWidth), left = 28 + 7 * Math.max(3, ...y.ticks.map(([, text]) => text.length)), top = 8, right = width - 12, bottom = height - 40;
    const scale = (end, from, to) => (value) => from + ((end.of(value) - end.low) / (end.high - end.low)) * (to - from);
    const X = scale(x, left, right), Y = scale(y, bottom, top), atX = scale({...x, of: Number}, left, right), atY = scale({...y, of: Number}, bottom, top);
    const clip = `clip-${++charts}`, text = (at, kind, anchor, what) => make("text", {x: at[0], y: at[1], class: kind, "text-anchor": anchor}, what);
    const line = (x1, y1, x2, y2) => make("line", {x1, y1, x2, y2, class: "mesh"});
    // Texts of ticks that would touch their neighbours are left out.
    const every = Math.ceil((x.ticks.length * (14 + 7 * Math.max(0, ...x.ticks.map(([, t]) => t.length)))) / (right - left)) || 1;
    place.querySelector("svg")?.remove();
    place.prepend(make("svg", {width, height, role: "group", "aria-label": label},
      make("clipPath", {id: clip}, make("rect", {x: left - 7, y: top - 7, width: right - left + 14, height: bottom - top + 14})),
      ...x.ticks.flatMap(([value, t], i) => [line(atX(value), top, atX(value), bottom), i % every ? null : text([atX(value), bottom + 16], "tick", "middle", t)]),
      ...y.ticks.flatMap(([value, t]) => [line(left, atY(value), right, atY(value)), text([left - 6, atY(value) + 4], "tick", "end", t)]),
      text([(left + right) / 2, height - 6], "name", "middle", x.name),
      make("text", {class: "name", "text-anchor": "middle", transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)`}, y.name),
      make("g", {"clip-path": `url(#${clip})`}, ...body(X, Y, {left, right, top, bottom}))));
  }

  const tip = make("div", {class: "tip", hidden: ""});
  function showTip(place, x, y, ...content) {
    place.append(tip);
    tip.hidden = false;
    tip.replaceChildren(...content);
    tip.style.left = `${Math.max(0, Math.min(x + 12, place.clientWidth - tip.offsetWidth))}px`;
    tip.style.top = `${y + 14}px`;
  }
  const hideTip = () => (tip.hidden = true);

  /** A cloud of rows [x, y], as one path; pointing at it tells of the nearest row by `tell(i)`. */
  function cloud(place, points, X, Y, tell) {
    const drawn = points.flatMap(([x, y], i) => (finite(x) && finite(y) ? [[X(x), Y(y), i]] : []));
    const near = make("circle", {r: 5, class: "near", visibility: "hidden"});
    place.onpointerleave = () => (hideTip(), near.setAttribute("visibility", "hidden"));
    place.onpointermove = (event) => {
      const box = place.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
      const [distance, point] = drawn.reduce((best, at) => ((at[0] - x) ** 2 + (at[1] - y) ** 2 < best[0] ? [(at[0] - x) ** 2 + (at[1] - y) ** 2, at] : best), [400, null]);
      near.setAttribute("visibility", point ? "visible" : "hidden");
      if (!point) return hideTip();
      near.setAttribute("cx", point[0]);
      near.setAttribute("cy", point[1]);
      showTip(place, point[0], point[1], ...tell(point[2]).map((text) => make("p", {}, text)));
    };
    return [make("path", {class: drawn.length < 200 ? "points few" : "points", d: drawn.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}h0`).join("")}), near];
  }

  // ---- The formula that is shown

  let at = Math.max(0, front.findIndex((formula) => formula.chosen));
  const names = {complexity: "complexity", loss: data.loss, held_out: "loss held out", r2: "R²", bic: "BIC"};
  const numbers = Object.keys(front[0] || {}).filter((key) => key !== "open_rows" && front.some((formula) => finite(formula[key])));
  const value = (formula, key) => (finite(formula[key]) ? number(key === "r2" ? Number(formula[key].toFixed(6)) : formula[key], key === "r2" ? 6 : 4) : "–");
  const titled = (formula) => `complexity ${formula.complexity}, ${data.loss} ${number(formula.loss)}${formula.chosen ? ", chosen" : ""}`;

  const panel = make("div", {class: "panel", "aria-live": "polite"});
  function showFormula() {
    const formula = front[at], focused = [...panel.querySelectorAll("button")].indexOf(document.activeElement);
    panel.replaceChildren(
      make("div", {class: "bar"}, make("h3", {}, formula.chosen ? "The chosen formula" : `Formula of complexity ${formula.complexity}`),
        step(-1, "← simpler"), step(1, "longer →"), formula.chosen ? null : backButton()),
      make("div", {class: `formula scroll${formula.latex.length > 90 ? " long" : ""}`, tabindex: 0, role: "group", "aria-label": "formula"}, typeset(`\\text{${data.target.replace(/[\\{}]/g, "\\$&")}} = ${formula.latex}`)),
      make("dl", {}, ...numbers.map((key) => make("div", {}, make("dt", {}, names[key] || key), make("dd", {}, value(formula, key))))),
      copied(formula.formula),
      make("details", {}, make("summary", {}, "LaTeX"), copied(formula.latex)));
    panel.querySelectorAll("button")[focused]?.focus();
  }
  function button(text, press, disabled) {
    const made = make("button", {type: "button", disabled}, text);
    made.addEventListener("click", press);
    return made;
  }
  const step = (by, text) => button(text, () => choose(at + by), front[at + by] ? undefined : "");
  const backButton = () => button("back to the chosen one", () => choose(front.findIndex((formula) => formula.chosen)));
  function copied(text) {
    const made = button("copy", () => navigator.clipboard?.writeText(text).then(() => (made.textContent = "copied")));
    return make("div", {class: "bar"}, make("code", {class: "code"}, text), made);
  }

  // ---- The front

  const frontPlace = make("div", {class: "chart"});
  function drawFront() {
    const log = front.every((formula) => formula.loss >= 0), positive = front.map((formula) => formula.loss).filter((loss) => loss > 0);
    // A loss of 0 has no logarithm: it is drawn below the others.
    const floor = positive.length ? 10 ** (Math.floor(Math.log10(Math.min(...positive))) - 1) : 1e-16;
    const drawn = (formula) => (log ? Math.max(formula.loss, floor) : formula.loss);
    const y = {name: log && positive.length < front.length ? `${data.loss} (lowest: 0)` : data.loss, ...axis(front.map(drawn), {log})};
    const x = {name: "complexity", ...axis(front.map((formula) => formula.complexity), {whole: true, most: 10})};
    const focused = document.activeElement?.closest(".dot") ? at : -1;
    draw(frontPlace, "The front: loss over complexity", x, y, 320, (X, Y) => [
      make("path", {class: "steps", d: front.filter((formula, i) => front.slice(0, i).every((other) => drawn(other) > drawn(formula))).map((formula, i) => `${i ? `H${X(formula.complexity)}V` : `M${X(formula.complexity)} `}${Y(drawn(formula))}`).join("")}),
      ...front.map((formula, i) => {
        const dot = make("circle", {
          class: `dot${formula.chosen ? " chosen" : ""}${i === at ? " shown" : ""}`, cx: X(formula.complexity), cy: Y(drawn(formula)), r: i === at || formula.chosen ? 7 : 5.5,
          tabindex: i === at ? 0 : -1, role: "button", "aria-pressed": i === at, "aria-label": `${titled(formula)}: ${formula.formula}`,
        });
        const tell = () => showTip(frontPlace, X(formula.complexity), Y(drawn(formula)),
          formula.formula.length < 45 ? typeset(formula.latex) : make("code", {}, formula.formula), make("p", {}, titled(formula)));
        dot.addEventListener("pointerenter", tell);
        dot.addEventListener("focus", tell);
        dot.addEventListener("pointerleave", hideTip);
        dot.addEventListener("blur", hideTip);
        dot.addEventListener("click", () => choose(i));
        return dot;
      })]);
    if (focused >= 0) frontPlace.querySelector(".dot.shown").focus();
  }
  frontPlace.addEventListener("keydown", (event) => {
    const to = {ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, ArrowDown: at + 1, Home: 0, End: front.length - 1}[event.key];
    if (front[to]) choose(to);
    if (to !== undefined) event.preventDefault();
  });

  // ---- Predictions and residuals

  const fitPlace = make("div", {class: "chart"}), restPlace = make("div", {class: "chart"}), fitNote = make("p", {class: "note"}), quantiles = make("dl");
  const predictions = () => front[at].residuals.map((rest, i) => (finite(rest) && finite(data.y[i]) ? data.y[i] - rest : null));
  const tellRow = (prediction) => (i) => [`row ${rowOf(i) + 1}`, `${data.target} ${number(data.y[i], 6)}`, `prediction ${number(prediction[i], 6)}`, `residual ${number(front[at].residuals[i], 4)}`];

  function drawFit() {
    const prediction = predictions(), points = prediction.map((value, i) => [data.y[i], value]), shown = points.filter(([, value]) => finite(value));
    const ends = axis(shown.flat()), [low, , , , high] = front[at].quantiles;
    draw(fitPlace, `Predictions over ${data.target}: ${shown.length} rows`, {name: data.target, ...ends}, {name: "prediction", ...ends}, 320, (X, Y) => [
      low === undefined ? null : make("polygon", {class: "band", points: [[ends.low, low], [ends.high, low], [ends.high, high], [ends.low, high]].map(([value, rest]) => `${X(value)},${Y(value - rest)}`).join(" ")}),
      make("path", {class: "ideal", d: `M${X(ends.low)} ${Y(ends.low)}L${X(ends.high)} ${Y(ends.high)}`}),
      ...cloud(fitPlace, points, X, Y, tellRow(prediction))].filter(Boolean));
    const open = front[at].open_rows;
    fitNote.textContent = `${shown.length === data.rows ? `All ${data.rows} rows` : `${shown.length} of ${data.rows} rows, at equal distances`}${open ? `; ${open} rows without a finite prediction are left out` : ""}. The band has 95 % of the residuals.`;
  }

  const select = make("select", {id: "over"}, ...["prediction", data.target, "row", ...data.columns.map((column) => column.name)].map((name, value) => make("option", {value}, name)));
  function drawRest() {
    const prediction = predictions(), over = Number(select.value), {residuals} = front[at], [low, , , , high] = front[at].quantiles;
    const xs = over === 0 ? prediction : over === 1 ? data.y : over === 2 ? residuals.map((_, i) => rowOf(i) + 1) : data.columns[over - 3].values;
    const points = residuals.map((rest, i) => [xs[i], rest]), shown = points.filter(([x, y]) => finite(x) && finite(y));
    const x = {name: select.options[over].text, ...axis(shown.map(([value]) => value))}, y = {name: "residual", ...axis([0, ...shown.map(([, value]) => value)])};
    draw(restPlace, `Residuals over ${x.name}`, x, y, 300, (X, Y, {left, right}) => [
      low === undefined ? null : make("rect", {class: "band", x: left, width: right - left, y: Y(high), height: Math.max(0, Y(low) - Y(high))}),
      make("path", {class: "ideal", d: `M${left} ${Y(0)}H${right}`}), ...cloud(restPlace, points, X, Y, tellRow(prediction))].filter(Boolean));
    quantiles.replaceChildren(...["2.5 %", "25 %", "median", "75 %", "97.5 %"].map((name, i) => make("div", {}, make("dt", {}, name), make("dd", {}, number(front[at].quantiles[i], 4)))));
  }
  select.addEventListener("change", drawRest);

  // ---- The table

  const body = make("tbody");
  function makeTable() {
    body.append(...front.map((formula, i) => {
      const row = make("tr", {}, ...numbers.map((key, k) => make("td", {class: "number"}, k ? value(formula, key) : button(value(formula, key), () => choose(i)))),
        make("td", {class: "long"}, typeset(formula.latex), formula.chosen ? make("span", {class: "badge"}, "chosen") : null));
      row.addEventListener("click", () => choose(i));
      return row;
    }));
    return make("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": "formulas"}, make("table", {}, make("thead", {}, make("tr", {},
      ...numbers.map((key) => make("th", {class: "number", scope: "col"}, names[key] || key)), make("th", {scope: "col"}, "formula"))), body));
  }

  function drawAll() {
    hideTip();
    [drawFront, drawFit, drawRest].forEach((drawOne) => drawOne());
  }
  function choose(i) {
    at = i;
    showFormula();
    drawAll();
    [...body.rows].forEach((row, i) => (i === at ? row.setAttribute("aria-current", "true") : row.removeAttribute("aria-current")));
  }

  document.title = `${data.target} · sr-jit search`;
  showFacts(data.facts);
  if (front.length) {
    const chart = (title, place, ...more) => make("div", {class: "panel"}, make("h3", {}, title), place, ...more);
    addSection("formula", "Formula", null, panel);
    addSection("charts", "Front", null, make("div", {class: "grid"},
      chart("Losses", frontPlace, make("p", {class: "note"}, "The line is the least loss of a complexity or less; the ring is the chosen formula. Click one, or use the arrow keys, to see its predictions.")),
      chart("Predictions", fitPlace, fitNote)));
    addSection("residuals", "Residuals", "Target less prediction. A pattern over a column is what the formula misses.", make("div", {class: "panel"},
      make("div", {class: "bar"}, make("label", {for: "over"}, "over"), select, data.columns_left_out ? make("span", {class: "note"}, `${data.columns_left_out} more columns are left out`) : null), restPlace,
      make("p", {class: "note"}, "Quantiles of the residuals of all rows:"), quantiles));
    addSection("formulas", "All formulas", "Evidence in nats: larger is better. BIC: smaller is better. R²: the share of the target's variance that is explained.", make("div", {class: "panel"}, makeTable()));
  } else {
    addSection("formula", "No formula", "The search found no formula of a finite loss.");
  }
  addSection("again", "Again", "This searches again:", make("div", {class: "panel"}, copied(data.command)));
  if (!front.length) return;
  choose(at);
  new ResizeObserver(drawAll).observe(document.querySelector("main"));
})();
