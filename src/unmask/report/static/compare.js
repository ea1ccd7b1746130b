"use strict";

// Utility against forwards of one task, in the page's own colours.
function drawPanel(panel) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const ends = (point, key) => ({
    up: (point[key][2] ?? point[key][0]) - point[key][0],
    down: point[key][0] - (point[key][1] ?? point[key][0]),
  });
  const text = (point) => {
    const [gain, low, high] = point.difference.map((x) => (x === null ? "none" : (x >= 0 ? "+" : "") + x.toFixed(3)));
    return `${point.name}<br>utility ${point.utility[0].toFixed(3)} (n ${point.n})<br>` +
      `${point.forwards[0].toFixed(1)} forwards per answer<br>against the reference ${gain} [${low}, ${high}]`;
  };
  const escaped = (name) => name.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const safe = panel.points.map((point) => ({ ...point, name: escaped(point.name) }));
  const points = {
    type: "scatter", mode: "markers+text", showlegend: false,
    x: safe.map((p) => p.forwards[0]), y: safe.map((p) => p.utility[0]),
    text: safe.map((p) => (p.front || p.reference ? p.name : "")), textposition: "top center",
    hovertext: safe.map(text), hoverinfo: "text",
    error_y: {
      type: "data", symmetric: false, thickness: 1, width: 3, color: colour("--rule"),
      array: safe.map((p) => ends(p, "utility").up), arrayminus: safe.map((p) => ends(p, "utility").down),
    },
    marker: {
      size: 11, line: { width: 2, color: safe.map((p) => colour(p.reference ? "--ink" : "--score")) },
      color: safe.map((p) => (p.reference ? colour("--ink") : p.sure ? colour("--score") : colour("--paper"))),
      symbol: safe.map((p) => (p.reference ? "diamond" : "circle")),
    },
    cliponaxis: false,
  };
  const front = safe.filter((p) => p.front).sort((a, b) => a.forwards[0] - b.forwards[0]);
  const steps = {
    type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false,
    x: front.map((p) => p.forwards[0]), y: front.map((p) => p.utility[0]),
    line: { shape: "hv", width: 1.5, dash: "dot", color: colour("--region") },
  };
  const axis = (title) => ({
    title: { text: title }, gridcolor: colour("--line"), linecolor: colour("--rule"), zeroline: false, automargin: true,
  });
  const layout = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 56, r: 24, t: 24, b: 56 },
    font: { color: colour("--ink"), size: 13 }, hoverlabel: { align: "left" },
    xaxis: { ...axis("forwards per answer"), rangemode: "tozero" }, yaxis: axis("utility"),
  };
  Plotly.react("figure", [steps, points], layout, { responsive: true, displaylogo: false, displayModeBar: false });
}

// A click on a head sorts by that column, first the largest, then the smallest.
function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => row.cells[column].dataset.value;
      const order = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        const both = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
        const less = both ? Number(x) - Number(y) : x.localeCompare(y);
        return up ? less : -less;
      };
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort(order));
    });
  });
}

const panels = JSON.parse(document.getElementById("panels").textContent);
const choice = document.getElementById("task");
const draw = () => drawPanel(panels[Number(choice.value)]);
choice.addEventListener("change", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
document.querySelectorAll("table.sortable").forEach(makeSortable);
if (panels.length) draw();
