"use strict";
// What a run came to, and two futures of one state side by side.

function scoreText(told) {
  const { score, explanation } = told.record;
  if (score !== null) return `score ${said(score)}`;
  if (told.judged) return "score not available";
  return explanation ? "not scored" : "no score: nobody said what the right answer is";
}

function words(text) {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) || [];
}

function common(one, other) {
  // Which words of each belong to the longest common part; long answers are not compared.
  if (one.length * other.length > 400000) return [new Set(), new Set()];
  const length = Array.from({ length: one.length + 1 }, () => new Uint16Array(other.length + 1));
  for (let a = one.length - 1; a >= 0; a--)
    for (let b = other.length - 1; b >= 0; b--) length[a][b] = one[a] === other[b] ? length[a + 1][b + 1] + 1 : Math.max(length[a + 1][b], length[a][b + 1]);
  const kept = [new Set(), new Set()];
  for (let a = 0, b = 0; a < one.length && b < other.length; ) {
    if (one[a] === other[b]) {
      kept[0].add(a++);
      kept[1].add(b++);
    } else if (length[a + 1][b] >= length[a][b + 1]) a++;
    else b++;
  }
  return kept;
}

function answerBox(text, other) {
  const box = make("pre", { class: "answer", tabindex: 0, "aria-label": "Answer" });
  if (!text) box.append(make("span", { class: "note" }, "(an empty answer)"));
  else if (other === null) box.append(text);
  else {
    const own = words(text), kept = common(own, words(other))[0];
    own.forEach((word, at) => box.append(kept.has(at) || !word.trim() ? word : make("mark", {}, word)));
  }
  return box;
}

function outcome(told, other) {
  const { record } = told;
  return [
    make("p", { class: "score" }, make("b", {}, scoreText(told)), ` · ${record.steps.length} steps, ${told.forwards} forwards · ${told.model}, ${record.policy}`),
    record.explanation ? make("p", { class: "note" }, record.explanation) : null,
    answerBox(record.text, other),
  ].filter(Boolean);
}

function verdict(one, other) {
  const a = one.record.score, b = other.record.score;
  if (a === null || b === null) return { kind: "same", text: one.record.text === other.record.text ? "Both futures say the same." : "The futures differ; there is no score to tell which is better." };
  if (a === b) return { kind: "same", text: one.record.text === other.record.text ? `Both futures say the same: score ${said(a)}.` : `Other words, the same score: ${said(a)}.` };
  return { kind: b > a ? "better" : "worse", text: `The branch is ${b > a ? "better" : "worse"}: score ${said(a)} → ${said(b)} (${signed(b - a)}).` };
}

function showFutures(run, branch, step, goOn) {
  const home = document.querySelector("#futures .futures"), said = verdict(run, branch);
  byId("futures").hidden = false;
  byId("verdict").textContent = said.text;
  byId("verdict").className = `verdict ${said.kind}`;
  const grids = [make("div"), make("div")];
  const take = make("button", { type: "button", onclick: goOn }, "Go on from this branch");
  const save = make("button", { type: "button", onclick: () => saveCopy([run.run, branch.run]) }, "Save a read-only copy of both");
  home.replaceChildren(
    make("section", { class: "future" }, make("h3", {}, "The run"), ...outcome(run, branch.record.text), grids[0]),
    make("section", { class: "future" }, make("h3", {}, `The branch: ${branch.record.policy}`), ...outcome(branch, run.record.text), grids[1], make("p", { class: "buttons" }, take, save)),
  );
  [run, branch].forEach((told, at) => unmaskGrid(grids[at], told.record, {}).show(Math.min(step + 1, told.record.steps.length)));
}

async function saveCopy(runs) {
  // A file of the browser's own making: it needs no server, then or later.
  showProblem("");
  const answer = await post("export", { runs });
  if (!answer.ok) return showProblem(await refusal(answer));
  const address = URL.createObjectURL(new Blob([await answer.arrayBuffer()], { type: "text/html" }));
  const link = make("a", { href: address, download: "unmask-run.html", hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
