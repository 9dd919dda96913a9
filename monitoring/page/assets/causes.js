// Dead letters by reason: their number and, below each reason, the devices with the most of them.

import { attr, el, fill, inner, write } from "./dom.js";
import { clock, number } from "./format.js";
import { nameNode, showName } from "./name.js";
import { makeTable, showFigure } from "./table.js";

/** @import { Cause, DeviceCause } from "./types.js" */
/** @typedef {{ cause: Cause, part: DeviceCause | null }} Row A reason, or one of its devices. */

const CAP = 400;

/** @param {Cause} cause @param {boolean} open */
function devicesWord(cause, open) {
  const many = `${number(cause.devices)} ${cause.devices === 1 ? "device" : "devices"}`;
  const shown = cause.by_device.filter(({ device }) => device !== null).length;
  return `${open ? "▾" : "▸"} ${many}${open && shown < cause.devices ? `, top ${shown} shown` : ""}`;
}

/**
 * A table of the reasons; a click on a name calls `choose(reason, device)`. `update(causes)` shows new counts.
 * @param {(reason: string, device: string) => void} choose
 */
export function causeTable(choose) {
  const opened = new Set();
  /** @type {Cause[]} */
  let known = [];

  const showHead = (/** @type {HTMLElement} */ cell, /** @type {Row} */ { cause, part }) => {
    attr(cell, "class", part ? "sub" : null);
    const device = part ? part.device : "";
    if (device === null) return fill(cell, el("span", { class: "muted" }, "unknown device"));
    const asked = JSON.stringify([cause.reason, part?.device]);
    if (cell.dataset.asked === asked) return;
    cell.dataset.asked = asked;
    const click = () => choose(cause.reason, device);
    const text = part ? nameNode(device) : cause.reason;
    fill(cell, el("button", { type: "button", class: "link", on: { click } }, text));
  };

  const showDevices = (/** @type {HTMLElement} */ cell, /** @type {Row} */ { cause, part }) => {
    if (part) return showName(inner(cell, "bdi"), part.mqtt_topic ?? "–");
    const button = inner(cell, "button", { type: "button", class: "link plain-link" });
    const open = opened.has(cause.reason);
    write(button, devicesWord(cause, open));
    attr(button, "aria-expanded", String(open));
    attr(button, "data-cause", cause.reason);
    button.onclick = () => {
      if (!opened.delete(cause.reason)) opened.add(cause.reason);
      show();
    };
  };

  const table = makeTable({
    label: "Dead letters by reason",
    keyOf: (/** @type {Row} */ { cause, part }) => JSON.stringify([cause.reason, part ? [part.device] : null]),
    cap: CAP,
    empty: "No dead letters.",
    columns: [
      { head: "Reason", row: true, show: showHead },
      { head: "Devices", show: showDevices },
      { head: "Dead letters", figure: true, show: (cell, { cause, part }) => showFigure(cell, (part ?? cause).letters) },
      { head: "Redriven", figure: true, show: (cell, { cause, part }) => showFigure(cell, (part ?? cause).redriven) },
      {
        head: "Last received",
        show: (cell, { cause, part }) => showFigure(cell, (part ?? cause).last_received_at, clock),
      },
    ],
  });

  function show() {
    table.update(
      known.flatMap((cause) => [
        { cause, part: null },
        ...(opened.has(cause.reason) ? cause.by_device.map((part) => ({ cause, part })) : []),
      ]),
    );
  }

  const update = (/** @type {Cause[]} */ causes) => {
    known = causes;
    show();
  };
  return { node: table.node, update };
}
