// Elements, texts, numbers and tables of every page. What came from a model is put on a page as text, never as HTML.

export const GLYPHS = { blank: "░", filler: "∎", again: "↺" };

export const byId = (id) => document.getElementById(id);

export const findAll = (what, inside = document) => [...inside.querySelectorAll(what)];

export const readData = (id) => JSON.parse(byId(id).textContent);

/** Children are elements or texts. A false or missing attribute is left out, and one that begins with "on" listens. */
export function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function makeButton(label, glyph, onclick) {
  return make("button", { type: "button", "aria-label": label, title: label, onclick }, glyph);
}

/** Three significant digits. */
export function formatNumber(value, missing = "–") {
  return value === null || value === undefined ? missing : Number(value.toPrecision(3)).toString();
}

export function formatChange(value, digits = 3) {
  return (value > 0 ? "+" : value < 0 ? "−" : "±") + Math.abs(value).toFixed(digits);
}

export function shorten(text, most) {
  const letters = Array.from(text.replace(/\s+/g, " ").trim());
  return letters.length > most ? letters.slice(0, most - 1).join("") + "…" : letters.join("");
}

// Tables that sort: a head with `aria-sort` holds a button.

/** The first number of a cell, or its text; null where there is none. */
function cellKey(cell, isText) {
  const text = cell.textContent.trim();
  if (isText) return text === "–" ? null : text;
  const infinite = { "–∞": -Infinity, "∞": Infinity };
  if (text in infinite) return infinite[text];
  const found = text.replace(/,/g, "").replace("−", "-").match(/^[-+]?\d+(\.\d+)?(e[-+]?\d+)?/);
  return found ? Number(found[0]) : null;
}

function compareKeys(a, b) {
  return typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
}

/** First click: smallest first, then largest first, then as it was. Cells without a value stay last. */
function sortBy(head) {
  const table = head.closest("table"), body = table.tBodies[0];
  const rows = [...body.rows];
  rows.forEach((row, at) => (row.dataset.at ??= at));
  const next = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")];
  findAll("th[aria-sort]", table).forEach((th) => th.setAttribute("aria-sort", "none"));
  head.setAttribute("aria-sort", next);
  const asItWas = (a, b) => a.dataset.at - b.dataset.at;
  const isText = head.classList.contains("left"), way = next === "descending" ? -1 : 1;
  const keys = new Map(rows.map((row) => [row, cellKey(row.cells[head.cellIndex], isText)]));
  const byKey = (a, b) => {
    const [x, y] = [keys.get(a), keys.get(b)];
    if (x === null || y === null) return (x === null) - (y === null) || asItWas(a, b);
    return way * compareKeys(x, y) || asItWas(a, b);
  };
  body.append(...rows.sort(next === "none" ? asItWas : byKey));
}

export function sortTablesOnClick() {
  document.addEventListener("click", (event) => {
    const head = event.target.closest("button") && event.target.closest("th[aria-sort]");
    if (head) sortBy(head);
  });
}
