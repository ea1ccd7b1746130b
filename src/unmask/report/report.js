// The report's page: sorting, numbers to copy or save, figures drawn when they come near, and contents.
"use strict";
(() => {
  const all = (what, inside = document) => [...inside.querySelectorAll(what)];

  // What travels packed: a text that is unpacked once, when it is first asked for.
  const unpacked = {};
  function unpack(id) {
    return (unpacked[id] ??= (async () => {
      const letters = atob(document.getElementById(id).textContent);
      const bytes = Uint8Array.from(letters, (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      return new Response(stream).text();
    })());
  }

  // Tables

  /** A cell as something to compare: the first number in it, or its text; null where there is none. */
  function key(cell, isText) {
    const text = cell.textContent.trim();
    if (isText) return text === "–" ? null : text;
    const sign = { "–∞": -Infinity, "∞": Infinity };
    if (text in sign) return sign[text];
    const found = text.replace(/,/g, "").match(/^-?\d+(\.\d+)?(e[-+]?\d+)?/);
    return found ? Number(found[0]) : null;
  }

  function compare(a, b) {
    return typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
  }

  /** First click: smallest first, then largest first, then as it was. Cells without a value stay last. */
  function sort(head) {
    const table = head.closest("table"), body = table.tBodies[0];
    const rows = [...body.rows];
    rows.forEach((row, at) => (row.dataset.at ??= at));
    const next = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")];
    all("th", table).forEach((th) => th.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", next);
    const asItWas = (a, b) => a.dataset.at - b.dataset.at;
    const isText = head.classList.contains("left"), way = next === "descending" ? -1 : 1;
    const keys = new Map(rows.map((row) => [row, key(row.cells[head.cellIndex], isText)]));
    const byKey = (a, b) => {
      const [x, y] = [keys.get(a), keys.get(b)];
      if (x === null || y === null) return (x === null) - (y === null) || asItWas(a, b);
      return way * compare(x, y) || asItWas(a, b);
    };
    body.append(...rows.sort(next === "none" ? asItWas : byKey));
  }

  /** Say that a table is wider than the page, as long as it is and there is more to its right. */
  function sign(box) {
    const over = box.scrollWidth > box.clientWidth + 1;
    box.classList.toggle("over", over);
    box.classList.toggle("end", over && box.scrollLeft + box.clientWidth >= box.scrollWidth - 1);
    box.previousElementSibling.hidden = !over;
  }

  // Numbers to copy or save

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // A browser that gives no clipboard to a page from a file.
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }

  function save(text, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  async function hand(button) {
    const group = button.closest(".formats"), name = group.dataset.numbers;
    const kind = button.dataset.copy ?? button.dataset.save;
    const text = JSON.parse(await unpack("numbers"))[name][kind];
    if (button.dataset.copy) await copy(text);
    else save(text, `${name.replace("figure:", "")}.${kind}`);
    group.querySelector(".done").textContent = button.dataset.copy ? `${kind} copied` : `${kind} saved`;
  }

  // Figures

  let library = null, specs = null;
  function plotly() {
    return (library ??= unpack("plotly").then((code) => {
      const script = document.createElement("script");
      script.textContent = code;
      document.head.append(script);
      return window.Plotly;
    }));
  }

  /** `--score` and `--score/14` (per cent of opacity) as the colours they are now. */
  function colour(name) {
    const [variable, share] = name.split("/");
    const value = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
    if (!share) return value;
    const full = value.length === 4 ? value.replace(/[0-9a-f]/gi, "$&$&") : value;
    const parts = [1, 3, 5].map((at) => parseInt(full.slice(at, at + 2), 16));
    return `rgba(${parts.join(",")},${share / 100})`;
  }

  /** A copy with colours in place of their names. */
  function coloured(value) {
    if (typeof value === "string") return /^--[a-z][\w-]*(\/\d+)?$/.test(value) ? colour(value) : value;
    if (Array.isArray(value)) return value.map(coloured);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, inside]) => [name, coloured(inside)]));
  }

  const axis = { automargin: true, fixedrange: true, gridcolor: "--line", zerolinecolor: "--rule", linecolor: "--line" };
  function layout(own, isFirst) {
    const base = {
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: "--ink" },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 10, r: 14, t: isFirst ? 26 : 10, b: 10 },
      hovermode: "closest", dragmode: false,
      hoverlabel: { bgcolor: "--wash", bordercolor: "--rule", font: { color: "--ink", size: 12, family: getComputedStyle(document.body).fontFamily }, align: "left" },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } },
    };
    return coloured({ ...base, ...own, xaxis: { ...axis, ...own.xaxis }, yaxis: { ...axis, ...own.yaxis } });
  }

  async function draw(box) {
    const Plotly = await plotly();
    specs ??= JSON.parse(await unpack("figures"));
    const wanted = box.dataset.figure;
    for (const [at, panel] of specs[wanted].entries()) {
      const made = layout(panel.layout, Boolean(panel.title));
      if (panel.title) made.title = { text: plain(panel.title), font: { size: 13 }, x: 0, xref: "paper", y: 1, yref: "container", yanchor: "top", pad: { t: 4 } };
      if (panel.title) made.legend = { ...made.legend, yref: "container", y: 0, yanchor: "bottom" };
      const plot = box.children[at], isNew = !plot.classList.contains("js-plotly-plot");
      await Plotly.react(plot, coloured(panel.data), made, { displayModeBar: false, responsive: true });
      if (isNew) plot.on("plotly_hover", () => requestAnimationFrame(() => say(plot)));
    }
    box.classList.add("drawn");
  }

  /** What is shown beside a point, below the figure, too: on a narrow screen there is no room beside it. */
  function say(plot) {
    const shown = plot.querySelector(".hovertext text.nums");
    if (!shown) return;
    const lines = all("tspan.line", shown).map((line) => line.textContent);
    plot.closest("figure").querySelector(".said").textContent = lines.length ? lines.join("\n") : shown.textContent;
  }

  /** Text that plotly takes for no markup. */
  function plain(text) {
    return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  }

  /** Another figure of the same kind in the same place. */
  function choose(select) {
    const figure = select.closest("figure"), box = figure.querySelector(".plots");
    const option = select.selectedOptions[0], panels = Number(option.dataset.panels);
    figure.querySelector(".formats").dataset.numbers = `figure:${option.value}`;
    figure.querySelector(".done").textContent = "";
    [...box.children].forEach((plot) => window.Plotly && window.Plotly.purge(plot));
    const places = Array.from({ length: panels }, () => document.createElement("div"));
    places.forEach((place) => {
      place.className = "plot";
      place.setAttribute("role", "img");
      place.setAttribute("aria-label", option.textContent);
    });
    box.replaceChildren(...places);
    box.dataset.figure = option.value;
    draw(box);
  }

  // Contents

  /** Open what a link leads to. */
  function unfold() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folded = target && target.closest("details");
    if (folded && !folded.open) {
      folded.open = true;
      target.scrollIntoView();
    }
  }

  function start() {
    document.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      if (button.closest("th")) sort(button.closest("th"));
      if (button.closest(".formats")) hand(button);
    });
    all("figure select").forEach((select) => select.addEventListener("change", () => choose(select)));
    const near = new IntersectionObserver((seen) => {
      for (const { isIntersecting, target } of seen) if (isIntersecting) { near.unobserve(target); draw(target); }
    }, { rootMargin: "400px" });
    all(".plots").forEach((box) => near.observe(box));
    const sizes = new ResizeObserver((changed) => changed.forEach(({ target }) => sign(target)));
    all(".wide").forEach((box) => { sizes.observe(box); box.addEventListener("scroll", () => sign(box), { passive: true }); });
    const again = () => all(".plots.drawn").forEach(draw);
    for (const medium of ["(prefers-color-scheme: dark)", "print"]) matchMedia(medium).addEventListener("change", again);
    addEventListener("beforeprint", () => all("details").forEach((one) => { one.open = true; }));
    addEventListener("hashchange", unfold);
    unfold();
    const narrow = matchMedia("(max-width: 1179px)");
    const fold = () => { document.querySelector("nav details").open = !narrow.matches; };
    narrow.addEventListener("change", fold);
    fold();
  }
  start();
})();
