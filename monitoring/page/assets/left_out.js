// Fields that the mappings on a device's routes leave out, each with the step that keeps it.

import { el, fill } from "./dom.js";
import { clock, number, utc } from "./format.js";
import { nameCell } from "./name.js";
import { stepNodes } from "./steps.js";
import { makeTable, showFigure } from "./table.js";

/** @import { LeftOutField } from "./types.js" */

/** @param {HTMLElement} cell @param {LeftOutField} item */
function showSince(cell, item) {
  showFigure(cell, item.since, clock);
  cell.title = utc(item.since);
}

/**
 * Fills the cell again only when the step has changed, so that a button keeps the focus.
 * @param {HTMLElement} cell
 * @param {LeftOutField} item
 */
function showStep(cell, item) {
  const step = item.next ?? "–";
  if (cell.dataset.step === step) return;
  cell.dataset.step = step;
  cell.classList.add("wrap");
  fill(cell, el("div", {}, stepNodes(step)));
}

/** A table of the fields; a gateway counts since its start or since the last change of its routes. */
export function leftOutTable() {
  return makeTable({
    label: "Fields left out",
    keyOf: (/** @type {LeftOutField} */ item) => JSON.stringify([item.gateway, item.route, item.field]),
    stack: true,
    empty: "No mapping on this device's routes leaves out a field.",
    columns: [
      { head: "Field", row: true, show: nameCell((item) => item.field) },
      { head: "Count", figure: true, show: (cell, item) => showFigure(cell, item.count, number) },
      { head: "Since", show: showSince },
      { head: "Route", show: nameCell((item) => item.route) },
      { head: "Gateway", show: nameCell((item) => item.gateway) },
      { head: "Next step", show: showStep },
    ],
  });
}
