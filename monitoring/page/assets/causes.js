// Dead letters by reason: their number and, below each reason, the devices with the most of them.

import { attr, el, fill, write } from "./dom.js";
import { clock, number } from "./format.js";
import { nameNode, showName } from "./name.js";
import { makeTable, showFigure } from "./table.js";

const CAP = 400;

function devicesWord(cause, open) {
  const many = `${number(cause.devices)} ${cause.devices === 1 ? "device" : "devices"}`;
  const shown = cause.by_device.filter(({ device }) => device !== null).length;
  return `${open ? "▾" : "▸"} ${many}${open && shown < cause.devices ? `, top ${shown} shown` : ""}`;
}

/** A table of the reasons; a click on a name calls `choose(reason, device)`. `update(causes)` shows new counts. */
export function causeTable(choose) {
  const opened = new Set();
  let known = [];

  const showHead = (cell, { cause, part }) => {
    attr(cell, "class", part ? "sub" : null);
    if (part && part.device === null) return fill(cell, el("span", { class: "muted" }, "unknown device"));
    const asked = JSON.stringify([cause.reason, part?.device]);
    if (cell.dataset.asked === asked) return;
    cell.dataset.asked = asked;
    const click = () => choose(cause.reason, part?.device ?? "");
    const text = part ? nameNode(part.device) : cause.reason;
    fill(cell, el("button", { type: "button", class: "link", on: { click } }, text));
  };

  const showDevices = (cell, { cause, part }) => {
    if (part) return showName(cell.firstChild ?? cell.appendChild(el("bdi")), part.mqtt_topic ?? "–");
    if (!cell.firstChild) cell.append(el("button", { type: "button", class: "link plain-link" }));
    const open = opened.has(cause.reason);
    write(cell.firstChild, devicesWord(cause, open));
    attr(cell.firstChild, "aria-expanded", String(open));
    attr(cell.firstChild, "data-cause", cause.reason);
    cell.firstChild.onclick = () => {
      if (!opened.delete(cause.reason)) opened.add(cause.reason);
      show();
    };
  };

  const table = makeTable({
    label: "Dead letters by reason",
    keyOf: ({ cause, part }) => JSON.stringify([cause.reason, part ? [part.device] : null]),
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

  const update = (causes) => {
    known = causes;
    show();
  };
  return { node: table.node, update };
}
