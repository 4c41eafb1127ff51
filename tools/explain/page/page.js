"use strict";
(() => {
  const elements = new Map();  // by id of a node: what belongs to it
  const last = data.graphs[data.graphs.length - 1];

  // ---- Elements

  /** Makes the element light up with these nodes. */
  function belongs(element, ids) {
    if (!ids || ids.length === 0) return element;
    element.setAttribute("data-n", ids.join(" "));
    for (const id of ids) {
      if (!elements.has(id)) elements.set(id, []);
      elements.get(id).push(element);
    }
    return element;
  }

  const places = new Map(Object.keys(data.nodes).map((id, place) => [id, place]));
  /** The colour of a node; leaves have none. */
  const colour = (id) => (data.nodes[id].kind === "operator"
    ? `hsl(${Math.round((places.get(id) * 137.508) % 360)} var(--hue-s) var(--hue-l))` : "var(--soft)");
  const meaning = (id) => (data.nodes[id].text !== id ? `${id} = ${data.nodes[id].text}` : id);
  /** What nodes are; a leaf that is the operand of an operator among them is not said again. */
  function meanings(ids) {
    const said = new Set(ids.flatMap((id) => data.nodes[id].operands));
    return ids.filter((id) => data.nodes[id].kind === "operator" || !said.has(id)).map(meaning).join("; ");
  }
  const idLink = (id) => belongs(make("span", {class: "id", tabindex: 0, title: meaning(id)}, id), [id]);

  // ---- Which node became which

  const after = new Map(), before = new Map();
  function connect([from, to]) {
    if (from === to) return;
    after.set(from, (after.get(from) || []).concat(to));
    before.set(to, (before.get(to) || []).concat(from));
  }
  for (const graph of data.graphs) {
    graph.replaced.forEach(connect);
    graph.fired.forEach((rule) => connect([rule.before, rule.after]));
  }
  function reachable(links, start) {
    const found = new Set([start]);
    for (const id of found) for (const next of links.get(id) || []) found.add(next);
    return [...found].slice(1);
  }
  const ancestors = (id) => reachable(before, id);
  const descendants = (id) => reachable(after, id);

  // ---- Drawings

  /** Draws operators above their operands: {key, id, label, sub, operands: keys, kind: class names}. */
  function draw(nodes, name) {
    const gap = 14, height = 34, step = 58;
    const byKey = new Map(nodes.map((node) => [node.key, node]));
    for (const node of nodes) {
      Object.assign(node, {row: 0, width: 7.8 * Math.max(node.label.length, (node.sub || "").length * 0.8) + 18, users: []});
      node.below = node.operands.map((key) => byKey.get(key));
      node.below.forEach((operand) => operand.users.push(node));
    }
    // Rows: one below the lowest user. Users come after operands in the list.
    const rows = [];
    for (const node of [...nodes].reverse()) node.row = Math.max(0, ...node.users.map((user) => user.row + 1));
    for (const node of nodes) (rows[node.row] ||= []).push(node);
    const widthOf = (row) => row.reduce((sum, node) => sum + node.width + gap, -gap);
    const width = Math.max(...rows.map(widthOf)) + 8;
    /** Nodes side by side, in the order of what they wish: the mean of their neighbours' places. */
    function place(row, neighbours) {
      const wish = new Map(row.map((node) => [node, neighbours(node).reduce((sum, x, i, all) => sum + x / all.length, 0) || node.x || 0]));
      let left = (width - widthOf(row)) / 2;
      for (const node of row.sort((a, b) => wish.get(a) - wish.get(b))) {
        node.x = left + node.width / 2;
        left += node.width + gap;
      }
      // Towards the wish, as far as there is room.
      row.forEach((node, i) => {
        const next = row[i + 1], last = row[i - 1];
        const low = last ? last.x + (last.width + node.width) / 2 + gap : node.width / 2 + 2;
        const high = next ? next.x - (next.width + node.width) / 2 - gap : width - node.width / 2 - 2;
        node.x = Math.max(low, Math.min(high, wish.get(node)));
        node.y = node.row * step + height / 2 + 4;
      });
    }
    const users = (node) => node.users.map((user) => user.x + 20 * user.below.indexOf(node));
    for (let sweep = 0; sweep < 6; ++sweep) {
      rows.forEach((row) => place(row, users));
      [...rows].reverse().forEach((row) => place(row, (node) => node.below.map((operand) => operand.x)));
    }
    rows.forEach((row) => place(row, users));
    const full = (rows.length - 1) * step + height + 8;
    const svg = make("svg", {width, height: full, viewBox: `0 0 ${width} ${full}`, role: "group", "aria-label": name});
    for (const node of nodes) {
      node.below.forEach((operand, k) => {
        const part = node.below.length === 1 ? 0 : (k / (node.below.length - 1) - 0.5) * Math.min(node.width - 16, 30);
        const x = node.x + part, y = node.y + height / 2, toY = operand.y - height / 2, middle = (y + toY) / 2;
        svg.append(make("path", {d: `M${x} ${y} C${x} ${middle} ${operand.x} ${middle} ${operand.x} ${toY}`}));
      });
    }
    for (const node of nodes) {
      const box = make("rect", {x: node.x - node.width / 2, y: node.y - height / 2, width: node.width, height, rx: 7, stroke: colour(node.id)});
      svg.append(belongs(make("g", {class: node.kind || undefined, tabindex: 0, role: "img", "aria-label": meaning(node.id)}, box,
        make("text", {x: node.x, y: node.y - (node.sub ? 5 : 0)}, node.label),
        node.sub ? make("text", {class: "sub", x: node.x, y: node.y + 9}, node.sub) : null), [node.id]));
    }
    return make("div", {class: "drawing"}, svg);
  }

  const drawTree = (source, name) => draw(source.tokens.map(({node, label, operands}, key) => (
    {key, id: node, label, sub: operands.length ? node : "", operands, kind: operands.length ? "" : "leaf"})), name);

  /** The ids of the nodes of a graph, operands first. */
  function idsOf(graph) {
    const all = new Set();
    const add = (id) => !all.has(id) && (data.nodes[id].operands.forEach(add), all.add(id));
    [...graph.lines.map((line) => line.node), ...graph.roots.map(([, id]) => id)].forEach(add);
    return [...all];
  }

  function drawGraph(graph) {
    return draw(idsOf(graph).map((id) => {
      const facts = data.nodes[id], operator = facts.kind === "operator", added = graph.added.includes(id);
      const roots = graph.roots.filter(([, root]) => root === id).map(([label]) => label);
      return {
        key: id, id, label: operator ? facts.text.split(" ")[0] : id, operands: facts.operands,
        sub: [operator ? (added ? `+ ${id}` : id) : "", ...roots].filter(Boolean).join(" · "),
        kind: [operator ? "" : "leaf", added ? "added" : "", roots.length ? "root" : ""].filter(Boolean).join(" "),
      };
    }), `graph of ${graph.name}`);
  }

  // ---- Sections

  /** The text with each token as an element. Places count bytes of UTF-8. */
  function showSource(source, number) {
    const bytes = new TextEncoder().encode(source.text), decode = (a, b) => new TextDecoder().decode(bytes.slice(a, b));
    const line = make("p", {class: "expression"});
    let end = 0;
    for (const token of [...source.tokens].sort((a, b) => a.first - b.first)) {
      line.append(decode(end, token.first));
      end = token.first + token.size;
      line.append(belongs(make("span", {tabindex: 0, title: meaning(token.node)}, decode(token.first, end)), [token.node]));
    }
    line.append(decode(end, bytes.length));
    return make("div", {class: "panel"}, make("h3", {}, `Expression ${number + 1}`), line,
      drawTree(source, `tree of expression ${number + 1}`));
  }

  /** The lines of a graph, with what the pass added, removed and moved. */
  function showListing(graph) {
    const row = (sign, id, text, kind) => belongs(make("div", {class: `row ${kind}`, tabindex: -1, style: `--bar:${colour(id)}`},
      make("span", {class: "sign"}, sign), make("span", {class: "what"}, text)), [id]);
    const signs = [["+", graph.added, "plus"], ["↕", graph.moved, ""], ["~", graph.respelled, ""], ["", graph.lines.map((line) => line.node), ""]];
    return make("div", {class: "listing", tabindex: 0, role: "group", "aria-label": `lines of ${graph.name}`},
      ...graph.lines.map(({node, text}) => {
        const [sign, , kind] = signs.find(([, ids]) => ids.includes(node));
        return row(sign, node, `${node} = ${text}`, kind);
      }),
      ...graph.removed.map((id) => row("−", id, meaning(id), "minus")),
      ...graph.roots.map(([name, id]) => row("", id, `${name} = ${id}`, "of-root")));
  }

  function showRules(graph) {
    if (graph.fired.length === 0) return null;
    const named = (id) => [idLink(id), meaning(id).slice(id.length)];
    return make("ul", {class: "rules", "aria-label": "rules that fired"}, ...graph.fired.map((rule) =>
      make("li", {style: `margin-left:${rule.depth * 1.2}rem`},
        make("span", {class: "rule"}, `${rule.pattern}  →  ${rule.replacement}`), " ",
        make("span", {class: "badge", title: "what the rule keeps"}, rule.keeps),
        make("span", {class: "effect"}, ...named(rule.before), " becomes ", ...named(rule.after)))));
  }

  function showGraph(graph, previous) {
    const unchanged = previous && !graph.changed, badge = (text, title) => make("span", {class: "badge", title}, text);
    const operators = `${previous ? `${previous.lines.length} → ` : ""}${graph.lines.length} operators`;
    const head = make("div", {class: "pass-head"}, make("h3", {}, graph.name), badge(unchanged ? "no change" : operators),
      unchanged || !graph.keeps ? null : badge(graph.keeps, "what the pass keeps"), make("p", {}, graph.doc));
    return make("div", {class: unchanged ? "panel" : "panel pass"}, head, unchanged ? null
      : make("div", {class: "pass-body"}, make("div", {}, showRules(graph), showListing(graph)), drawGraph(graph)));
  }

  const showPasses = () => [...data.graphs.map((graph, i) => showGraph(graph, data.graphs[i - 1])),
    data.gradient && showGraph(data.gradient, last)];

  const machineNames = ["pipe", "latency", "stall", "yield", "wait", "write", "read", "live"];
  function machineCells(facts, most) {
    const cells = [facts.pipe, (facts.timing === "variable" ? "~" : "") + facts.latency, make("b", {}, facts.stall), facts.yield ? "Y" : "–",
      facts.waits.join(",") || "–", facts.write_barrier ?? "–", facts.read_barrier ?? "–"];
    return make("span", {class: "machine"}, ...cells.map((cell) => make("span", {}, cell)),
      make("span", {class: "live", style: `--part:${Math.round((100 * facts.live) / most)}%`}, facts.live));
  }

  /** Registers that are live, by instruction. */
  function showPressure(machine, most) {
    const points = machine.map(({machine: {live}}, i) => `L${i} ${most - live} L${i + 1} ${most - live}`).join(" ");
    const label = `registers live at each of ${machine.length} instructions, at most ${most}`;
    return make("svg", {class: "pressure", viewBox: `0 0 ${machine.length} ${most}`, preserveAspectRatio: "none", role: "img", "aria-label": label},
      make("title", {}, label), make("path", {d: `M0 ${most} ${points} L${machine.length} ${most} Z`}));
  }

  function showStage(stage) {
    const machine = stage.lines.filter((line) => line.machine);
    const most = Math.max(1, ...machine.map((line) => line.machine.live));
    const width = Math.min(56, Math.max(...stage.lines.map((line) => (line.machine ? line.text.length : 0))));
    const listing = make("div", {class: "listing", tabindex: 0, role: "group", "aria-label": stage.title});
    if (machine.length) {
      listing.append(make("div", {class: "row machine-head"}, "  address and instruction".padEnd(width),
        make("span", {class: "machine"}, ...machineNames.map((name) => make("span", {}, name)))));
    }
    for (const line of stage.lines) {
      const ids = line.nodes || [];
      const row = make("div", {class: "row line", tabindex: -1, style: ids.length ? `--bar:${colour(ids[0])}` : undefined},
        make("span", {class: "what"}, (line.machine ? line.text.padEnd(width) : line.text).replaceAll("\t", "    ") || " "),
        line.machine ? machineCells(line.machine, most) : null,
        ids.length ? make("span", {class: "note"}, `${stage.comment} ${meanings(ids)}`) : null);
      listing.append(belongs(row, ids));
    }
    return make("div", {class: `panel stage${machine.length ? " wide" : ""}`, id: `stage-${stage.name}`},
      make("div", {class: "stage-head"}, make("h3", {}, stage.title), make("p", {}, stage.note), machine.length ? showPressure(machine, most) : null), listing);
  }

  function table(heads, rows) {
    const cells = (name, contents) => contents.map((content, i) => make(name, {class: heads[i].kind}, content));
    return make("div", {class: "scroll"}, make("table", {},
      make("thead", {}, make("tr", {}, ...cells("th", heads.map((head) => head.name)))),
      make("tbody", {}, ...rows.map((row) =>
        belongs(make("tr", row.id ? {tabindex: 0, style: `--bar:${colour(row.id)}`} : {}, ...cells("td", row.cells)), row.id ? [row.id] : [])))));
  }

  const linesOf = (stage, id) => stage.lines.filter((line) => (line.nodes || []).includes(id)).length;

  function showNodes() {
    const heads = [{name: "node"}, {name: "operation"}, {name: "relative error at most", kind: "number"}, {name: "absolute", kind: "number"},
      {name: "instructions on a GPU, about", kind: "number"}, ...data.stages.map((stage) => ({name: `lines: ${stage.short_title}`, kind: "number"})), {name: "computes", kind: "long"}];
    const rows = idsOf(last).map((id) => {
      const facts = data.nodes[id], bound = facts.bound || {};
      return {id, cells: [make("code", {}, id), make("code", {}, facts.text === id ? facts.kind : facts.text), number(bound.relative), number(bound.absolute),
        facts.kind === "operator" ? String(facts.weight || 0) : "", ...data.stages.map((stage) => String(linesOf(stage, id))), facts.infix || ""]};
    });
    return make("div", {class: "panel"}, table(heads, rows));
  }

  function seconds(value) {
    const [unit, factor] = value < 1e-6 ? ["ns", 1e9] : value < 1e-3 ? ["µs", 1e6] : value < 1 ? ["ms", 1e3] : ["s", 1];
    return `${number(value * factor)} ${unit}`;
  }
  function showCosts() {
    const panels = data.stages.map((stage) => make("div", {class: "panel"}, make("h3", {}, stage.title),
      table([{name: "what"}, {name: "count", kind: "number"}], Object.entries(stage.counts).map(([what, count]) => ({cells: [what, number(count, 6)]})))));
    if (data.times.length) {
      const heads = [{name: "device"}, {name: "tier"}, {name: "to compile", kind: "number"}, {name: "all rows", kind: "number"}, {name: "per row and expression", kind: "number"}];
      panels.unshift(make("div", {class: "panel"}, make("h3", {}, "Times"),
        make("p", {class: "lead"}, `Measured on the machine that made this page, the least of several; ${data.times[0].rows} rows; the processor with one thread.`),
        table(heads, data.times.map((time) => ({cells: [time.device, time.tier, seconds(time.compile_seconds), seconds(time.evaluate_seconds),
          seconds(time.evaluate_seconds / time.rows / data.sources.length)]})))));
    }
    return make("div", {class: "grid tables"}, ...panels);
  }

  // ---- Lighting

  const inspector = make("aside", {id: "inspector", "aria-live": "polite"});
  let shown = [], pinned = null;

  function hint() {
    inspector.replaceChildren(make("p", {class: "hint"}, "Point at a node, a line or an instruction: all that belongs to it lights up. ",
      make("kbd", {}, "click"), " or ", make("kbd", {}, "Enter"), " keeps it and scrolls the code to it; ", make("kbd", {}, "Esc"), " lets go; ",
      make("kbd", {}, "n"), " ", make("kbd", {}, "p"), " next and previous node; ", make("kbd", {}, "↑"), " ", make("kbd", {}, "↓"), " within a listing."));
  }
  function inspect(ids) {
    inspector.replaceChildren(...ids.slice(0, 4).map((id) => {
      const {infix, bound} = data.nodes[id], from = ancestors(id), to = descendants(id);
      const counts = data.stages.map((stage) => [stage.short_title, linesOf(stage, id)]).filter(([, count]) => count > 0);
      const parts = [
        infix && infix !== id && `computes ${infix}`,
        bound && `relative error at most ${number(bound.relative)}`,
        counts.length && `lines: ${counts.map(([name, count]) => `${name} ${count}`).join(", ")}`,
        from.length && `came from ${from.map(meaning).join("; ")}`,
        to.length && `became ${to.map(meaning).join("; ")}`,
      ].filter(Boolean);
      return make("p", {}, make("span", {class: "what"}, meaning(id)), parts.length ? ` — ${parts.join(" · ")}` : "");
    }));
  }
  function light(ids) {
    if (ids.join(" ") === shown.join(" ")) return;
    document.querySelectorAll(".lit, .kin").forEach((element) => element.classList.remove("lit", "kin"));
    shown = ids;
    const add = (id, name) => (elements.get(id) || []).forEach((element) => element.classList.add(name));
    for (const id of ids) {
      add(id, "lit");
      [...ancestors(id), ...descendants(id)].forEach((kin) => add(kin, "kin"));
    }
    inspect(ids);
  }
  function release() {
    pinned = null;
    document.body.classList.remove("pinned-page");
    light([]);
    hint();
  }
  /** Keeps nodes lit, and shows their first line in each listing but that of `from`. */
  function pin(ids, from) {
    if (pinned && pinned.join(" ") === ids.join(" ")) return release();
    pinned = ids;
    document.body.classList.add("pinned-page");
    light(ids);
    for (const listing of document.querySelectorAll(".stage .listing")) {
      if (from && listing.contains(from)) continue;
      const row = listing.querySelector(".line.lit");
      if (row) listing.scrollTop = row.offsetTop - listing.clientHeight / 3;
    }
  }
  const idsAt = (target) => {
    const element = target instanceof Element ? target.closest("[data-n]") : null;
    return element ? element.getAttribute("data-n").split(" ") : null;
  };

  document.addEventListener("mouseover", (event) => {
    if (pinned) return;
    const ids = idsAt(event.target);
    if (ids) light(ids);
    else if (shown.length && !inspector.contains(event.target)) release();
  });
  document.addEventListener("focusin", (event) => !pinned && light(idsAt(event.target) || shown));
  document.addEventListener("click", (event) => idsAt(event.target) && pin(idsAt(event.target), event.target));

  /** The focus moves among the rows of a listing. */
  function moveInListing(event) {
    const listing = event.target.closest ? event.target.closest(".listing") : null;
    if (!listing) return false;
    const rows = [...listing.querySelectorAll(".row:not(.machine-head)")];
    const at = rows.indexOf(event.target.closest(".row"));
    const to = {ArrowDown: at + 1, ArrowUp: at < 0 ? 0 : at - 1, Home: 0, End: rows.length - 1}[event.key];
    if (to === undefined || !rows[to]) return false;
    rows[to].focus();
    return true;
  }
  function stepNode(by) {
    const ids = last.lines.map((line) => line.node);
    if (ids.length === 0) return;
    const at = ids.indexOf((pinned || shown)[0]);
    pinned = null;
    pin([ids[(at < 0 ? (by > 0 ? 0 : ids.length - 1) : at + by + ids.length) % ids.length]], null);
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (moveInListing(event)) return event.preventDefault();
    if (event.key === "Escape") return release();
    if (event.key === "n") return stepNode(1);
    if (event.key === "p") return stepNode(-1);
    const ids = idsAt(event.target);
    if (!ids || (event.key !== "Enter" && event.key !== " ")) return;
    pin(ids, event.target);
    event.preventDefault();
  });

  document.querySelector("main").after(inspector);
  document.title = `${data.sources.map((source) => source.text).join(", ")} · sr-jit explain`;
  showFacts([data.precision, data.math, data.architecture, `version ${data.version}`]);
  addSection("source", "Expressions", null, make("div", {class: "grid expressions"}, ...data.sources.map(showSource)));
  addSection("passes", "Graph, pass by pass",
    "Equal subtrees are one node. A node that a pass leaves alone keeps its number, in all that follows.", ...showPasses());
  addSection("code", "Code", "All of it computes the same numbers. The bar beside a line has the colour of its node.",
    make("div", {class: "grid stages"}, ...data.stages.map(showStage)));
  addSection("nodes", "Nodes", `Error bounds are running error bounds (Higham, Accuracy and Stability of Numerical Algorithms, 3.3): how far a kernel's number may be from that of exact arithmetic. The rows: ${data.sample}.`, showNodes());
  addSection("costs", "Counts and times", null, showCosts());
  if (data.notices.length) addSection("notices", "Left out", null, make("ul", {}, ...data.notices.map((notice) => make("li", {}, notice))));
  hint();
})();
