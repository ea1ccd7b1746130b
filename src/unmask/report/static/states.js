"use strict";
// unmaskStates(element, evidence): one state at a time, with what every candidate made of it.
// Whatever came from a model or a task is put on the page as text, never as HTML.
const unmaskStates = (() => {
  const GLYPHS = { blank: "░", filler: "∎", again: "↺" };

  function make(name, attributes, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  function number(value) {
    return value === null ? "not judged" : value.toFixed(3);
  }

  function signed(value) {
    return (value > 0 ? "+" : "") + value.toFixed(3);
  }

  function verdict(action) {
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

  function canvas(state, outcome, reference, label) {
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

  function head(action) {
    const kinds = { reference: "the reference", candidate: "candidate", proposal: "proposed by the diagnostic" };
    const title = make("h4", {}, action.name, make("small", {}, kinds[action.kind] + (action.signal === null ? "" : `, signal ${number(action.signal)}`)));
    const sort = verdict(action);
    if (sort) title.append(make("span", { class: sort }, `${sort === "better" ? "▲" : "▼"} ${signed(action.difference)} ${sort} than the reference`));
    else if (action.kind !== "reference") title.append(make("small", {}, action.difference === null ? "not judged" : "as good as the reference"));
    return title;
  }

  function outcomeList(state, action, outcome, total, reference) {
    const list = make("dl"), share = total > 1 && action.outcomes.length > 1 ? ` (${outcome.rollouts} of ${total} rollouts)` : "";
    const name = `Canvas after the step of ${action.name}`;
    if (state.tokens.length) list.append(make("dt", {}, "next canvas" + share), make("dd", {}, canvas(state, outcome, reference, name)));
    list.append(make("dt", {}, "final text" + share), make("dd", { class: "answer" }, outcome.answer || "(empty)"));
    list.append(make("dt", {}, "score"), make("dd", {}, `${number(outcome.utility)}: ${outcome.reason}`));
    return list;
  }

  function card(state, action, reference) {
    const total = action.outcomes.reduce((sum, outcome) => sum + outcome.rollouts, 0), sort = verdict(action);
    const article = make("article", sort ? { class: `is-${sort}` } : {}, head(action));
    const theirs = action === reference ? null : reference ? reference.outcomes[0] : null;
    for (const outcome of action.outcomes) article.append(outcomeList(state, action, outcome, total, theirs));
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

  function axisPart(state, axis, actions) {
    const reference = actions.find((action) => action.kind === "reference");
    const told = actions.filter((action) => !endsAlike(action, reference)), alike = actions.filter((action) => endsAlike(action, reference));
    const part = make("section", {}, make("h3", { class: `axis-${axis}` }, axis));
    const cards = make("div", { class: "tried" }, ...told.map((action) => card(state, action, reference)));
    part.append(cards);
    if (alike.length) {
      const names = alike.map((action) => (action.kind === "proposal" ? `${action.name} (proposal)` : action.name)).join(", ");
      const more = make("details", { class: "same-end" }, make("summary", {}, `${alike.length} more end${alike.length === 1 ? "s" : ""} as the reference does: ${names}`));
      more.addEventListener("toggle", () => {
        if (more.open && more.childElementCount === 1) more.append(make("div", { class: "tried" }, ...alike.map((action) => card(state, action, reference))));
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
    const tried = state.actions.filter((action) => action.kind === "candidate" && verdict(action));
    if (!tried.length) return "No candidate ended better or worse than the reference here.";
    const worded = (sort) => tried.filter((action) => verdict(action) === sort).map((action) => `${action.name} (${action.axis}, ${signed(action.difference)})`);
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
    if (state.tokens.length) parts.push(prompt(state), make("h3", {}, "The canvas at this state"), canvas(state, null, null, "The canvas at this state"));
    else parts.push(make("p", { class: "note" }, "The study keeps no canvas of this state."));
    const legend = `${GLYPHS.blank} masked · ${GLYPHS.again} re-masked · ${GLYPHS.filler} end-of-text filler · shaded: filled in this step · outlined: not so by the reference`;
    parts.push(make("p", { class: "note" }, legend));
    for (const [axis, actions] of byAxis(state)) parts.push(axisPart(state, axis, actions));
    page.content.replaceChildren(...parts);
  }

  function show(page, at) {
    const count = page.evidence.states.length;
    page.at = (at + count) % count;
    const state = page.evidence.states[page.at];
    for (const button of document.querySelectorAll("button[data-state]")) button.setAttribute("aria-current", String(button.dataset.state === state.key));
    page.output.textContent = `state ${page.at + 1} of ${count}`;
    page.output.title = state.key;
    drawState(page, state);
  }

  function bar(page) {
    const step = (label, glyph, by) => {
      const button = make("button", { type: "button", "aria-label": label, title: label }, glyph);
      button.addEventListener("click", () => show(page, page.at + by));
      return button;
    };
    page.output = make("output", { "aria-live": "polite" });
    return make("div", { class: "state-bar", role: "toolbar", "aria-label": "States" }, step("Previous state", "◁", -1), page.output, step("Next state", "▷", 1));
  }

  function keys(page, event) {
    if (event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "ArrowLeft") show(page, page.at - 1);
    else if (event.key === "ArrowRight") show(page, page.at + 1);
    else return;
    event.preventDefault();
  }

  return function unmaskStates(element, evidence) {
    if (!evidence.states.length) return;
    const page = { element, evidence, at: 0 };
    page.content = make("div");
    element.replaceChildren(bar(page), page.content);
    for (const button of document.querySelectorAll("button[data-state]"))
      button.addEventListener("click", () => {
        show(page, evidence.states.findIndex((state) => state.key === button.dataset.state));
        element.scrollIntoView({ block: "start" });
        element.focus({ preventScroll: true });
      });
    document.addEventListener("keydown", (event) => keys(page, event));
    show(page, 0);
  };
})();
