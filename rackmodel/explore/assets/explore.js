// The page of `rackmodel explore`: what is chosen and moved is a question; each answer is drawn by charts.js.

const GIVEN = JSON.parse(document.getElementById("data").textContent);
const SIDES = ["a", "b"], COMMON = ["workload", "minimize", "profile"], OWN = ["architecture", "mapper"];
const WORDED = { architecture: "machine", workload: "workload", mapper: "mapper", minimize: "least", profile: "profile" };
const WAIT_MS = 120, SLOW_MS = 250;
const STEPS = 4; // a slider goes from 1/16 to 16 times what the file says
const question = { workload: GIVEN.start.workload, minimize: "", profile: "", sets: {}, a: own(GIVEN.start), b: null };
const answers = { a: null, b: null }, timers = {}, asking = {}, drawn = {};

function own(of) {
  return { architecture: of.architecture, mapper: of.mapper, sets: { ...of.sets } };
}

const shown = () => SIDES.filter((side) => question[side]);
const isCommon = (path) => /^(workload|profile)\./.test(path);
const setsOf = (side, path) => (isCommon(path) ? question.sets : question[side].sets);
const lines = (sets) => Object.entries(sets).map(([path, value]) => `${path}=${value}`);

// -- the question in the address ---------------------------------------------------------------------------------------

function written() {
  const words = new URLSearchParams();
  for (const key of COMMON) if (question[key]) words.append(key, question[key]);
  for (const line of lines(question.sets)) words.append("set", line);
  for (const side of shown()) {
    for (const key of OWN) words.append(`${side}.${key}`, question[side][key]);
    for (const line of lines(question[side].sets)) words.append(`${side}.set`, line);
  }
  return words.toString();
}

function read(text) {
  const words = new URLSearchParams(text);
  const sets = (key) => Object.fromEntries(words.getAll(key).filter((line) => line.includes("=")).map((line) => {
    const at = line.indexOf("=");
    return [line.slice(0, at), line.slice(at + 1)];
  }));
  for (const key of COMMON) if (words.has(key)) question[key] = words.get(key);
  question.sets = sets("set");
  for (const side of SIDES) {
    if (!OWN.some((key) => words.has(`${side}.${key}`))) { if (side === "b") question.b = null; continue; }
    const base = question[side] || question.a;
    question[side] = { sets: sets(`${side}.set`) };
    for (const key of OWN) question[side][key] = words.get(`${side}.${key}`) || base[key];
  }
}

// -- asking ------------------------------------------------------------------------------------------------------------

function body(side) {
  const { architecture, mapper, sets } = question[side];
  const { workload, minimize, profile } = question;
  return JSON.stringify({ side, architecture, mapper, workload, minimize, profile, sets: [...lines(question.sets), ...lines(sets)] });
}

async function post(path, side, signal) {
  const headers = { "Content-Type": "application/json", "X-Rackmodel-Token": GIVEN.token };
  const said = await fetch(path, { method: "POST", headers, body: body(side), signal, cache: "no-store" });
  return said.json();
}

function changed(...sides) {
  history.replaceState(null, "", `#${written()}`);
  for (const side of sides) {
    clearTimeout(timers[side]);
    timers[side] = setTimeout(() => ask(side), WAIT_MS);
  }
}

async function ask(side) {
  if (asking[side]) asking[side].abort();
  const mine = asking[side] = new AbortController();
  const card = document.getElementById(`card-${side}`);
  const slow = setTimeout(() => card.setAttribute("aria-busy", "true"), SLOW_MS);
  let found;
  try {
    found = await post("/ask", side, mine.signal);
  } catch (problem) {
    if (mine.signal.aborted) return;
    found = { problem: { kind: "gone", text: `the server does not answer: does \`rackmodel explore\` still run?`, problems: [] } };
  } finally {
    clearTimeout(slow);
  }
  if (asking[side] !== mine || !question[side]) return;
  asking[side] = null;
  answers[side] = found;
  card.removeAttribute("aria-busy");
  drawAnswer(side);
}

// -- the answer --------------------------------------------------------------------------------------------------------

function cardOf(found) {
  if (found.problem) return [element("pre", { class: "problem" }, found.problem.text)];
  const { name, mapping, figures, proof, status, limits, warnings } = found.card;
  return [
    element("h3", {}, name), element("p", { class: "mapping" }, mapping),
    element("dl", {}, ...figures.map(([word, value]) => element("div", {}, element("dt", {}, word), element("dd", {}, value)))),
    element("p", {}, `${proof} `, element("span", { class: `status${status === "proven" ? " proven" : ""}` }, status)),
    ...(limits ? [element("p", {}, `limited by ${limits}`)] : []), ...warnings.map((text) => element("p", { class: "warning" }, text)),
    element("p", { class: "soft" }, `answered in ${si(found.seconds, "s", 2)}`),
  ];
}

function drawAnswer(side) {
  const found = answers[side];
  document.getElementById(`card-${side}`).replaceChildren(...cardOf(found));
  if (found.knobs) drawKnobs(side, found.knobs);
  markProblems(side, found.problem ? found.problem.problems : []);
  const good = shown().filter((one) => answers[one] && answers[one].data);
  document.getElementById("found").hidden = !good.length;
  if (good.length) {
    show(good.map((one) => ({ ...answers[one].data, name: good.length > 1 ? `${one.toUpperCase()}: ${answers[one].card.name}` : answers[one].card.name })));
  }
  drawSketches(good);
  drawAgain();
}

function drawSketches(sides) {
  // Timeline, tree and graph, drawn by the server as for the page of results; its words are escaped there, and the page runs no other script.
  const parts = sides.filter((side) => answers[side].sketches).map((side) => {
    const html = new DOMParser().parseFromString(answers[side].sketches, "text/html").body;
    if (sides.length > 1) html.querySelector("h3").prepend(`${side.toUpperCase()}: `);
    return [...html.children];
  });
  const place = document.getElementById("sketches");
  place.hidden = !parts.length;
  place.replaceChildren(element("h2", {}, "How it runs"), ...parts.flat());
}

function markProblems(side, problems) {
  const wrong = new Map();
  for (const one of problems) {
    const path = /^--set ([^=]+)=/.exec(one.file || "");
    if (path) wrong.set(path[1].trim(), one.nearest ? `${one.message}: did you mean '${one.nearest}'?` : one.message);
  }
  for (const place of [`knobs-${side}`, "knobs-common"]) {
    for (const row of document.querySelectorAll(`#${place} .knob`)) {
      const text = wrong.get(row.dataset.path);
      row.querySelector("input[type=text]").setAttribute("aria-invalid", String(text !== undefined));
      row.querySelector(".wrong").textContent = text || "";
    }
  }
}

function drawAgain() {
  const commands = shown().map((side) => answers[side] && answers[side].command).filter(Boolean);
  document.getElementById("again").hidden = !commands.length;
  const words = [...new Set(commands), `rackmodel explore --state '${written()}'`].join("\n");
  const pre = element("pre", { id: "command" }, words), button = element("button", { type: "button", class: "copy" }, "copy");
  copies(button, pre);
  const exports = shown().map((side) => {
    const many = shown().length > 1 ? ` of ${side.toUpperCase()}` : "";
    return element("button", { type: "button", "data-export": side, onclick: () => drawFiles(side) }, `the files${many} that reproduce it`);
  });
  document.getElementById("commands").replaceChildren(element("div", { class: "copyable" }, element("span", {}, ...exports), button), pre);
  document.getElementById("files").replaceChildren();
}

async function drawFiles(side) {
  const place = document.getElementById("files");
  place.replaceChildren(element("p", { class: "soft" }, "…"));
  const found = await post("/export", side).catch(() => ({ problem: { text: "the server does not answer" } }));
  if (found.problem) { place.replaceChildren(element("pre", { class: "problem" }, found.problem.text)); return; }
  const parts = Object.entries(found.files).map(([name, text]) => {
    const pre = element("pre", {}, text), button = element("button", { type: "button", class: "copy" }, "copy");
    copies(button, pre);
    const link = element("a", { download: name, href: URL.createObjectURL(new Blob([text], { type: "text/yaml" })) }, `save ${name}`);
    return element("details", {}, element("summary", {}, name), element("div", { class: "copyable" }, link, button), pre);
  });
  place.replaceChildren(element("p", { class: "soft" }, "In one folder, these ask the same and give the same figures:"),
    element("pre", {}, found.commands.join("\n")), ...parts);
}

// -- what is chosen ----------------------------------------------------------------------------------------------------

function choice(kind, value, act) {
  const names = kind === "minimize" ? Object.fromEntries(GIVEN.objectives.map((one) => [one, ""])) : GIVEN.shelf[kind];
  const free = { minimize: "as the mapper says", profile: "as the mapper says" }[kind];
  const options = [...(free ? [["", free]] : []), ...Object.keys(names).map((name) => [name, name])];
  const told = element("span", { class: "about" }, names[value] || "");
  const select = element("select", { "data-choice": kind }, ...options.map(([one, word]) => element("option", { value: one }, word)));
  select.value = value;
  select.addEventListener("change", () => { told.textContent = names[select.value] || ""; act(select.value); });
  return element("label", { class: "choice" }, WORDED[kind], select, told);
}

function drawChoices() {
  const common = COMMON.map((kind) => choice(kind, question[kind], (value) => {
    question[kind] = value;
    forget(question.sets, kind === "minimize" ? null : kind);
    changed(...shown());
  }));
  document.getElementById("common").replaceChildren(element("div", { class: "choices" }, ...common), element("div", { id: "knobs-common" }));
  for (const side of SIDES) drawSide(side);
}

function forget(sets, kind) {
  // Settings of an input that is another now.
  for (const path of Object.keys(sets)) {
    const of = /^(workload|profile|mapper)\./.exec(path);
    if (kind && (of ? of[1] : "architecture") === kind) delete sets[path];
  }
}

function drawSide(side) {
  const place = document.getElementById(`side-${side}`);
  drawn[side] = "";
  place.hidden = !question[side];
  if (!question[side]) { place.replaceChildren(); return; }
  const choices = OWN.map((kind) => choice(kind, question[side][kind], (value) => {
    question[side][kind] = value;
    forget(question[side].sets, kind);
    changed(side);
  }));
  const beside = side === "a" && !question.b ? ["beside", "a second machine beside it"] : side === "b" ? ["alone", "without it"] : null;
  const button = beside ? [element("button", { type: "button", id: beside[0], onclick: beside[0] === "beside" ? add : remove }, beside[1])] : [];
  const title = element("h2", {}, question.b ? `Machine ${side.toUpperCase()}` : "Machine");
  place.replaceChildren(element("div", { class: "copyable" }, title, ...button), element("div", { class: "choices" }, ...choices),
    element("article", { id: `card-${side}`, role: "status" }, element("p", { class: "soft" }, "searching …")), element("div", { id: `knobs-${side}` }));
}

function add() {
  question.b = own(question.a);
  drawChoices();
  if (answers.a) drawAnswer("a");
  changed("b");
}

function remove() {
  if (asking.b) asking.b.abort();
  question.b = answers.b = null;
  drawChoices();
  if (answers.a) drawAnswer("a");
  changed();
}

// -- what is moved -----------------------------------------------------------------------------------------------------

function drawKnobs(side, knobs) {
  const places = { [side]: knobs.filter((knob) => !isCommon(knob.path)), common: knobs.filter((knob) => isCommon(knob.path)) };
  for (const [name, some] of Object.entries(places)) {
    const key = JSON.stringify([some, Object.keys(name === "common" ? question.sets : question[side].sets).filter((path) => !some.some((knob) => knob.path === path))]);
    const place = document.getElementById(`knobs-${name}`);
    if (drawn[name] === key && place.childElementCount) continue;
    const open = new Set([...place.querySelectorAll("details[open]")].map((one) => one.dataset.group));
    const groups = grouped([...some, ...others(name === "common" ? question.sets : question[side].sets, some)], (knob) => knob.group);
    const parts = [...groups].map(([group, inside]) => {
      const moved = inside.some((knob) => setsOf(side, knob.path)[knob.path] !== undefined);
      const details = element("details", { "data-group": group, ...(moved || group === "machine" || open.has(group) ? { open: "" } : {}) });
      details.append(element("summary", {}, `${group} (${inside.length})`), ...inside.map((knob) => row(side, knob)));
      return details;
    });
    place.replaceChildren(...(parts.length || name !== "common" ? [search(place), ...parts] : []), ...(name === "common" ? [] : [another(side)]));
    drawn[name] = key;
  }
}

function others(sets, knobs) {
  // Settings of numbers that no file states.
  const known = new Set(knobs.map((knob) => knob.path));
  return Object.keys(sets).filter((path) => !known.has(path)).map((path) => ({ group: "set here", path, value: "", range: "", source: "" }));
}

function search(place) {
  const box = element("input", { type: "search", placeholder: "find a number", "aria-label": "find a number" });
  box.addEventListener("input", () => {
    for (const one of place.querySelectorAll(".knob")) one.hidden = !one.dataset.path.includes(box.value.trim());
    for (const one of place.querySelectorAll("details")) {
      one.hidden = ![...one.querySelectorAll(".knob")].some((knob) => !knob.hidden);
      if (box.value) one.open = true;
    }
  });
  return box;
}

function another(side) {
  const box = element("input", { type: "text", placeholder: "any other: name=value or name*=0.5", "aria-label": "any other setting: name=value or name*=0.5", class: "another" });
  box.addEventListener("change", () => {
    const at = box.value.indexOf("=");
    const [path, value] = at > 0 ? [box.value.slice(0, at).trim(), box.value.slice(at + 1).trim()] : [box.value.trim(), ""];
    if (!path) return;
    setsOf(side, path)[path] = value;
    box.value = "";
    changed(...(isCommon(path) ? shown() : [side]));
  });
  return box;
}

function row(side, knob) {
  const sets = setsOf(side, knob.path);
  const number = /^\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*(.*)$/i.exec(knob.value);
  const base = number ? Number(number[1]) : NaN, unit = number ? number[2] : "";
  const whole = !unit && Number.isInteger(base);
  const slides = base > 0 && !(whole && base === 1 && !/count|accelerators|sizes/.test(knob.path));
  const field = element("input", { type: "text", value: sets[knob.path] ?? knob.value, "aria-label": knob.path, spellcheck: "false" });
  const told = [knob.range, knob.source].filter(Boolean).join("; ");
  const slider = element("input", { type: "range", min: -STEPS, max: STEPS, step: whole ? 1 : 0.05, "aria-label": `${knob.path}, slider`, ...(slides ? {} : { hidden: "" }) });
  const back = element("button", { type: "button", "aria-label": `${knob.path} as the file says`, class: "back" }, "↺");
  const parts = [element("span", { class: "path", title: told }, knob.path), field, slider, back, element("span", { class: "wrong", role: "alert" })];
  const line = element("div", { class: "knob", "data-path": knob.path }, ...parts);
  const place = () => {
    line.classList.toggle("moved", knob.path in sets);
    back.hidden = !(knob.path in sets);
    const now = /^\s*([0-9.]+(?:e[+-]?[0-9]+)?)/i.exec(field.value);
    slider.value = now && base > 0 ? Math.log2(Number(now[1]) / base) : 0;
  };
  const put = (value) => {
    if (value === knob.value || value === "") delete sets[knob.path];
    else sets[knob.path] = value;
    if (field.value !== value) field.value = value || knob.value;
    place();
    changed(...(isCommon(knob.path) ? shown() : [side]));
  };
  const moved = () => {
    const value = base * 2 ** Number(slider.value);
    return Number(slider.value) === 0 ? knob.value : `${whole ? Math.max(1, Math.round(value)) : Number(value.toPrecision(3))}${unit ? ` ${unit}` : ""}`;
  };
  field.addEventListener("input", () => put(field.value.trim()));
  slider.addEventListener("input", () => { field.value = moved(); put(field.value); });
  back.addEventListener("click", () => put(knob.value));
  place();
  return line;
}

// -- the page ----------------------------------------------------------------------------------------------------------

listen();
read(location.hash.slice(1));
drawChoices();
addEventListener("hashchange", () => { read(location.hash.slice(1)); drawChoices(); changed(...shown()); });
for (const side of shown()) ask(side);
