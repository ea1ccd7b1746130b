// The demonstration's page: runs in their grids, and the chosen state with all that was tried there.
import { byId, findAll, readData } from "./dom.js";
import { drawRun } from "./grid.js";
import { drawStates } from "./states.js";

export function startDemo() {
  const runs = readData("runs-data");

  for (const grid of findAll(".run-grid")) drawRun(grid, runs[Number(grid.dataset.run)]);
  for (const button of findAll("button[data-run]")) {
    button.addEventListener("click", () => {
      for (const other of findAll(`button[data-grid="${button.dataset.grid}"]`)) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      drawRun(byId(button.dataset.grid), runs[Number(button.dataset.run)]);
    });
  }
  if (byId("state")) drawStates(byId("state"), readData("states-data"));
}
