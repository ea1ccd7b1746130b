// drawStates(element, evidence, {onBranch(state, action)}): one state at a time, with what every candidate made of it.
import { GLYPHS, findAll, formatChange, make, makeButton } from "./dom.js";

function formatScore(value) {
  return value === null ? "not judged" : value.toFixed(3);
}

function compareAction(action) {
  if (action.difference === null || Math.abs(action.difference) < 1e-9) return "";
  return action.difference > 0 ? "better" : "worse";
}

// ---- canvases ----------------------------------------------------------------------------------------------------

function firstAnswer(state) {
  const at = state.fixed.indexOf(false);
  return at < 0 ? state.tokens.length : at;
}

function mergedFillers(spans) {
  // One glyph for a run of fillers; those that a step put there stand apart.
  const merged = [];
  for (const span of spans) {
    const last = merged[merged.length - 1];
    if (last && span.filler && last.filler && last.kind === span.kind) last.count += 1;
    else merged.push({ ...span, count: 1 });
  }
  return merged;
}

function drawCanvas(state, outcome, reference, label) {
  const put = new Map(outcome ? outcome.revealed : []), again = new Set(outcome ? outcome.remasked : []);
  const theirs = new Map(reference ? reference.revealed : []);
  const spans = [];
  for (let position = firstAnswer(state); position < state.tokens.length; position++) {
    const new_ = put.has(position), text = new_ ? put.get(position) : again.has(position) ? null : state.tokens[position];
    let kind = state.fixed[position] ? "given" : "kept";
    if (new_) kind = reference && theirs.get(position) !== text ? "only" : "both";
    if (text === null) spans.push({ kind: again.has(position) ? "again" : "blank", text: again.has(position) ? GLYPHS.again : GLYPHS.blank, filler: false });
    else {
      const filler = !state.fixed[position] && state.fillers.includes(text);
      spans.push({ kind: filler ? `${kind} filler` : kind, text: filler ? GLYPHS.filler : text, filler });
    }
  }
  const box = make("div", { class: "run-state", tabindex: "0", role: "group", "aria-label": label });
  for (const span of mergedFillers(spans)) box.append(make("span", { class: span.kind }, span.text + (span.count > 1 ? ` ×${span.count}` : "")));
  return box;
}

// ---- one candidate -----------------------------------------------------------------------------------------------

function makeTitle(action) {
  const kinds = { reference: "the reference", candidate: "candidate", proposal: "proposed by the diagnostic" };
  const title = make("h4", {}, action.name, make("small", {}, kinds[action.kind] + (action.signal === null ? "" : `, signal ${formatScore(action.signal)}`)));
  const sort = compareAction(action);
  if (sort) title.append(make("span", { class: sort }, `${sort === "better" ? "▲" : "▼"} ${formatChange(action.difference)} ${sort} than the reference`));
  else if (action.kind !== "reference") title.append(make("small", {}, action.difference === null ? "not judged" : "as good as the reference"));
  return title;
}

function outcomeList(state, action, outcome, total, reference) {
  const list = make("dl"), share = total > 1 && action.outcomes.length > 1 ? ` (${outcome.rollouts} of ${total} rollouts)` : "";
  const name = `Canvas after the step of ${action.name}`;
  if (state.tokens.length) list.append(make("dt", {}, "next canvas" + share), make("dd", {}, drawCanvas(state, outcome, reference, name)));
  list.append(make("dt", {}, "final text" + share), make("dd", { class: "answer" }, outcome.answer || "(empty)"));
  list.append(make("dt", {}, "score"), make("dd", {}, `${formatScore(outcome.utility)}: ${outcome.reason}`));
  return list;
}

function makeCard(page, state, action, reference) {
  const total = action.outcomes.reduce((sum, outcome) => sum + outcome.rollouts, 0), sort = compareAction(action);
  const article = make("article", sort ? { class: `is-${sort}` } : {}, makeTitle(action));
  const theirs = action === reference ? null : reference ? reference.outcomes[0] : null;
  for (const outcome of action.outcomes) article.append(outcomeList(state, action, outcome, total, theirs));
  if (page.onBranch && action.kind === "candidate")
    article.append(make("button", { type: "button", onclick: () => page.onBranch(state, action) }, "Branch here"));
  return article;
}

function ends(action) {
  const counts = {};
  for (const outcome of action.outcomes) {
    const end = JSON.stringify([outcome.answer, outcome.utility]);
    counts[end] = (counts[end] || 0) + outcome.rollouts;
  }
  return JSON.stringify(Object.entries(counts).sort());
}

function endsAlike(action, reference) {
  // Nothing to see: the same answers with the same scores, whichever way they were reached.
  return reference !== undefined && action !== reference && ends(action) === ends(reference);
}

function axisPart(page, state, axis, actions) {
  const reference = actions.find((action) => action.kind === "reference");
  const other = actions.filter((action) => !endsAlike(action, reference)), alike = actions.filter((action) => endsAlike(action, reference));
  const part = make("section", {}, make("h3", { class: `axis-${axis}` }, axis));
  const cards = make("div", { class: "tried" }, ...other.map((action) => makeCard(page, state, action, reference)));
  part.append(cards);
  if (alike.length) {
    const names = alike.map((action) => (action.kind === "proposal" ? `${action.name} (proposal)` : action.name)).join(", ");
    const more = make("details", { class: "same-end" }, make("summary", {}, `${alike.length} more end${alike.length === 1 ? "s" : ""} as the reference does: ${names}`));
    more.addEventListener("toggle", () => {
      if (more.open && more.childElementCount === 1) more.append(make("div", { class: "tried" }, ...alike.map((action) => makeCard(page, state, action, reference))));
    });
    part.append(more);
  }
  return part;
}

// ---- one state ---------------------------------------------------------------------------------------------------

function strength(actions) {
  return Math.max(0, ...actions.filter((action) => action.kind === "candidate").map((action) => Math.abs(action.difference || 0)));
}

function byAxis(state) {
  const axes = new Map();
  for (const action of state.actions) axes.set(action.axis, [...(axes.get(action.axis) || []), action]);
  // The axis with the reversal first.
  return [...axes].sort((one, other) => strength(other[1]) - strength(one[1]));
}

function reversal(state) {
  const tried = state.actions.filter((action) => action.kind === "candidate" && compareAction(action));
  if (!tried.length) return "No candidate ended better or worse than the reference here.";
  const worded = (sort) => tried.filter((action) => compareAction(action) === sort).map((action) => `${action.name} (${action.axis}, ${formatChange(action.difference)})`);
  const parts = ["better", "worse"].map((sort) => [sort, worded(sort)]).filter(([, names]) => names.length);
  return parts.map(([sort, names]) => `${sort[0].toUpperCase() + sort.slice(1)} than the reference: ${names.join(", ")}.`).join(" ");
}

function prompt(state) {
  const given = state.tokens.slice(0, firstAnswer(state)).join("");
  return make("details", { open: "", class: "asked" }, make("summary", {}, "The prompt, as the model reads it"), make("pre", { tabindex: "0" }, given));
}

function drawState(page, state) {
  const where = `${state.model} on ${state.task}: ${state.prompt}, state ${state.state}`;
  const when = `${state.split} prompt, after step ${state.step}${state.horizon ? ` of ${state.horizon}` : ""}, ${state.masked} positions still masked.`;
  const parts = [make("h2", {}, where), make("p", { class: "note" }, when), make("p", {}, reversal(state))];
  if (state.tokens.length) parts.push(prompt(state), make("h3", {}, "The canvas at this state"), drawCanvas(state, null, null, "The canvas at this state"));
  else parts.push(make("p", { class: "note" }, "The study keeps no canvas of this state."));
  const legend = `${GLYPHS.blank} masked · ${GLYPHS.again} re-masked · ${GLYPHS.filler} end-of-text filler · shaded: filled in this step · outlined: not so by the reference`;
  parts.push(make("p", { class: "note" }, legend));
  for (const [axis, actions] of byAxis(state)) parts.push(axisPart(page, state, axis, actions));
  page.content.replaceChildren(...parts);
}

function show(page, at) {
  const count = page.evidence.states.length;
  page.at = (at + count) % count;
  const state = page.evidence.states[page.at];
  for (const button of findAll("button[data-state]")) button.setAttribute("aria-current", String(button.dataset.state === state.key));
  page.output.textContent = `state ${page.at + 1} of ${count}`;
  page.output.title = state.key;
  drawState(page, state);
}

function makeBar(page) {
  page.output = make("output", { "aria-live": "polite" });
  const [back, on] = [makeButton("Previous state", "◁", () => show(page, page.at - 1)), makeButton("Next state", "▷", () => show(page, page.at + 1))];
  return make("div", { class: "state-bar", role: "toolbar", "aria-label": "States" }, back, page.output, on);
}

function onKey(page, event) {
  if (event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === "ArrowLeft") show(page, page.at - 1);
  else if (event.key === "ArrowRight") show(page, page.at + 1);
  else return;
  event.preventDefault();
}

export function drawStates(element, evidence, { onBranch } = {}) {
  if (!evidence.states.length) return;
  const page = { evidence, onBranch, at: 0, content: make("div") };
  element.replaceChildren(makeBar(page), page.content);
  for (const button of findAll("button[data-state]"))
    button.addEventListener("click", () => {
      show(page, evidence.states.findIndex((state) => state.key === button.dataset.state));
      element.scrollIntoView({ block: "start" });
      element.focus({ preventScroll: true });
    });
  // Not on the document: elsewhere arrow keys move in the grid of a run, or scroll.
  element.onkeydown = (event) => onKey(page, event);
  // A row of a report leads to `#MODEL/TASK`.
  const wanted = decodeURIComponent(location.hash.slice(1));
  show(page, Math.max(0, evidence.states.findIndex((state) => wanted && state.key.startsWith(`${wanted}/`))));
}
