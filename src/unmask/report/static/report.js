// The report's page: a filter over all tables, CSV files to save, and contents.
import { findAll, sortTablesOnClick } from "./dom.js";

/** The CSV of every table, by name; it travels packed and is unpacked when it is first asked for. */
let numbers = null;
function unpackNumbers() {
  return (numbers ??= (async () => {
    const letters = atob(document.getElementById("numbers").textContent);
    const bytes = Uint8Array.from(letters, (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  })());
}

async function saveCsv(name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([(await unpackNumbers())[name]], { type: "text/csv;charset=utf-8" }));
  link.download = `${name}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Tables

/** Say that a table is wider than the page, as long as it is and there is more to its right. */
function markOverflow(box) {
  const over = box.scrollWidth > box.clientWidth + 1;
  box.classList.toggle("over", over);
  box.classList.toggle("end", over && box.scrollLeft + box.clientWidth >= box.scrollWidth - 1);
  const words = box.previousElementSibling.querySelector(".sideways") || box.previousElementSibling;
  words.hidden = !over;
}

// One filter over all tables

/** Columns of a table by the names that the filter knows. */
function filterColumns(table, names) {
  const heads = findAll("thead th", table).map((th) => th.textContent.trim());
  return names.map((name) => heads.indexOf(name));
}

function startFilter(filter) {
  const selects = findAll("select", filter), names = selects.map((select) => select.name);
  const tables = findAll(".sheet table").map((table) => [table, filterColumns(table, names)]);
  names.forEach((name, at) => {
    const values = new Set();
    for (const [table, columns] of tables) {
      if (columns[at] >= 0) for (const row of table.tBodies[0].rows) values.add(row.cells[columns[at]].textContent);
    }
    selects[at].append(...[...values].filter(Boolean).map((value) => new Option(value, value)));
    selects[at].parentElement.hidden = values.size < 2;
  });
  filter.hidden = selects.every((select) => select.parentElement.hidden);
  filter.addEventListener("change", () => {
    for (const [table, columns] of tables) {
      for (const row of table.tBodies[0].rows) {
        row.hidden = selects.some((s, at) => s.value && columns[at] >= 0 && row.cells[columns[at]].textContent !== s.value);
      }
    }
  });
}

// Contents

/** Open what a link leads to. */
function unfoldTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  let moved = false;
  for (let folded = target && target.closest("details"); folded; folded = folded.parentElement.closest("details")) {
    moved ||= !folded.open;
    folded.open = true;
  }
  if (moved) target.scrollIntoView();
}

export function startReport() {
  sortTablesOnClick();
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-save]");
    if (button) saveCsv(button.dataset.save);
  });
  const sizes = new ResizeObserver((changed) => changed.forEach(({ target }) => markOverflow(target)));
  findAll(".wide").forEach((box) => {
    sizes.observe(box);
    box.addEventListener("scroll", () => markOverflow(box), { passive: true });
  });
  findAll(".filter").forEach(startFilter);
  addEventListener("beforeprint", () => findAll("details").forEach((one) => { one.open = true; }));
  addEventListener("hashchange", unfoldTarget);
  unfoldTarget();
  const narrow = matchMedia("(max-width: 1179px)");
  const fold = () => { document.querySelector("nav details").open = !narrow.matches; };
  narrow.addEventListener("change", fold);
  fold();
}
