"use strict";
// The demonstration's page: runs in their grids, and the chosen state with all that was tried there.
(() => {
  const values = (id) => JSON.parse(document.getElementById(id).textContent);
  const runs = values("runs-data");

  function show(grid, at) {
    grid.replaceChildren();
    unmaskGrid(grid, runs[at], {});
  }

  for (const grid of document.querySelectorAll(".run-grid")) show(grid, Number(grid.dataset.run));
  for (const button of document.querySelectorAll("button[data-run]")) {
    button.addEventListener("click", () => {
      for (const other of document.querySelectorAll(`button[data-grid="${button.dataset.grid}"]`)) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      show(document.getElementById(button.dataset.grid), Number(button.dataset.run));
    });
  }

  const state = document.getElementById("state");
  if (state) {
    // Arrow keys turn over states only there: elsewhere they move in a grid, or scroll.
    document.addEventListener("keydown", (event) => {
      if (event.key.startsWith("Arrow") && !state.contains(event.target)) event.stopImmediatePropagation();
    });
    unmaskStates(state, values("states-data"));
  }
})();
