// Fields that mappings leave out, of the routes that a device's messages come by, each with the setting that keeps it.

import { el, fill } from "./dom.js";
import { clock, number, utc } from "./format.js";
import { showName } from "./name.js";
import { stepNodes } from "./steps.js";
import { makeTable, showFigure } from "./table.js";

const name = (get) => (cell, item) => showName(cell.firstChild ?? cell.appendChild(el("bdi")), get(item));

function showSince(cell, item) {
  showFigure(cell, item.since, clock);
  cell.title = utc(item.since);
}

/** Filled again only where the step is another one, so that a button keeps the focus. */
function showStep(cell, item) {
  const step = item.next ?? "–";
  if (cell.dataset.step === step) return;
  cell.dataset.step = step;
  cell.classList.add("wrap");
  fill(cell, el("div", {}, stepNodes(step)));
}

/** A table of the fields; a gateway counts from its start, or from the last change of its routes. */
export function leftOutTable() {
  return makeTable({
    label: "Fields left out",
    keyOf: (item) => JSON.stringify([item.gateway, item.route, item.field]),
    stack: true,
    empty: "No mapping of its routes leaves a field out.",
    columns: [
      { head: "Field", row: true, show: name((item) => item.field) },
      { head: "Times", figure: true, show: (cell, item) => showFigure(cell, item.count, number) },
      { head: "Since", show: showSince },
      { head: "Route", show: name((item) => item.route) },
      { head: "Gateway", show: name((item) => item.gateway) },
      { head: "To keep it", show: showStep },
    ],
  });
}
