// Devices that need attention: silent ones, top senders, those with the most rejections, and those with a wrong clock.

import { el, fill } from "./dom.js";
import { clock, duration, millis } from "./format.js";
import { deviceLink, showName } from "./name.js";
import { makeTable, showFigure } from "./table.js";

/** @import { Column } from "./table.js" */
/** @import { FleetDevice, Update } from "./types.js" */

const CAP = 10;

/** @param {HTMLElement} cell @param {FleetDevice} item */
function showDevice(cell, item) {
  const known = `${item.device.length} ${item.device.slice(0, 256)}`;
  if (cell.dataset.known === known) return;
  cell.dataset.known = known;
  cell.replaceChildren(deviceLink(item.device));
}

/** @param {HTMLElement} cell @param {FleetDevice} item */
function showReason(cell, item) {
  if (item.reason) return showName(cell, item.reason);
  delete cell.dataset.name; // otherwise showName would skip the same reason next time
  return fill(cell, el("span", { class: "none" }, "not known yet"));
}

/** @type {Column<FleetDevice>} */
const DEVICE = { head: "Device", row: true, show: showDevice };

/** @param {string} label @param {string} empty @param {Column<FleetDevice>[]} columns */
function list(label, empty, columns) {
  return makeTable({
    label,
    empty,
    cap: CAP,
    keyOf: (/** @type {FleetDevice} */ item) => `${item.device.length} ${item.device}`,
    columns: [DEVICE, ...columns],
  });
}

/** @param {Element} root @returns {Update} */
export function mountDevices(root) {
  const known = el("dd");
  const active = el("dd");
  const silentCount = el("dd");
  const stale = el("dd");
  const lists = {
    silent: list("Silent devices", "No silent devices.", [
      { head: "Silent for", figure: true, show: (cell, item) => showFigure(cell, item.silent_seconds, duration) },
      { head: "Usual interval", figure: true, show: (cell, item) => showFigure(cell, item.interval_s, duration) },
      { head: "Last seen", figure: true, show: (cell, item) => showFigure(cell, item.last_seen, clock) },
    ]),
    talkers: list("Top senders, last hour", "No messages.", [
      { head: "Messages", figure: true, show: (cell, item) => showFigure(cell, item.received) },
    ]),
    offenders: list("Most rejected, last hour", "No rejected messages.", [
      { head: "Rejected", figure: true, show: (cell, item) => showFigure(cell, item.dead_lettered) },
      { head: "Last reason", show: showReason },
    ]),
    skewed: list("Wrong clocks", "No wrong clocks.", [
      { head: "Offset", figure: true, show: (cell, item) => showFigure(cell, item.clock_skew_ms, millis) },
    ]),
  };
  const titles = {
    silent: "Silent",
    talkers: "Top senders, last hour",
    offenders: "Most rejected, last hour",
    skewed: "Wrong clocks",
  };
  const ids = /** @type {(keyof typeof lists)[]} */ (Object.keys(lists));
  const open = el("p", { class: "muted small" }, "Counted per minute; the current minute is incomplete.");
  root.append(
    el(
      "dl",
      { class: "strip" },
      el("div", {}, el("dt", {}, "known"), known),
      el("div", {}, el("dt", {}, "active, last hour"), active),
      el("div", {}, el("dt", {}, "silent"), silentCount),
      el("div", {}, el("dt", {}, "stale values"), stale),
    ),
    el(
      "div",
      { class: "quad" },
      ids.map((id) =>
        el("section", { "data-list": id, "aria-label": titles[id] }, el("h3", {}, titles[id]), lists[id].node),
      ),
    ),
    open,
  );
  return ({ devices }) => {
    showFigure(known, devices?.known);
    showFigure(active, devices?.active);
    const asked = typeof devices?.known === "number";
    showFigure(silentCount, asked ? (devices.silent_count ?? devices.silent.length) : null);
    showFigure(stale, devices?.values_stale);
    for (const id of ids) lists[id].update(devices?.[id] ?? [], (devices?.known ?? 0) > 0);
  };
}
