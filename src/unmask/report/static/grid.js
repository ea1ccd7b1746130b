// drawRun(element, record, {onPick(step, position), onStep(step)}): the grid of a run, a row for each step and a column for
// each position.
//
// Row t of the grid is the canvas after t steps; row 0 is the start, and `Model.branch(step=t)` goes on from row t. Only the
// cells in sight are drawn, on one canvas element, so that long runs scroll smoothly; what a screen reader or a small screen
// needs (the text of the chosen row, who acted and why) stands beside it as text. The record of a run that has just begun
// may name the texts of fillers, which only a final canvas tells: `fillers: ["<|endoftext|>", ...]`.
import { GLYPHS, formatNumber, make, makeButton } from "./dom.js";

const LEVELS = [0.3, 0.5, 0.7, 0.9];
const ROW = 20, HEAD = 20, GUTTER = 46, CHAR = 7.3;
const POLICY_COLOURS = ["--score", "--region", "--cardinality", "--commitment"];

function level(sure) {
  return sure === null || sure === undefined ? 0 : 1 + LEVELS.filter((least) => sure >= least).length;
}

function visible(text) {
  // Every token can be seen: a line break, a tab, a space alone.
  const shown = text.replace(/\r?\n/g, "↵").replace(/\t/g, "⇥");
  return shown.trim() === "" ? "␣".repeat(Math.max(1, shown.length)) : shown;
}

// ---- the run as frames: what stands where after each step --------------------------------------------------------

function startFrame(record) {
  const length = record.tokens.length;
  return { text: record.tokens.slice(), sure: Array(length).fill(null), since: Array(length).fill(0), again: new Set(), fresh: new Set() };
}

function nextFrame(frame, step, at) {
  const next = { text: frame.text.slice(), sure: frame.sure.slice(), since: frame.since.slice(), again: new Set(), fresh: new Set() };
  for (const [position, text, sure] of step.changes) {
    next.text[position] = text;
    next.sure[position] = sure;
    next.since[position] = at;
    if (text === null) next.again.add(position);
    else next.fresh.add(position);
  }
  return next;
}

function framesOf(record) {
  const frames = [startFrame(record)];
  record.steps.forEach((step, index) => frames.push(nextFrame(frames[index], step, index + 1)));
  return frames;
}

function fillerTexts(record, frame) {
  return new Set(frame.text.filter((text, position) => text !== null && record.filler[position]));
}

function answerSpan(record) {
  const free = record.fixed.map((given, position) => (given ? -1 : position)).filter((position) => position >= 0);
  return free.length ? [free[0], free[free.length - 1] + 1] : [0, record.tokens.length];
}

// ---- where columns stand -----------------------------------------------------------------------------------------

function layout(run) {
  const longest = Array(run.span[1] - run.span[0]).fill(1);
  const measure = (text, position) => {
    const column = position - run.span[0];
    if (text === null || column < 0 || column >= longest.length || run.isFiller(position, text)) return;
    longest[column] = Math.max(longest[column], visible(text).length);
  };
  run.frames[0].text.forEach(measure);
  for (const step of run.record.steps) for (const [position, text] of step.changes) measure(text, position);
  run.left = [0];
  for (const letters of longest) run.left.push(run.left[run.left.length - 1] + Math.round(Math.min(11, letters) * CHAR) + 9);
}

function columnAt(run, x) {
  let low = 0, high = run.left.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (run.left[middle] <= x) low = middle;
    else high = middle;
  }
  return Math.min(low, run.left.length - 2);
}

// ---- drawing -----------------------------------------------------------------------------------------------------

function paletteOf(element) {
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(name).trim();
  const palette = { mono: colour("--mono"), sure: [], on: [] };
  for (const name of ["paper", "ink", "soft", "line", "rule", "wash", "good", "bad", "region", ...POLICY_COLOURS.map((n) => n.slice(2))])
    palette[name] = colour("--" + name);
  for (let at = 0; at <= LEVELS.length + 1; at++) {
    const probe = make("span", { class: `sure-${at}`, hidden: "" });
    element.append(probe);
    const its = getComputedStyle(probe);
    palette.sure.push(its.backgroundColor);
    palette.on.push(its.color);
    probe.remove();
  }
  return palette;
}

function fitCanvas(run) {
  const ratio = window.devicePixelRatio || 1;
  const width = run.view.clientWidth, height = Math.min(run.view.clientHeight, HEAD + run.frames.length * ROW + 2);
  if (run.width !== width || run.height !== height || run.ratio !== ratio) {
    Object.assign(run, { width, height, ratio });
    run.canvas.width = Math.max(1, Math.round(width * ratio));
    run.canvas.height = Math.max(1, Math.round(height * ratio));
    run.canvas.style.width = width + "px";
    run.canvas.style.height = height + "px";
  }
  run.room.style.width = GUTTER + run.left[run.left.length - 1] + "px";
  run.room.style.height = HEAD + run.frames.length * ROW + "px";
}

function drawCell(run, paint, frame, row, column, x, y) {
  const position = run.span[0] + column, colours = run.colours;
  const width = run.left[column + 1] - run.left[column], text = frame.text[position];
  const fresh = frame.fresh.has(position), again = frame.again.has(position);
  let ink = colours.ink, shown;
  if (text === null) {
    shown = again ? GLYPHS.again : GLYPHS.blank;
    ink = again ? colours.bad : colours.line;
  } else {
    shown = run.isFiller(position, text) ? GLYPHS.filler : visible(text);
    if (run.record.fixed[position]) ink = colours.soft;
    else {
      // Every colour is one of the legend: the whole cell in the step that filled it, its lower edge afterwards.
      const at = level(frame.sure[position]);
      paint.fillStyle = colours.sure[at];
      paint.fillRect(x, fresh ? y : y + ROW - 5, width - 1, fresh ? ROW - 1 : 4);
      if (fresh) ink = colours.on[at];
    }
  }
  if (again) {
    paint.strokeStyle = colours.bad;
    paint.lineWidth = 2;
    paint.strokeRect(x + 1, y + 1, width - 3, ROW - 3);
  }
  paint.fillStyle = ink;
  const most = Math.max(1, Math.floor((width - 6) / CHAR));
  const letters = Array.from(shown);
  paint.fillText(letters.length > most ? letters.slice(0, most - 1).join("") + "…" : shown, x + 4, y + 14, width - 6);
}

function drawRows(run, paint, top, left, columns) {
  const first = Math.max(0, Math.floor(top / ROW)), last = Math.min(run.frames.length, Math.ceil((top + run.height) / ROW));
  for (let row = first; row < last; row++) {
    const y = HEAD + row * ROW - top;
    for (let column = columns[0]; column <= columns[1]; column++)
      drawCell(run, paint, run.frames[row], row, column, GUTTER + run.left[column] - left, y);
  }
  const y = HEAD + run.at * ROW - top;
  paint.strokeStyle = run.colours.ink;
  paint.lineWidth = 2;
  paint.strokeRect(GUTTER - 1, y, Math.min(run.width - GUTTER, run.left[run.left.length - 1] - left + 1), ROW - 1);
  if (run.picked !== null) {
    const column = run.picked - run.span[0];
    paint.strokeStyle = run.colours.region;
    paint.lineWidth = 3;
    paint.strokeRect(GUTTER + run.left[column] - left, y, run.left[column + 1] - run.left[column] - 1, ROW - 1);
  }
  return [first, last];
}

function drawGutter(run, paint, top, rows) {
  const { colours, record } = run;
  paint.fillStyle = colours.paper;
  paint.fillRect(0, 0, GUTTER - 2, run.height);
  for (let row = rows[0]; row < rows[1]; row++) {
    const y = HEAD + row * ROW - top, step = record.steps[row - 1];
    paint.fillStyle = row === run.at ? colours.ink : colours.soft;
    paint.textAlign = "right";
    paint.fillText(row === 0 ? "0" : String(row), 26, y + 14);
    paint.textAlign = "left";
    if (!step) continue;
    if (run.policies.length > 1) {
      paint.fillStyle = colours[POLICY_COLOURS[run.policies.indexOf(step.policy) % POLICY_COLOURS.length].slice(2)];
      paint.fillRect(GUTTER - 6, y, 3, ROW - 1);
    }
    if (step.open === null) continue;
    paint.beginPath();
    paint.arc(34, y + ROW / 2, 4, 0, 2 * Math.PI);
    paint.lineWidth = 1.5;
    paint.strokeStyle = paint.fillStyle = step.open ? colours.good : colours.rule;
    if (step.open) paint.fill();
    paint.stroke();
  }
}

function drawHead(run, paint, left, columns) {
  const { colours } = run;
  paint.fillStyle = colours.paper;
  paint.fillRect(0, 0, run.width, HEAD - 1);
  paint.fillStyle = colours.soft;
  let clear = 0;
  for (let column = columns[0]; column <= columns[1]; column++) {
    const x = GUTTER + run.left[column] - left, width = run.left[column + 1] - run.left[column];
    const name = String(run.span[0] + column), needs = name.length * CHAR + 6;
    // Narrow columns have no room for every number.
    const next = column + 2 < run.left.length ? run.left[column + 2] - run.left[column + 1] : needs;
    if (x < clear || (width < needs && (column % 5 !== 0 || next >= needs))) continue;
    paint.fillText(name, x + 4, 14);
    clear = x + needs;
  }
  paint.fillStyle = colours.paper;
  paint.fillRect(0, 0, GUTTER - 2, HEAD - 1);
  paint.fillStyle = colours.soft;
  paint.fillText("step", 2, 14);
}

function draw(run) {
  run.waiting = false;
  fitCanvas(run);
  const paint = run.canvas.getContext("2d"), left = run.view.scrollLeft, top = run.view.scrollTop;
  paint.setTransform(run.ratio, 0, 0, run.ratio, 0, 0);
  paint.fillStyle = run.colours.paper;
  paint.fillRect(0, 0, run.width, run.height);
  paint.font = `12px ${run.colours.mono}`;
  const columns = [columnAt(run, left), columnAt(run, left + run.width - GUTTER)];
  const rows = drawRows(run, paint, top, left, columns);
  drawGutter(run, paint, top, rows);
  drawHead(run, paint, left, columns);
}

function redraw(run) {
  if (run.waiting) return;
  run.waiting = true;
  requestAnimationFrame(() => draw(run));
}

// ---- the chosen row as text --------------------------------------------------------------------------------------

function stateSpans(run, frame) {
  const spans = [];
  let fillers = 0;
  const flush = () => {
    if (!fillers) return;
    const span = make("span", { class: "filler", title: "end-of-text filler" }, GLYPHS.filler + (fillers > 1 ? ` ×${fillers}` : ""));
    spans.push(span);
    fillers = 0;
  };
  for (let position = run.span[0]; position < run.span[1]; position++) {
    const text = frame.text[position];
    if (text !== null && run.isFiller(position, text)) {
      fillers += 1;
      continue;
    }
    flush();
    if (text === null) spans.push(make("span", { class: frame.again.has(position) ? "again" : "blank" }, frame.again.has(position) ? GLYPHS.again : GLYPHS.blank));
    else {
      const kind = run.record.fixed[position] ? "given" : `sure-${level(frame.sure[position])}${frame.fresh.has(position) ? " new" : ""}`;
      spans.push(make("span", { class: kind }, text));
    }
  }
  flush();
  return spans;
}

function describeStep(run) {
  const step = run.record.steps[run.at - 1];
  if (!step) return [make("b", {}, "Start"), ": nothing is filled in yet."];
  const filled = step.changes.filter((change) => change[1] !== null).length;
  const parts = [make("b", {}, `Step ${run.at}`), `: ${step.policy} acted and filled ${filled} position${filled === 1 ? "" : "s"}. `];
  if (step.why) parts.push(step.why[0].toUpperCase() + step.why.slice(1) + ".");
  return parts;
}

function describeCell(run) {
  if (run.picked === null) return "Click a cell, or move with the arrow keys, to see what stood there.";
  const frame = run.frames[run.at], text = frame.text[run.picked], step = run.record.steps[run.at - 1];
  const since = frame.since[run.picked];
  let words = `Position ${run.picked}: `;
  if (text === null) words += frame.again.has(run.picked) ? "re-masked in this step" : "masked";
  else if (run.record.fixed[run.picked]) words += `${JSON.stringify(text)}, given`;
  else words += `${JSON.stringify(text)}, filled in step ${since}, confidence ${formatNumber(frame.sure[run.picked], "not known")}`;
  const top = step && step.top ? step.top[String(run.picked)] : undefined;
  if (top) words += "; most probable there: " + top.map(([token, p]) => `${JSON.stringify(token)} ${formatNumber(p)}`).join(", ");
  return words;
}

// ---- signal against threshold ------------------------------------------------------------------------------------

function makeSvg(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function signalStrip(run) {
  const steps = run.record.steps, signalled = steps.filter((step) => step.signal !== null);
  run.strip.replaceChildren();
  run.stripWords.textContent = "";
  run.strip.toggleAttribute("hidden", signalled.length === 0);
  if (!signalled.length) return;
  const values = signalled.flatMap((step) => (step.threshold === null ? [step.signal] : [step.signal, step.threshold]));
  const low = Math.min(...values), high = Math.max(...values);
  // Signals may span decades, and a threshold must not lie on the floor.
  const decades = low > 0 && high > 20 * low, place = decades ? Math.log : (value) => value;
  const room = place(high) - place(low) || 1;
  const width = Math.max(240, run.strip.clientWidth || 600), x = (at) => 8 + ((width - 16) * at) / Math.max(1, steps.length);
  const y = (value) => 66 - (56 * (place(value) - place(low))) / room;
  run.stripX = x;
  run.strip.setAttribute("viewBox", `0 0 ${width} 76`);
  const opened = steps.flatMap((step, index) => (step.open ? [index + 1] : []));
  run.strip.setAttribute("aria-label", `Signal against threshold by step; the gate opened at ${opened.length ? "steps " + opened.join(", ") : "no step"}.`);
  run.now = makeSvg("line", { class: "now", y1: 2, y2: 74 });
  run.strip.append(run.now);
  for (const [key, name] of [["threshold", "border"], ["signal", "line"]]) {
    const path = steps.map((step, index) => (step[key] === null ? "" : `${index > 0 && steps[index - 1][key] !== null ? "L" : "M"}${x(index + 1)} ${y(step[key])}`)).join("");
    run.strip.append(makeSvg("path", { class: name, d: path || "M0 0" }));
  }
  steps.forEach((step, index) => {
    if (step.signal === null) return;
    const dot = makeSvg("circle", { class: step.open ? "open" : "shut", cx: x(index + 1), cy: y(step.signal), r: 3.5 });
    dot.addEventListener("click", () => run.show(index + 1));
    run.strip.append(dot);
  });
  const scale = decades ? ", on a logarithmic scale" : "";
  run.stripWords.textContent = `Signal by step, ${formatNumber(low)} to ${formatNumber(high)}${scale}; dashed: the threshold; filled: the gate opened.`;
}

function markNow(run) {
  if (!run.stripX) return;
  for (const end of ["x1", "x2"]) run.now.setAttribute(end, run.stripX(run.at));
}

// ---- controls ----------------------------------------------------------------------------------------------------

function legend(run) {
  const scale = make("span", { class: "run-scale" });
  ["< .3", "< .5", "< .7", "< .9", "≥ .9"].forEach((words, index) => scale.append(make("i", { class: `sure-${index + 1}` }, words)));
  const items = [make("span", {}, "confidence when filled", scale), make("span", {}, `${GLYPHS.blank} masked`), make("span", {}, `${GLYPHS.again} re-masked`), make("span", {}, `${GLYPHS.filler} end-of-text filler`)];
  if (run.record.steps.some((step) => step.open !== null)) items.push(make("span", {}, "● gate opened, ○ shut"));
  if (run.policies.length > 1)
    run.policies.forEach((name, index) => {
      const sign = make("b", { class: "run-actor" });
      sign.style.background = `var(${POLICY_COLOURS[index % POLICY_COLOURS.length]})`;
      items.push(make("span", {}, sign, name));
    });
  return make("div", { class: "run-legend" }, ...items);
}

function keys(run, event) {
  const moves = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -run.frames.length, End: run.frames.length };
  const sides = { ArrowLeft: -1, ArrowRight: 1 };
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key in moves) run.show(run.at + moves[event.key]);
  else if (event.key in sides) run.pick(run.picked === null ? run.span[0] : run.picked + sides[event.key]);
  else if (event.key === " ") run.timer === null ? run.play() : run.pause();
  else if (event.key === "Enter" && run.picked !== null) run.onPick(run.at, run.picked);
  else return;
  event.preventDefault();
}

function clicked(run, event) {
  const box = run.canvas.getBoundingClientRect();
  const x = event.clientX - box.left - GUTTER + run.view.scrollLeft, y = event.clientY - box.top - HEAD + run.view.scrollTop;
  if (event.clientY - box.top < HEAD || y < 0) return;
  const row = Math.min(run.frames.length - 1, Math.floor(y / ROW));
  const inside = event.clientX - box.left >= GUTTER && x < run.left[run.left.length - 1];
  if (inside) run.picked = run.span[0] + columnAt(run, x);
  run.show(row);
  if (inside) run.onPick(run.at, run.picked);
}

function scrollIntoSight(run) {
  const y = run.at * ROW, room = run.view.clientHeight - HEAD - ROW;
  if (room < 0) return;
  if (y < run.view.scrollTop) run.view.scrollTop = y;
  else if (y > run.view.scrollTop + room) run.view.scrollTop = y - room + 4;
  if (run.picked === null) return;
  const column = run.picked - run.span[0], start = run.left[column], end = run.left[column + 1];
  if (start < run.view.scrollLeft) run.view.scrollLeft = start;
  else if (end > run.view.scrollLeft + run.view.clientWidth - GUTTER) run.view.scrollLeft = end - run.view.clientWidth + GUTTER + 4;
}

function refresh(run) {
  const last = run.frames.length - 1;
  run.range.max = last;
  run.range.value = run.at;
  run.range.setAttribute("aria-valuetext", `step ${run.at} of ${last}`);
  run.output.textContent = `step ${run.at} of ${last}`;
  run.why.replaceChildren(...describeStep(run));
  run.cell.textContent = describeCell(run);
  run.state.replaceChildren(...stateSpans(run, run.frames[run.at]));
  markNow(run);
  if (run.shown !== run.at) run.onStep(run.at);
  run.shown = run.at;
  fitCanvas(run);
  scrollIntoSight(run);
  redraw(run);
}

function build(run, element) {
  run.canvas = make("canvas", { class: "run-canvas", "aria-hidden": "true" });
  run.room = make("div", {}, run.canvas);
  const how = "Grid of steps and positions. Arrow keys move, space plays, Enter picks a cell; the chosen step stands as text beside it.";
  run.view = make("div", { class: "run-view", tabindex: "0", role: "group", "aria-label": how }, run.room);
  run.range = make("input", { type: "range", min: "0", step: "1", "aria-label": "Step" });
  run.output = make("output");
  run.playButton = makeButton("Play", "▶", () => (run.timer === null ? run.play() : run.pause()));
  run.bar = make("div", { class: "run-bar", role: "toolbar", "aria-label": "Steps" },
    makeButton("First step", "|◀", () => run.show(0)), makeButton("Step back", "◁", () => run.show(run.at - 1)), run.playButton,
    makeButton("Step forward", "▷", () => run.show(run.at + 1)), makeButton("Last step", "▶|", () => run.show(run.frames.length)), run.range, run.output);
  run.why = make("p", { class: "run-why", "aria-live": "polite" });
  run.state = make("div", { class: "run-state", tabindex: "0", role: "group", "aria-label": "The canvas after this step" });
  run.cell = make("div", { class: "run-cell", "aria-live": "polite" });
  run.strip = makeSvg("svg", { class: "run-signal", role: "img" });
  run.stripWords = make("div", { class: "run-words" });
  run.legend = make("div");
  element.replaceChildren(run.bar, run.why, run.strip, run.stripWords, run.state, run.legend, run.view, run.cell);
}

function listen(run) {
  run.range.addEventListener("input", () => run.show(Number(run.range.value)));
  run.view.addEventListener("scroll", () => redraw(run), { passive: true });
  run.view.addEventListener("keydown", (event) => keys(run, event));
  run.canvas.addEventListener("click", (event) => clicked(run, event));
  new ResizeObserver(() => {
    if (run.view.clientWidth !== run.width) {
      signalStrip(run);
      markNow(run);
    }
    redraw(run);
  }).observe(run.view);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    run.colours = paletteOf(run.view);
    redraw(run);
  });
}

function learn(run) {
  // What follows from all steps together.
  run.policies = [...new Set(run.record.steps.map((step) => step.policy))];
  const fillers = new Set([...fillerTexts(run.record, run.frames[run.frames.length - 1]), ...(run.record.fillers || [])]);
  run.isFiller = (position, text) => !run.record.fixed[position] && fillers.has(text);
  layout(run);
  run.legend.replaceChildren(legend(run));
  signalStrip(run);
}

export function drawRun(element, record, { onPick, onStep } = {}) {
  const run = { record: { ...record, steps: record.steps.slice() }, at: 0, picked: null, timer: null, waiting: false };
  run.onPick = onPick || (() => {});
  run.onStep = onStep || (() => {});
  run.frames = framesOf(record);
  run.span = answerSpan(record);
  run.show = (step) => {
    run.at = Math.max(0, Math.min(run.frames.length - 1, step));
    refresh(run);
  };
  run.pick = (position) => {
    run.picked = Math.max(run.span[0], Math.min(run.span[1] - 1, position));
    refresh(run);
  };
  run.pause = () => {
    clearInterval(run.timer);
    run.timer = null;
    run.playButton.setAttribute("aria-label", "Play");
    run.playButton.textContent = "▶";
    run.why.setAttribute("aria-live", "polite");
  };
  run.play = () => {
    clearInterval(run.timer);
    if (run.at >= run.frames.length - 1) run.show(0);
    run.playButton.setAttribute("aria-label", "Pause");
    run.playButton.textContent = "❚❚";
    // A screen reader would read every step aloud.
    run.why.setAttribute("aria-live", "off");
    run.timer = setInterval(() => (run.at >= run.frames.length - 1 ? run.pause() : run.show(run.at + 1)), 350);
  };
  run.add = (step) => {
    const follows = run.at === run.frames.length - 1;
    run.record.steps.push(step);
    run.frames.push(nextFrame(run.frames[run.frames.length - 1], step, run.frames.length));
    learn(run);
    run.show(follows ? run.frames.length - 1 : run.at);
  };
  build(run, element);
  run.colours = paletteOf(run.view);
  learn(run);
  listen(run);
  run.show(run.frames.length - 1);
  return { show: run.show, play: run.play, pause: run.pause, add: run.add, step: () => run.at, textAt: (position) => run.frames[run.at].text[position] };
};
