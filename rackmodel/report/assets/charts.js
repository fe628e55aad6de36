"use strict";
// Charts and tables of results' ledgers, linked by one state of filters: of the page of results and of `explore`. No library, no request.
// Names come from files of strangers: they reach the page as text nodes and attributes alone, never as markup.

const DATA = { results: [] }; // what is shown: `show` fills it
const KEYS = ["phase", "einsum", "tensor", "level", "component", "action"];
const FIGURES = { joules: "J", exposed_seconds: "s", seconds: "s", bytes: "B" };
const WORDS = { joules: "energy", exposed_seconds: "time on the critical path", seconds: "time as if alone", bytes: "bytes moved" };
const COMPONENTS = ["compute", "memory", "network", "static"];
const MOST_SEGMENTS = 8, MOST_ROWS = 300;
const state = { by: "component", filters: { phase: "", component: "", einsum: "", level: "" }, hidden: new Set() };

// -- small tools -------------------------------------------------------------------------------------------------------

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "rect", "text", "line", "path", "circle"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

function sum(values) {
  let total = 0, low = 0; // compensated, as the ledger's own sums are
  for (const value of values) {
    const next = total + value;
    low += Math.abs(total) >= Math.abs(value) ? total - next + value : value - next + total;
    total = next;
  }
  return total + low;
}

function si(value, unit, digits = 4) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return `0 ${unit}`;
  const size = Math.abs(value);
  if (unit === "s" && size >= 600) {
    const [least, name] = size >= 172800 ? [86400, "d"] : size >= 7200 ? [3600, "h"] : [60, "min"];
    return `${Number((value / least).toPrecision(digits))} ${name}`;
  }
  const prefixes = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"],
    [1e-12, "p"], [1e-15, "f"]].filter(([factor]) => unit !== "s" || factor <= 1);
  const rounded = Number(size.toPrecision(digits));
  const [factor, prefix] = prefixes.find(([f]) => rounded >= f * (unit === "s" ? 0.1 : 1)) || prefixes[prefixes.length - 1];
  return `${Number((value / factor).toPrecision(digits))} ${prefix}${unit}`;
}

function percent(part, whole) {
  if (!(whole > 0)) return "–";
  const share = 100 * part / whole;
  return share === 0 ? "0 %" : share < 0.05 ? "<0.1 %" : `${share >= 9.95 ? share.toFixed(0) : share.toFixed(1)} %`;
}

// -- the ledger under the filters --------------------------------------------------------------------------------------

function unpacked(ledger) {
  return ledger.rows.map((row) => {
    const found = {};
    KEYS.forEach((key, place) => { found[key] = ledger.words[row[place]]; });
    [found.joules, found.exposed_seconds, found.seconds, found.amount] = row.slice(7);
    found.bytes = ledger.words[row[6]] === "byte" ? found.amount : 0;
    return found;
  });
}

const kept = (row) => Object.entries(state.filters).every(([key, value]) => !value || row[key] === value);
const segmentOf = (row) => state.by.split(",").map((key) => row[key]).filter(Boolean).join(" ") || "(none)";

function grouped(rows, keyOf) {
  const groups = new Map();
  for (const row of rows) {
    const key = keyOf(row);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  return groups;
}

function segments() {
  // Names of the segments and their colour: the largest of any figure's share, at most eight; the rest are 'other'.
  const weight = new Map();
  for (const result of DATA.results) {
    const rows = result.rows.filter(kept);
    for (const figure of Object.keys(FIGURES)) {
      const total = sum(rows.map((row) => row[figure])) || 1;
      for (const [name, group] of grouped(rows, segmentOf)) {
        weight.set(name, Math.max(weight.get(name) || 0, sum(group.map((row) => row[figure])) / total));
      }
    }
  }
  const place = (name) => { const at = COMPONENTS.indexOf(name); return at < 0 ? COMPONENTS.length : at; };
  let names = [...weight.keys()].sort((a, b) => weight.get(b) - weight.get(a) || (a < b ? -1 : 1));
  const more = names.length > MOST_SEGMENTS;
  names = names.slice(0, more ? MOST_SEGMENTS - 1 : MOST_SEGMENTS).sort((a, b) => place(a) - place(b));
  const colour = new Map(names.map((name, k) => [name, state.by === "component" && place(name) < 4 ? place(name) : k]));
  if (more) colour.set("other", 8);
  return colour;
}

// -- charts ------------------------------------------------------------------------------------------------------------

const tip = element("div", { id: "tip", role: "status", hidden: "" });

function tell(node, text) {
  const show = (x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - box.width - 4))}px`;
    tip.style.top = `${Math.max(4, y + 16 + box.height > innerHeight ? y - box.height - 12 : y + 16)}px`;
  };
  node.addEventListener("pointermove", (event) => show(event.clientX, event.clientY));
  node.addEventListener("focus", () => { const box = node.getBoundingClientRect(); show(box.x + box.width / 2, box.y + box.height); });
  for (const out of ["pointerleave", "blur"]) node.addEventListener(out, () => { tip.hidden = true; });
  node.setAttribute("aria-label", text.replaceAll("\n", ", "));
  return node;
}

function pressable(node, act) {
  node.setAttribute("tabindex", "0");
  node.setAttribute("role", "button");
  node.addEventListener("click", act);
  node.addEventListener("keydown", (event) => { if (["Enter", " "].includes(event.key)) { event.preventDefault(); act(); } });
  return node;
}

function bars(place, title, unit, lines) {
  // Stacked bars, one below the other. lines: [name, [[segment, colour, value, act], ...]]
  const figure = document.getElementById(place);
  const width = Math.max(240, figure.clientWidth), height = 46;
  const totals = lines.map(([, parts]) => sum(parts.map((part) => part[2])));
  const top = Math.max(...totals, 0) || 1;
  const svg = element("svg", { viewBox: `0 0 ${width} ${lines.length * height}`, height: lines.length * height, role: "group", "aria-label": title });
  lines.forEach(([name, parts], number) => {
    const y = number * height;
    const end = element("text", { x: width, y: y + 14, "text-anchor": "end" }, si(totals[number], unit));
    svg.append(clipped(name, y + 14, width - 90), end);
    let x = 0;
    for (const [segment, colour, value, act] of parts) {
      const wide = width * value / top;
      if (!(wide > 0)) continue;
      const bar = element("rect", { x, y: y + 20, width: Math.max(wide, 0.5), height: 18, class: `k${colour}` });
      tell(bar, `${name}\n${segment}: ${si(value, unit)}, ${percent(value, totals[number])}`);
      svg.append(act ? pressable(bar, act) : bar);
      x += wide;
    }
  });
  figure.replaceChildren(element("figcaption", {}, title), svg);
}

function clipped(name, y, width) {
  const most = Math.max(8, Math.floor(width / 6.6));
  const text = element("text", { x: 0, y }, name.length > most ? `${name.slice(0, most - 1)}…` : name);
  return tell(text, name);
}

function breakdowns() {
  const colour = segments();
  for (const figure of ["joules", "exposed_seconds", "bytes"]) {
    const lines = DATA.results.map((result) => {
      const groups = grouped(result.rows.filter(kept), (row) => (colour.has(segmentOf(row)) ? segmentOf(row) : "other"));
      const parts = [...colour].filter(([name]) => !state.hidden.has(name)).map(([name, k]) => {
        return [name, k, sum((groups.get(name) || []).map((row) => row[figure])), name === "other" ? null : () => choose(name)];
      });
      return [result.name, parts];
    });
    bars(`chart-${figure}`, `${WORDS[figure][0].toUpperCase()}${WORDS[figure].slice(1)}, by ${state.by.replaceAll(",", ", ")}`, FIGURES[figure], lines);
  }
  const buttons = [...colour].map(([name, k]) => {
    const act = () => { state.hidden.has(name) ? state.hidden.delete(name) : state.hidden.add(name); draw(); focusOn(name); };
    const pressed = String(!state.hidden.has(name));
    return element("button", { type: "button", "data-name": name, "aria-pressed": pressed, onclick: act }, element("i", { class: `k${k}` }), name);
  });
  document.getElementById("legend").replaceChildren(...buttons);
}

function focusOn(name) {
  for (const button of document.querySelectorAll("#legend button")) if (button.dataset.name === name) button.focus();
}

function choose(name) {
  // A segment that is pressed becomes the filter, where the segments are one column that can be filtered; pressed again it is none.
  if (!(state.by in state.filters)) return;
  state.filters[state.by] = state.filters[state.by] === name ? "" : name;
  document.getElementById(`filter-${state.by}`).value = state.filters[state.by];
  draw();
}

function memory() {
  const names = [...new Set(DATA.results.flatMap((result) => Object.keys(result.memory)))];
  const figure = document.getElementById("chart-memory");
  if (figure) figure.hidden = !names.length;
  if (!names.length || !figure) return;
  const lines = DATA.results.map((result) => {
    const held = Object.entries(result.memory).filter(([, size]) => size > 0);
    const name = result.capacity ? `${result.name}: of ${si(result.capacity, "B")}` : result.name;
    return [name, held.map(([part, size]) => [part, Math.min(names.indexOf(part), 8), size, null])];
  });
  bars("chart-memory", "Memory of the fullest accelerator", "B", lines);
  const told = names.map((name, k) => element("span", {}, element("i", { class: `k${Math.min(k, 8)}` }), name));
  figure.append(element("div", { class: "legend soft" }, ...told));
}

function roofline() {
  const figure = document.getElementById("chart-roofline");
  const points = DATA.results.flatMap((result, number) => result.roofline.map((point) => ({ ...point, result, number })));
  figure.hidden = !points.length;
  if (!points.length) return;
  const width = Math.max(240, figure.clientWidth), height = 300, left = 62, bottom = 34;
  const roofs = DATA.results.filter((result) => result.peak && result.bandwidth);
  const xs = [...points.map((p) => p.intensity), ...roofs.map((r) => r.peak / r.bandwidth)];
  const ys = [...points.map((p) => p.rate), ...roofs.map((r) => r.peak)];
  const range = (values) => [Math.floor(Math.log10(Math.min(...values)) - 0.15), Math.ceil(Math.log10(Math.max(...values)) + 0.15)];
  const [x0, x1] = range(xs), [y0, y1] = range(ys);
  const px = (value) => left + (width - left - 12) * (Math.log10(value) - x0) / (x1 - x0);
  const py = (value) => 10 + (height - bottom - 10) * (y1 - Math.log10(value)) / (y1 - y0);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": "roofline" });
  for (let k = x0; k <= x1; k += Math.ceil((x1 - x0) / 6)) {
    svg.append(element("line", { x1: px(10 ** k), x2: px(10 ** k), y1: 10, y2: height - bottom, class: "axis" }));
    svg.append(element("text", { x: px(10 ** k), y: height - bottom + 15, "text-anchor": "middle", class: "soft" }, si(10 ** k, "")));
  }
  for (let k = y0; k <= y1; k += Math.ceil((y1 - y0) / 5)) {
    svg.append(element("line", { x1: left, x2: width - 12, y1: py(10 ** k), y2: py(10 ** k), class: "axis" }));
    svg.append(element("text", { x: left - 6, y: py(10 ** k) + 4, "text-anchor": "end", class: "soft" }, si(10 ** k, "FLOP/s").replace("FLOP/s", "")));
  }
  for (const roof of roofs) {
    const ridge = roof.peak / roof.bandwidth, from = Math.max(10 ** x0, 10 ** y0 / roof.bandwidth);
    const path = `M${px(from)},${py(from * roof.bandwidth)}L${px(ridge)},${py(roof.peak)}L${px(10 ** x1)},${py(roof.peak)}`;
    svg.append(tell(element("path", { d: path, class: "roof" }), `${roof.name}\n${si(roof.peak, "FLOP/s")}, ${si(roof.bandwidth, "B/s")}`));
  }
  const most = Math.max(...points.map((p) => p.exposed), 0) || 1;
  const taken = [], labels = [];
  for (const p of [...points].sort((a, b) => b.exposed - a.exposed)) {
    const on = kept({ phase: p.phase, einsum: p.einsum, component: state.filters.component, level: state.filters.level });
    const radius = 3.5 + 7 * Math.sqrt(p.exposed / most), x = px(p.intensity), y = py(p.rate);
    const dot = element("circle", { cx: x, cy: y, r: radius, class: `mark k${p.number % 8}${on ? "" : " faded"}`, tabindex: on ? "0" : "-1" });
    const told = `${p.result.name}\n${p.phase} ${p.einsum}\n${si(p.intensity, "FLOP/B")}, ${si(p.rate, "FLOP/s")} an accelerator`;
    svg.append(tell(dot, `${told}\n${si(p.exposed, "s")} of the critical path`));
    taken.push([x - radius, y - radius, 2 * radius, 2 * radius]);
    if (on && p.einsum.length < 24) labels.push([[x + radius + 3, y - 6, p.einsum.length * 6.8 + 2, 13], p.einsum]);
  }
  const apart = (a, b) => a[0] + a[2] < b[0] || b[0] + b[2] < a[0] || a[1] + a[3] < b[1] || b[1] + b[3] < a[1];
  for (const [box, name] of labels) { // a label that would lie on another or on a mark is left to the mark's own words
    if (box[0] + box[2] > width || !taken.every((other) => apart(box, other))) continue;
    taken.push(box);
    svg.append(element("text", { x: box[0], y: box[1] + 10, "pointer-events": "none" }, name));
  }
  svg.append(element("text", { x: (left + width) / 2, y: height - 2, "text-anchor": "middle", class: "soft" }, "FLOP for each byte of the accelerator's memory"));
  const words = "Roofline: FLOP/s an accelerator (mean of those that run it); the larger, the more of the critical path";
  figure.replaceChildren(element("figcaption", {}, words), svg);
}

// -- tables ------------------------------------------------------------------------------------------------------------

function ledgerTable() {
  const by = document.getElementById("columns").value.split(",");
  const many = DATA.results.length > 1;
  const heads = [...(many ? ["result"] : []), ...by, "energy", "share", "on the critical path", "as if alone", "bytes"];
  const rows = [];
  for (const result of DATA.results) {
    const mine = result.rows.filter(kept).filter((row) => !state.hidden.size || !state.hidden.has(segmentOf(row)));
    const total = sum(mine.map((row) => row.joules));
    for (const group of grouped(mine, (row) => JSON.stringify(by.map((key) => row[key]))).values()) {
      const [joules, exposed, seconds, bytes] = ["joules", "exposed_seconds", "seconds", "bytes"].map((key) => sum(group.map((row) => row[key])));
      const cells = [...(many ? [result.name] : []), ...by.map((key) => group[0][key])].map((text) => [text, text]);
      const figures = [[si(joules, "J"), joules], [percent(joules, total), joules / (total || 1)], [si(exposed, "s"), exposed], [si(seconds, "s"), seconds]];
      rows.push([...cells, ...figures, [bytes ? si(bytes, "B") : "–", bytes]]);
    }
  }
  const at = heads.indexOf("energy");
  rows.sort((a, b) => b[at][1] - a[at][1] || b[at + 2][1] - a[at + 2][1]);
  const body = rows.slice(0, MOST_ROWS).map((row) => {
    return element("tr", {}, ...row.map(([text, value]) => {
      return element("td", typeof value === "number" ? { class: "number", "data-value": value } : {}, text);
    }));
  });
  const top = element("tr", {}, ...heads.map((head, k) => element("th", k >= at ? { class: "number" } : {}, head)));
  const table = element("table", {}, element("thead", {}, top), element("tbody", {}, ...body));
  const left = rows.length - body.length;
  const place = document.getElementById("ledger");
  place.replaceChildren(element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "ledger" }, table));
  if (left > 0) place.append(element("p", { class: "soft" }, `and ${left} more rows: filter, or read ledger.csv`));
  sortable(table);
}

function differenceTable() {
  // Rows that make the difference between two results, largest first: every row is in one group, so that they add up to the whole.
  const place = document.getElementById("difference");
  place.hidden = DATA.results.length !== 2;
  if (place.hidden) return;
  const by = document.getElementById("columns").value.split(",");
  const figures = ["exposed_seconds", "joules", "bytes"], units = ["s", "J", "B"];
  const ends = DATA.results.map((result) => grouped(result.rows.filter(kept), (row) => JSON.stringify(by.map((key) => row[key]))));
  const of = (group) => figures.map((figure) => sum((group || []).map((row) => row[figure])));
  const cells = (before, after) => figures.flatMap((_, k) => {
    const more = after[k] - before[k];
    return [[more ? `${more > 0 ? "+" : "−"}${si(Math.abs(more), units[k])}` : "–", more], [si(before[k], units[k]), before[k]], [si(after[k], units[k]), after[k]]];
  });
  const keys = [...new Set(ends.flatMap((groups) => [...groups.keys()]))];
  const rows = keys.map((key) => [key, of(ends[0].get(key)), of(ends[1].get(key))]).filter(([, a, b]) => a.some((value, k) => value !== b[k]));
  const size = ([, a, b]) => [Math.abs(b[0] - a[0]), Math.abs(b[1] - a[1])];
  rows.sort((one, other) => size(other)[0] - size(one)[0] || size(other)[1] - size(one)[1] || (one[0] < other[0] ? -1 : 1));
  const line = (words, figured) => element("tr", {}, ...words.map((word) => element("td", {}, word)),
    ...figured.map(([text, value]) => element("td", { class: "number", "data-value": value }, text)));
  const [first, second] = DATA.results.map((result) => result.name);
  const words = ["on the critical path", "energy", "bytes"].flatMap((figure) => [`${figure}: more`, "first", "second"]);
  const heads = [...by, ...words].map((head, k) => element("th", k >= by.length ? { class: "number" } : {}, head));
  const whole = DATA.results.map((result) => of(result.rows.filter(kept)));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)),
    element("tbody", {}, ...rows.slice(0, MOST_ROWS).map(([key, a, b]) => line(JSON.parse(key), cells(a, b)))),
    element("tfoot", {}, line(["all", ...by.slice(1).map(() => "")], cells(...whole))));
  const told = `What the second, ${second}, takes more (+) or less (−) than the first, ${first}; largest difference of time first`;
  place.replaceChildren(element("h2", {}, "What makes the difference"), element("p", { class: "soft" }, told),
    element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "difference" }, table));
  sortable(table);
}

function sortable(table) {
  for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
    const button = element("button", { type: "button" }, ...head.childNodes);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.value === undefined ? row.cells[column].textContent : Number(row.cells[column].dataset.value);
      const rows = [...table.tBodies[0].rows];
      const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
      rows.sort((a, b) => (down ? -1 : 1) * compare(value(a), value(b)));
      table.tBodies[0].append(...rows);
    });
    head.replaceChildren(button);
  }
}

function tableText(table) {
  return [...table.rows].map((row) => [...row.cells].map((cell) => {
    const text = cell.dataset.value === undefined ? cell.textContent.trim() : cell.dataset.value;
    return /^[=+\-@\t\r]/.test(text) && !Number.isFinite(Number(text)) ? `'${text}` : text; // no cell of a spreadsheet is a formula
  }).join("\t")).join("\n");
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", {}, text);
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const said = button.textContent;
  button.textContent = "copied";
  setTimeout(() => { button.textContent = said; }, 1200);
}

// -- the page ----------------------------------------------------------------------------------------------------------

function draw() {
  breakdowns();
  roofline();
  ledgerTable();
  differenceTable();
  const set = Object.entries(state.filters).filter(([, value]) => value).map(([key, value]) => `${key} ${value}`);
  document.getElementById("shown").textContent = set.length ? `shown: ${set.join(", ")}` : "shown: everything";
}

function show(results) {
  // Results in the place of those that were shown; a filter stays where they have its value too.
  for (const result of results) result.rows = result.rows || unpacked(result.ledger);
  DATA.results = results;
  for (const key of Object.keys(state.filters)) {
    const values = [...new Set(results.flatMap((result) => result.rows.map((row) => row[key])))].filter(Boolean);
    const select = document.getElementById(`filter-${key}`);
    if (!values.includes(state.filters[key])) state.filters[key] = "";
    select.replaceChildren(element("option", { value: "" }, "all"), ...values.map((value) => element("option", { value }, value)));
    select.value = state.filters[key];
  }
  memory();
  draw();
}

function listen() {
  // Whatever of the page acts on what is shown; once.
  document.body.append(tip);
  for (const key of Object.keys(state.filters)) {
    const select = document.getElementById(`filter-${key}`);
    select.addEventListener("change", () => { state.filters[key] = select.value; draw(); });
  }
  const by = document.getElementById("by");
  by.addEventListener("change", () => { state.by = by.value; state.hidden.clear(); draw(); });
  document.getElementById("columns").addEventListener("change", () => { ledgerTable(); differenceTable(); });
  document.getElementById("reset").addEventListener("click", () => {
    state.hidden.clear();
    for (const key of Object.keys(state.filters)) { state.filters[key] = ""; document.getElementById(`filter-${key}`).value = ""; }
    draw();
  });
  for (const table of document.querySelectorAll("table.sortable")) sortable(table);
  for (const button of document.querySelectorAll("button.copy")) copies(button, document.getElementById(button.dataset.of));
  let wide = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== wide) { wide = innerWidth; memory(); draw(); } });
  addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
}

function copies(button, target) {
  button.addEventListener("click", () => {
    const table = target.tagName === "TABLE" ? target : target.querySelector("table");
    copy(table ? tableText(table) : target.textContent, button);
  });
}
