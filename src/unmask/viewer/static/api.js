"use strict";
// What every part of the page uses: elements, questions to the server, and streams of events.

function make(name, attributes, ...children) {
  // Children are elements or texts: a text stays a text, whatever it holds.
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function byId(id) {
  return document.getElementById(id);
}

function showProblem(text) {
  const box = byId("problem");
  box.textContent = text;
  box.hidden = !text;
  if (text) box.scrollIntoView({ block: "nearest" });
}

async function refusal(answer) {
  // The one line that the server gave as its reason.
  const text = await answer.text();
  try {
    return JSON.parse(text).error || text;
  } catch (_) {
    return text || `the server answered ${answer.status}`;
  }
}

async function ask(what, parameters) {
  const query = parameters ? "?" + new URLSearchParams(parameters) : "";
  const answer = await fetch(`api/${what}${query}`);
  if (!answer.ok) throw new Error(await refusal(answer));
  return answer.json();
}

function post(what, value, signal) {
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

async function stream(what, value, onEvent, signal) {
  // Server-sent events of one question, in order, until the server says that it is done.
  const answer = await post(what, value, signal);
  if (!answer.ok) throw new Error(await refusal(answer));
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

function latest() {
  // Answers may come in another order than questions: each question gets a test whether it is still the last one.
  let number = 0;
  return () => {
    const own = ++number;
    return () => own === number;
  };
}

function said(value) {
  return value === null || value === undefined ? "–" : Number(value.toPrecision(3)).toString();
}

function signed(value) {
  return (value > 0 ? "+" : value < 0 ? "−" : "±") + said(Math.abs(value));
}

function shortened(text, most) {
  const letters = Array.from(text.replace(/\s+/g, " ").trim());
  return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : letters.join("");
}
