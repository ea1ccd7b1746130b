// Where prompts come from: a file that was opened, the study, the tasks, or the keyboard.
import { ask, latest, showProblem } from "./api.js";
import { byId, findAll, formatChange, formatNumber, make, shorten } from "./dom.js";
import { drawStates } from "./states.js";

export function select(label, options, attributes) {
  // Options are [value, text] pairs, or {group, options}.
  const element = make("select", { id: newId(), ...attributes });
  const option = ([value, text]) => make("option", { value }, text);
  for (const one of options) {
    if (Array.isArray(one)) element.append(option(one));
    else element.append(make("optgroup", { label: one.group }, ...one.options.map(option)));
  }
  return { element, box: labelled(label, element) };
}

export function field(label, attributes) {
  const element = make("input", { id: newId(), ...attributes });
  return { element, box: labelled(label, element) };
}

let ids = 0;

function newId() {
  ids += 1;
  return `field-${ids}`;
}

function labelled(label, element) {
  return make("div", { class: "field" }, make("label", { for: element.id }, label), element);
}

export function showTabs(tabs) {
  // Each is {name, panel, onOpen}; arrow keys move between them.
  const list = findAll(".tabs")[0], buttons = [];
  function open(at, focus) {
    buttons.forEach((button, index) => {
      button.setAttribute("aria-selected", index === at);
      button.tabIndex = index === at ? 0 : -1;
      tabs[index].panel.hidden = index !== at;
    });
    if (focus) buttons[at].focus();
    if (tabs[at].onOpen) tabs[at].onOpen();
  }
  tabs.forEach((tab, at) => {
    const id = `tab-${at}`;
    tab.panel.id = `panel-${at}`;
    tab.panel.setAttribute("role", "tabpanel");
    tab.panel.setAttribute("aria-labelledby", id);
    const button = make("button", { type: "button", role: "tab", id, "aria-controls": tab.panel.id, onclick: () => open(at) }, tab.name);
    button.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (move) open((at + move + tabs.length) % tabs.length, true);
    });
    buttons.push(button);
    list.append(button);
    byId("panels").append(tab.panel);
  });
  open(0);
}

function methodFields(about, label) {
  // A method and its settings; what is left as it is goes unsaid.
  const own = make("div", { class: "settings" });
  const groups = [["", "the model's own"], ...about.methods.map((method) => [method.name, method.name])];
  const chosen = select(label, groups);
  function fill() {
    const method = about.methods.find((one) => one.name === chosen.element.value);
    own.replaceChildren();
    if (!method) return;
    own.append(make("p", { class: "note" }, method.about));
    for (const [name, value] of Object.entries(method.settings)) {
      own.append(field(name, { "data-setting": name, placeholder: String(value), size: "10" }).box);
    }
  }
  chosen.element.addEventListener("change", fill);
  function settings() {
    const found = {};
    for (const input of own.querySelectorAll("[data-setting]")) if (input.value.trim()) found[input.dataset.setting] = plainValue(input.value.trim());
    return found;
  }
  return { box: chosen.box, own, name: () => chosen.element.value || null, settings };
}

function plainValue(text) {
  if (text === "true" || text === "false") return text === "true";
  if (text === "none") return null;
  return /^-?\d+(\.\d+)?(e-?\d+)?$/i.test(text) ? Number(text) : text;
}

function decodeFields(about) {
  // Model, method, steps and the other things that one may say about a run.
  const model = select("Model", about.models.map((one) => [one.name, one.name]));
  const method = methodFields(about, "Method");
  const steps = field("Steps", { type: "number", min: 1, placeholder: "half the tokens", size: "8" });
  const tokens = field("New tokens", { type: "number", min: 1, placeholder: "the usual", size: "8" });
  const heat = field("Temperature", { type: "number", min: 0, step: "any", placeholder: "0", size: "6" });
  const seed = field("Seed", { type: "number", placeholder: "0", size: "6" });
  const rows = make("div", { class: "fields" }, model.box, method.box, steps.box, tokens.box, heat.box, seed.box);
  function request() {
    const options = {};
    for (const [name, one] of [["steps", steps], ["max_new_tokens", tokens], ["temperature", heat], ["seed", seed]])
      if (one.element.value !== "") options[name] = Number(one.element.value);
    const policy = method.name();
    return { model: model.element.value, options, ...(policy ? { policy, settings: method.settings() } : {}) };
  }
  return { box: make("div", {}, rows, method.own), request };
}

export function ownPromptPanel(about, run) {
  // The first model's own example, until somebody writes another prompt.
  const text = make("textarea", { rows: 2, id: "own-prompt", maxlength: 20000, placeholder: "What is to be answered; or a text with [MASK] for each token to fill in" });
  text.value = about.models[0].example;
  const fields = decodeFields(about);
  fields.box.addEventListener("change", (event) => {
    const examples = about.models.map((one) => one.example), chosen = about.models.find((one) => one.name === event.target.value);
    if (chosen && (!text.value || examples.includes(text.value))) text.value = chosen.example;
  });
  const go = make("button", { type: "submit", class: "main" }, "Decode and watch");
  const form = make("form", { onsubmit: (event) => {
    event.preventDefault();
    if (text.value.trim()) run({ ...fields.request(), prompt: text.value });
    else showProblem("the prompt is empty; write one");
  } }, make("div", { class: "field wide-field" }, make("label", { for: "own-prompt" }, "Your prompt"), text), fields.box, go);
  form.append(make("p", { class: "note" }, "Answers to your own prompt get no score: nobody said what the right one is."));
  return make("div", {}, form);
}

function promptTable(rows, columns, onPick, name) {
  // Columns are [head, cell of a row, is it text].
  const head = make("tr", {}, ...columns.map(([title, , left]) => make("th", left ? { class: "left", scope: "col" } : { scope: "col" }, title)));
  const body = rows.map((row) => {
    const cells = columns.map(([, cell, left], at) => {
      const inside = at ? cell(row) : make("button", { type: "button", class: "pick", onclick: () => onPick(row) }, cell(row));
      return make("td", left ? { class: "left" } : {}, inside);
    });
    return make("tr", {}, ...cells);
  });
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  return make("div", { class: "wide list", tabindex: 0, role: "group", "aria-label": name }, table);
}

export function taskPanel(about, run) {
  const task = select("Task", about.tasks.map((one) => [one.name, one.name]));
  const split = select("Split", ["evaluation", "validation", "development"].map((name) => [name, name]));
  const fields = decodeFields(about), list = make("div");
  let start = 0;
  const isLatest = latest();
  async function fill() {
    const current = isLatest();
    list.replaceChildren(make("p", { class: "note" }, "reading the prompts…"));
    try {
      const found = await ask("prompts", { task: task.element.value, split: split.element.value, start });
      if (!current()) return;
      const columns = [["prompt", (row) => row.id, true], ["level", (row) => String(row.level)], ["begins with", (row) => shorten(row.text, 110), true]];
      const pick = (row) => run({ ...fields.request(), task: { task: task.element.value, split: split.element.value, id: row.id } });
      const turn = (name, to) => make("button", { type: "button", disabled: to < 0 || to >= found.total, onclick: () => { start = to; fill(); } }, name);
      const pages = make("p", { class: "pages" }, turn("earlier", start - 25), `${start + 1} to ${start + found.prompts.length} of ${found.total}`, turn("later", start + 25));
      list.replaceChildren(promptTable(found.prompts, columns, pick, "Prompts of the task"), pages);
    } catch (error) {
      if (current()) list.replaceChildren(make("p", { class: "warn" }, error.message));
    }
  }
  for (const one of [task, split]) one.element.addEventListener("change", () => { start = 0; fill(); });
  const panel = make("div", {}, make("div", { class: "fields" }, task.box, split.box), fields.box, list);
  let opened = false;
  return { panel, onOpen: () => { if (!opened) { opened = true; fill(); } } };
}

export function openedPanel(about, show) {
  const columns = [["run", (row) => `row ${about.opened.indexOf(row)}`, true], ["prompt", (row) => shorten(row.prompt, 110), true]];
  return { panel: make("div", {}, promptTable(about.opened, columns, (row) => show(row.run), "Rows of the file")), onOpen: null };
}

// ---- a study --------------------------------------------------------------------------------------------------------

function change(value, own) {
  if (value === null || own === null || own === undefined) return "";
  const kind = value === own ? "same" : value > own ? "better" : "worse";
  return make("span", { class: kind }, formatChange(value - own));
}

export function studyPanel(about, branchFrom) {
  const study = about.study, list = make("div"), states = make("div");
  const cell = select("Part of the study", study.cells.map((one, at) => [String(at), `${one.model}, ${one.task}, ${one.split} (${one.states} states)`]));
  const missing = study.planned - study.finished;
  const panel = make("div", {},
    make("p", {}, `Study ${study.name}: ${study.finished} of ${study.planned} shards are finished. A state is a half-filled answer of the reference's run; at each, every candidate changed one decision, and the reference went on.`),
    missing ? make("p", { class: "warn" }, `${missing} of ${study.planned} shards are not finished; what is there is shown.`) : null,
    ...Object.entries(study.unavailable).map(([task, why]) => make("p", { class: "note" }, `left out: ${task}: ${why}`)),
    make("div", { class: "fields" }, cell.box), list, states);
  const isLatest = latest();
  async function fill() {
    const of = study.cells[Number(cell.element.value)], current = isLatest();
    states.replaceChildren();
    list.replaceChildren(make("p", { class: "note" }, "reading…"));
    try {
      const rows = await ask("study/prompts", { model: of.model, task: of.task, split: of.split });
      if (!current()) return;
      const columns = [
        ["prompt", (row) => row.prompt, true],
        ["reference", (row) => formatNumber(row.reference)],
        ["best change", (row) => change(row.gain, 0)],
        ["worst", (row) => change(row.loss, 0)],
        ["begins with", (row) => shorten(row.text || "", 80), true],
      ];
      const pick = (row) => showStates(states, of, row, branchFrom, isLatest());
      list.replaceChildren(promptTable(rows, columns, pick, "Prompts of the study"));
    } catch (error) {
      list.replaceChildren(make("p", { class: "warn" }, error.message));
    }
  }
  cell.element.addEventListener("change", fill);
  return { panel, onOpen: () => { if (study.cells.length && !list.firstChild) fill(); } };
}

async function showStates(home, of, row, branchFrom, current) {
  home.replaceChildren(make("p", { class: "note" }, "reading…"));
  try {
    const states = await ask("study/states", { model: of.model, task: of.task, split: of.split, prompt: row.prompt });
    if (!current()) return;
    const from = { model: of.model, task: { task: of.task, split: of.split, id: row.prompt, study: true } };
    const watch = make("button", { type: "button", class: "main", onclick: () => branchFrom(from, null) }, "Watch the reference's run");
    const box = make("section", { id: "state", tabindex: "-1", "aria-label": "The chosen state" });
    home.replaceChildren(make("h3", {}, row.prompt), make("p", {}, watch), box);
    drawStates(box, { states }, { onBranch: (state, action) => branchFrom(from, { step: state.step, instead: { axis: action.axis, candidate: action.name } }) });
  } catch (error) {
    home.replaceChildren(make("p", { class: "warn" }, error.message));
  }
}
