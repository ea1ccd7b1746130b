// Questions to the server, streams of events, and the line that says what went wrong.
import { byId } from "./dom.js";

export function showProblem(text) {
  const box = byId("problem");
  box.textContent = text;
  box.hidden = !text;
  if (text) box.scrollIntoView({ block: "nearest" });
}

/** The one line that the server gave as its reason. */
export async function readRefusal(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).error || text;
  } catch (_) {
    return text || `the server answered ${answer.status}`;
  }
}

export async function ask(what, parameters) {
  const query = parameters ? "?" + new URLSearchParams(parameters) : "";
  const answer = await fetch(`api/${what}${query}`);
  if (!answer.ok) throw new Error(await readRefusal(answer));
  return answer.json();
}

export function post(what, value, signal) {
  const headers = { "Content-Type": "application/json" };
  return fetch(`api/${what}`, { method: "POST", headers, body: JSON.stringify(value), signal });
}

function parseEvent(block) {
  const event = { name: "", value: null };
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) event.name = line.slice(7);
    if (line.startsWith("data: ")) event.value = JSON.parse(line.slice(6));
  }
  return event;
}

/** Server-sent events of one question, in order, until the server says that it is done. */
export async function stream(what, value, onEvent, signal) {
  const answer = await post(what, value, signal);
  if (!answer.ok) throw new Error(await readRefusal(answer));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value: text } = await reader.read();
    if (done) return;
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop();
    for (const event of blocks.map(parseEvent)) if (event.name) onEvent(event.name, event.value);
  }
}

/** Answers may come in another order than questions: each question gets a test whether it is still the last one. */
export function latest() {
  let number = 0;
  return () => {
    const own = ++number;
    return () => own === number;
  };
}
