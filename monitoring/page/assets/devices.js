// Devices that need a look: silent ones, those that send most, those that are refused most, those whose clock is off.

import { el, fill } from "./dom.js";
import { clock, duration, millis } from "./format.js";
import { deviceLink, showName } from "./name.js";
import { makeTable, showFigure } from "./table.js";

const CAP = 10;

function showDevice(cell, item) {
  const known = `${item.device.length} ${item.device.slice(0, 256)}`;
  if (cell.dataset.known === known) return;
  cell.dataset.known = known;
  cell.replaceChildren(deviceLink(item.device));
}

function showReason(cell, item) {
  if (item.reason) return showName(cell, item.reason);
  delete cell.dataset.name; // else the same reason would not be shown again
  return fill(cell, el("span", { class: "none" }, "not known yet"));
}

const DEVICE = { head: "Device", row: true, show: showDevice };

function list(label, empty, columns) {
  return makeTable({
    label,
    empty,
    cap: CAP,
    keyOf: (item) => `${item.device.length} ${item.device}`,
    columns: [DEVICE, ...columns],
  });
}

export function mountDevices(root) {
  const known = el("dd");
  const active = el("dd");
  const silentCount = el("dd");
  const stale = el("dd");
  const lists = {
    silent: list("Silent devices", "Every device is heard as often as usual.", [
      { head: "Silent for", figure: true, show: (cell, item) => showFigure(cell, item.silent_seconds, duration) },
      { head: "Usually every", figure: true, show: (cell, item) => showFigure(cell, item.interval_s, duration) },
      { head: "Last heard", figure: true, show: (cell, item) => showFigure(cell, item.last_seen, clock) },
    ]),
    talkers: list("Top talkers, last hour", "Nothing was received.", [
      { head: "Messages", figure: true, show: (cell, item) => showFigure(cell, item.received) },
    ]),
    offenders: list("Most refused, last hour", "Nobody was refused.", [
      { head: "Refused", figure: true, show: (cell, item) => showFigure(cell, item.dead_lettered) },
      { head: "Mostly", show: showReason },
    ]),
    skewed: list("Clocks that are off", "No clock is off.", [
      { head: "Off by", figure: true, show: (cell, item) => showFigure(cell, item.clock_skew_ms, millis) },
    ]),
  };
  const titles = {
    silent: "Silent",
    talkers: "Top talkers, last hour",
    offenders: "Most refused, last hour",
    skewed: "Clocks that are off",
  };
  const open = el("p", { class: "muted small" }, "Counted by the minute: the newest minute is still open.");
  root.append(
    el(
      "dl",
      { class: "strip" },
      el("div", {}, el("dt", {}, "known"), known),
      el("div", {}, el("dt", {}, "heard within the hour"), active),
      el("div", {}, el("dt", {}, "silent"), silentCount),
      el("div", {}, el("dt", {}, "values out of date"), stale),
    ),
    el(
      "div",
      { class: "quad" },
      Object.entries(lists).map(([id, part]) =>
        el("section", { "data-list": id, "aria-label": titles[id] }, el("h3", {}, titles[id]), part.node),
      ),
    ),
    open,
  );
  return ({ devices }) => {
    showFigure(known, devices?.known);
    showFigure(active, devices?.active);
    const asked = typeof devices?.known === "number";
    showFigure(silentCount, asked ? (devices.silent_count ?? devices.silent?.length) : null);
    showFigure(stale, devices?.values_stale);
    for (const [id, part] of Object.entries(lists)) part.update(devices?.[id] ?? [], devices?.known > 0);
  };
}
