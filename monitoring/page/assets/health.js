// Small cards: the canary, the last audit, the machine and its disk.

import { el, keyed, need } from "./dom.js";
import { bytes, clock, day, duration, number, percent } from "./format.js";
import { setState, stateBadge } from "./state.js";
import { stepNodes } from "./steps.js";
import { showFigure } from "./table.js";

/** @import { CanaryFault } from "./canary.js" */
/** @import { Disk, Figure, Update } from "./types.js" */

/**
 * A card with figures in its content and a state next to its heading.
 * @param {Element} root
 * @param {Record<string, [string, (value: any) => string]>} rows Label and format of each figure.
 */
function card(root, rows) {
  const badge = stateBadge();
  const values = Object.fromEntries(Object.keys(rows).map((name) => [name, el("dd", { "data-figure": name })]));
  root.append(
    el(
      "dl",
      { class: "pairs" },
      Object.entries(rows).map(([name, [label]]) => el("div", {}, el("dt", {}, label), values[name])),
    ),
  );
  const heading = need("h2", HTMLElement, root.parentElement ?? document);
  const top = el("div", { class: "box-top" });
  heading.replaceWith(top);
  top.append(heading, badge);
  const show = (/** @type {Record<string, any> | null | undefined} */ found) => {
    for (const [name, [, format]] of Object.entries(rows)) showFigure(values[name], found?.[name], format);
  };
  return { show, badge };
}

/** CPU share of the last minute above which the machine is busy and everything on it may be late. */
const MOST_BUSY = 0.9;

const text = (/** @type {string | null} */ value) => value ?? "–";
const ago = (/** @type {Figure} */ value) => (typeof value === "number" ? `${duration(value)} ago` : "–");

/** @param {Element} root @param {() => CanaryFault | null} watch @returns {Update} */
export function mountCanary(root, watch) {
  const { show, badge } = card(root, {
    published: ["published since start", number],
    seen: ["read back", number],
    last_seen_seconds_ago: ["last read back", ago],
    oldest_wait_seconds: ["oldest in transit", duration],
  });
  return (snapshot) => {
    show(snapshot.canary);
    const fault = watch();
    setState(badge, fault?.state ?? "ok", fault?.word ?? "arriving");
  };
}

/** @param {Element} root @returns {Update} */
export function mountAudit(root) {
  const { show, badge } = card(root, {
    messages: ["messages audited", number],
    unaccounted: ["unaccounted", number],
    duplicate_rows: ["duplicate rows", number],
    order_violations: ["out of order", number],
    at: ["last audit", clock],
  });
  const notes = el("div", { "data-notes": "audit" });
  root.append(notes);
  return ({ audit }) => {
    show(audit);
    keyed(notes, audit?.notes ?? [], String, (note) => ({ node: el("p", { class: "note" }, stepNodes(note)), update() {} }));
    const wrong = audit && (audit.unaccounted || audit.duplicate_rows || audit.order_violations);
    if (!audit) setState(badge, "unknown", "no audit yet");
    else if (wrong) setState(badge, "bad", "not balanced");
    else if (!audit.messages) setState(badge, "unknown", "no messages yet");
    else setState(badge, "ok", "balanced");
  };
}

/** Days until the disk is full, and the date; within two days also the time. @param {Disk | undefined} disk */
function forecast(disk) {
  const days = disk?.full_days;
  if (!disk || typeof days !== "number") return null;
  if (days >= 3650) return "> 10 years";
  if (typeof disk.full_at !== "number") return `${number(days)} days`;
  return `${number(days)} days, ${days < 2 ? clock(disk.full_at).replace(/:\d\d$/, "") : day(disk.full_at)}`;
}

/** @param {Element} root @returns {Update} */
export function mountHost(root) {
  const { show, badge } = card(root, {
    cpu_ratio: ["CPU busy", percent],
    iowait_ratio: ["I/O wait", percent],
    memory: ["memory available", text],
    free_bytes: ["disk free", bytes],
    full: ["disk full in", text],
  });
  return ({ host, disk }) => {
    const memory =
      typeof host?.memory_available_bytes === "number"
        ? `${bytes(host.memory_available_bytes)} of ${bytes(host.memory_total_bytes)}`
        : null;
    show({ ...host, ...disk, memory, full: forecast(disk) });
    const soon = typeof disk?.full_days === "number" && disk.full_days < 3;
    const known = typeof disk?.free_bytes === "number";
    if (soon) setState(badge, "bad", "disk full soon");
    else if ((host?.cpu_minute_ratio ?? 0) > MOST_BUSY) setState(badge, "warn", "CPU is busy");
    else setState(badge, known ? "ok" : "unknown", known ? "enough capacity" : "unknown");
  };
}
