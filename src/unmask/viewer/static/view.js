// The page: one run at a time in the middle, a form for what to do at its state, both futures below.
import { ask, showProblem, stream } from "./api.js";
import { byId, findAll, formatNumber, make } from "./dom.js";
import { outcomeParts, saveCopy, showFutures } from "./futures.js";
import { drawRun } from "./grid.js";
import { field, openedPanel, ownPromptPanel, select, showTabs, studyPanel, taskPanel } from "./prompts.js";

const page = { about: null, run: null, grid: null, step: 0, stopper: null };

function setStatus(text, running) {
  const stop = running ? make("button", { type: "button", onclick: () => page.stopper && page.stopper.abort() }, "Stop") : null;
  byId("status").replaceChildren(text, ...(stop ? [" ", stop] : []));
}

function drawGrid(record) {
  // The first step is reported while the grid is made.
  page.grid = null;
  page.grid = drawRun(byId("grid"), record, { onPick: pickCell, onStep: showStep });
}

async function decode(what, request, { onStart, onStep, onEnd }) {
  // One stream at a time: a new one stops the one before.
  if (page.stopper) page.stopper.abort();
  const stopper = (page.stopper = new AbortController());
  showProblem("");
  byId("now").setAttribute("aria-busy", "true");
  const onEvent = {
    waiting: (value) => setStatus(`waiting: ${value.before} before you`, true),
    loading: (value) => setStatus(`loading ${value.model}…`, true),
    progress: (value) => setStatus(`searching: ${value.forwards} forwards`, true),
    start: (value) => onStart(value),
    step: (value) => onStep(value),
    end: (value) => onEnd(value),
    error: (value) => showProblem(value),
    done: () => {},
  };
  try {
    setStatus("asked…", true);
    await stream(what, request, (name, value) => onEvent[name] && onEvent[name](value), stopper.signal);
    if (page.stopper === stopper) setStatus("", false);
  } catch (error) {
    if (page.stopper === stopper) setStatus(error.name === "AbortError" ? "stopped" : "", false);
    if (error.name !== "AbortError") showProblem(error.message);
  } finally {
    if (page.stopper === stopper) {
      page.stopper = null;
      byId("now").removeAttribute("aria-busy");
    }
  }
}

function beginRun() {
  byId("now").hidden = false;
  for (const id of ["branching", "futures"]) byId(id).hidden = true;
  byId("outcome").replaceChildren();
  byId("grid").replaceChildren();
  byId("now-title").scrollIntoView({ block: "start" });
}

function startRun(request, then) {
  beginRun();
  return decode("run", request, {
    onStart: ({ record }) => {
      byId("prompt").textContent = record.prompt;
      drawGrid(record);
      setStatus("decoding…", true);
    },
    onStep: (step) => page.grid && page.grid.add(step),
    onEnd: (run) => {
      showRun(run);
      if (then) then();
    },
  });
}

function showRun(run) {
  page.run = run;
  byId("now").hidden = false;
  byId("prompt").textContent = run.record.prompt;
  const save = make("button", { type: "button", onclick: () => saveCopy([run.run]) }, "Save a read-only copy");
  byId("outcome").replaceChildren(...outcomeParts(run, null), ...run.notes.map((note) => make("p", { class: "warn" }, note)), make("p", { class: "buttons" }, save));
  drawGrid(run.record);
  showBranchForm(run);
}

// ---- doing something else at a state --------------------------------------------------------------------------------

function showBranchForm(run) {
  const axes = Object.entries(run.choices).map(([axis, names]) => ({ group: `${axis} axis`, options: names.map((name) => [JSON.stringify({ axis, candidate: name }), `${axis}: ${name}`]) }));
  const methods = { group: "any method", options: page.about.methods.map((one) => [JSON.stringify({ policy: one.name }), one.name]) };
  const hand = { group: "by hand", options: [[JSON.stringify({ hand: true }), "a token of your choice"]] };
  const what = select("Instead", [...axes, methods, hand], { id: "instead" });
  const span = select("For", [["step", "this step only"], ["rest", "from here on"]], { id: "span" });
  const place = field("Position", { type: "number", min: 0, id: "position", size: "6" });
  const text = field("Token", { id: "token", size: "14", autocomplete: "off" });
  const offers = make("div", { id: "offers", role: "group", "aria-label": "Probable tokens" });
  const byHand = make("div", { class: "by-hand", hidden: true }, make("p", { class: "note" }, "Click a masked cell of the grid, or say its position; then choose a token."), make("div", { class: "fields" }, place.box, text.box), offers);
  const go = make("button", { type: "submit", class: "main" }, "Branch");
  const form = make("form", { onsubmit: (event) => { event.preventDefault(); branch(chosenChange()); } },
    make("p", { id: "where" }), make("div", { class: "fields" }, what.box, span.box), byHand, go);
  const isHand = () => JSON.parse(what.element.value).hand === true;
  what.element.addEventListener("change", () => { byHand.hidden = !isHand(); span.box.hidden = isHand(); if (isHand() && place.element.value) offer(); });
  place.element.addEventListener("change", offer);
  text.element.addEventListener("input", () => delete text.element.dataset.token);
  function chosenChange() {
    const chosen = JSON.parse(what.element.value);
    if (!chosen.hand) return { instead: chosen, rest: span.element.value === "rest" };
    const token = text.element.dataset.token;
    const position = place.element.value === "" ? null : Number(place.element.value);
    return { instead: { position, ...(token === undefined ? { text: text.element.value } : { token: Number(token) }) } };
  }
  page.byHand = (position) => { what.element.value = JSON.stringify({ hand: true }); byHand.hidden = false; span.box.hidden = true; place.element.value = position; offer(); };
  page.offer = () => { if (!byHand.hidden && place.element.value !== "") offer(); };
  byId("branching").hidden = false;
  byId("branch-form").replaceChildren(form);
  showStep(page.grid.step());
}

async function offer() {
  // The most probable tokens of the position at the state that is looked at.
  const box = byId("offers"), position = byId("position").value, step = page.step, run = page.run.run;
  box.replaceChildren(make("span", { class: "note" }, "asking the model…"));
  try {
    const found = await ask("suggestions", { run, step, position });
    if (run !== page.run.run || step !== page.step || position !== byId("position").value) return;
    box.replaceChildren(...found.tokens.map((one) => make("button", { type: "button", "data-token": one.token, onclick: () => {
      byId("token").value = one.text;
      byId("token").dataset.token = one.token;
    } }, JSON.stringify(one.text), make("span", { class: "note" }, ` ${formatNumber(one.p)}`))));
  } catch (error) {
    box.replaceChildren(make("span", { class: "note" }, error.message));
  }
}

function showStep(step) {
  const moved = step !== page.step;
  page.step = step;
  const where = byId("where");
  if (!where || !page.run) return;
  const last = page.run.record.steps.length;
  const ended = step >= last;
  where.textContent = ended ? "The answer is complete here: choose an earlier step with the slider, the arrow keys or a click." : `At the state after ${step} of ${last} steps, let the next step be taken by something else:`;
  findAll("#branch-form button.main")[0].disabled = ended;
  if (moved && page.offer) page.offer();
}

function pickCell(step, position) {
  if (!page.run || step >= page.run.record.steps.length) return;
  if (page.grid.textAt(position) === null) page.byHand(position);
}

function branch(change) {
  const run = page.run, step = page.step;
  const home = findAll("#futures .futures")[0], box = make("div");
  let growing = null;
  return decode("branch", { run: run.run, step, ...change }, {
    onStart: ({ record }) => {
      byId("futures").hidden = false;
      byId("verdict").textContent = "decoding the branch…";
      byId("verdict").className = "verdict";
      home.replaceChildren(make("section", { class: "future" }, make("h3", {}, `The branch: ${record.policy}`), box));
      growing = drawRun(box, record);
    },
    onStep: (one) => growing && growing.add(one),
    onEnd: (other) => {
      showFutures(run, other, step, () => {
        byId("futures").hidden = true;
        showRun(other);
        byId("now-title").scrollIntoView({ block: "start" });
      });
      byId("futures-title").scrollIntoView({ block: "start" });
    },
  });
}

// ---- the beginning --------------------------------------------------------------------------------------------------

function fromStudy(request, deviation) {
  // The reference's run of a study's prompt; then, where one was chosen, the candidate's branch at its state.
  startRun(request, () => {
    if (!deviation) return;
    page.grid.show(deviation.step);
    byId("instead").value = JSON.stringify(deviation.instead);
    setTimeout(() => branch({ instead: deviation.instead, rest: false }), 0);
  });
}

async function openKept(run) {
  try {
    showProblem("");
    beginRun();
    showRun(await ask("kept", { run }));
  } catch (error) {
    showProblem(error.message);
  }
}

async function main() {
  try {
    page.about = await ask("about");
  } catch (error) {
    return showProblem(error.message);
  }
  const about = page.about, tabs = [];
  byId("about").textContent = `unmask ${about.version}.`;
  if (about.opened.length) tabs.push({ name: "The file", ...openedPanel(about, openKept) });
  if (about.study) tabs.push({ name: "The study", ...studyPanel(about, fromStudy) });
  if (about.models.length) {
    tabs.push({ name: "A task", ...taskPanel(about, startRun) });
    tabs.push({ name: "Your own prompt", panel: ownPromptPanel(about, startRun), onOpen: null });
  }
  showTabs(tabs);
  if (about.opened.length === 1) openKept(about.opened[0].run);
}

main();
