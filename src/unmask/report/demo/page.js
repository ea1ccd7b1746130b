// The runs of the page: a button shows its run in the grid of its group.
(function () {
  const runs = JSON.parse(document.getElementById("runs-data").textContent);

  function show(grid, at) {
    grid.replaceChildren();
    unmaskGrid(grid, runs[at], {});
  }

  for (const grid of document.querySelectorAll(".run-grid[data-run]")) show(grid, Number(grid.dataset.run));
  for (const button of document.querySelectorAll("button[data-run]")) {
    button.addEventListener("click", () => {
      for (const other of document.querySelectorAll(`button[data-grid="${button.dataset.grid}"]`)) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      show(document.getElementById(button.dataset.grid), Number(button.dataset.run));
    });
  }
})();
