// What a run came to, and two futures of one state side by side.
import { post, readRefusal, showProblem } from "./api.js";
import { byId, findAll, formatChange, formatNumber, make } from "./dom.js";
import { drawRun } from "./grid.js";

function scoreText(run) {
  const { score, explanation } = run.record;
  if (score !== null) return `score ${formatNumber(score)}`;
  if (run.judged) return "score not available";
  return explanation ? "not scored" : "no score: nobody said what the right answer is";
}

function splitWords(text) {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) || [];
}

/** Places of the words of one text that are in the longest part which both have; long answers are not compared. */
function commonWords(one, other) {
  const common = new Set();
  if (one.length * other.length > 400000) return common;
  const length = Array.from({ length: one.length + 1 }, () => new Uint16Array(other.length + 1));
  for (let a = one.length - 1; a >= 0; a--)
    for (let b = other.length - 1; b >= 0; b--) length[a][b] = one[a] === other[b] ? length[a + 1][b + 1] + 1 : Math.max(length[a + 1][b], length[a][b + 1]);
  for (let a = 0, b = 0; a < one.length && b < other.length; ) {
    if (one[a] === other[b]) {
      common.add(a++);
      b++;
    } else if (length[a + 1][b] >= length[a][b + 1]) a++;
    else b++;
  }
  return common;
}

function answerBox(text, other) {
  const box = make("pre", { class: "answer", tabindex: 0, "aria-label": "Answer" });
  if (!text) box.append(make("span", { class: "note" }, "(an empty answer)"));
  else if (other === null) box.append(text);
  else {
    const own = splitWords(text), common = commonWords(own, splitWords(other));
    own.forEach((word, at) => box.append(common.has(at) || !word.trim() ? word : make("mark", {}, word)));
  }
  return box;
}

/** Score, cost and answer of a run; words that `other`, another answer, does not have are marked. */
export function outcomeParts(run, other) {
  const { record } = run;
  return [
    make("p", { class: "score" }, make("b", {}, scoreText(run)), ` · ${record.steps.length} steps, ${run.forwards} forwards · ${run.model}, ${record.policy}`),
    record.explanation ? make("p", { class: "note" }, record.explanation) : null,
    answerBox(record.text, other),
  ].filter(Boolean);
}

function compareFutures(one, other) {
  const a = one.record.score, b = other.record.score;
  const same = one.record.text === other.record.text;
  if (a === null || b === null) return { kind: "same", text: same ? "Both futures say the same." : "The futures differ; there is no score to tell which is better." };
  if (a === b) return { kind: "same", text: same ? `Both futures say the same: score ${formatNumber(a)}.` : `Other words, the same score: ${formatNumber(a)}.` };
  return { kind: b > a ? "better" : "worse", text: `The branch is ${b > a ? "better" : "worse"}: score ${formatNumber(a)} → ${formatNumber(b)} (${formatChange(b - a)}).` };
}

export function showFutures(run, branch, step, goOn) {
  const [home] = findAll("#futures .futures"), found = compareFutures(run, branch);
  byId("futures").hidden = false;
  byId("verdict").textContent = found.text;
  byId("verdict").className = `verdict ${found.kind}`;
  const grids = [make("div"), make("div")];
  const take = make("button", { type: "button", onclick: goOn }, "Go on from this branch");
  const save = make("button", { type: "button", onclick: () => saveCopy([run.run, branch.run]) }, "Save a read-only copy of both");
  home.replaceChildren(
    make("section", { class: "future" }, make("h3", {}, "The run"), ...outcomeParts(run, branch.record.text), grids[0]),
    make("section", { class: "future" }, make("h3", {}, `The branch: ${branch.record.policy}`), ...outcomeParts(branch, run.record.text), grids[1], make("p", { class: "buttons" }, take, save)),
  );
  [run, branch].forEach((one, at) => drawRun(grids[at], one.record).show(Math.min(step + 1, one.record.steps.length)));
}

/** Saves a page that needs no server, then or later. */
export async function saveCopy(runs) {
  showProblem("");
  const answer = await post("export", { runs });
  if (!answer.ok) return showProblem(await readRefusal(answer));
  const address = URL.createObjectURL(new Blob([await answer.arrayBuffer()], { type: "text/html" }));
  const link = make("a", { href: address, download: "unmask-run.html", hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
