// Small cards: the canary, the last audit, the machine and its disk.

import { el, keyed } from "./dom.js";
import { bytes, clock, day, duration, number, percent } from "./format.js";
import { setState, stateBadge } from "./state.js";
import { stepNodes } from "./steps.js";
import { showFigure } from "./table.js";

/** A card with figures in its content and a state next to its heading. */
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
  const heading = root.parentElement.querySelector("h2");
  const top = el("div", { class: "box-top" });
  heading.replaceWith(top);
  top.append(heading, badge);
  const show = (found) => {
    for (const [name, [, format]] of Object.entries(rows)) showFigure(values[name], found?.[name], format);
  };
  return { show, badge };
}

/** CPU share of the last minute above which the machine is busy and everything on it may be late. */
const MOST_BUSY = 0.9;

const ago = (value) => (typeof value === "number" ? `${duration(value)} ago` : "–");

export function mountCanary(root, watch) {
  const { show, badge } = card(root, {
    published: ["published since start", number],
    seen: ["read back", number],
    last_seen_seconds_ago: ["last read back", ago],
    oldest_wait_seconds: ["oldest in transit", duration],
  });
  return (snapshot) => {
    show(snapshot.canary);
    const fault = watch(snapshot);
    setState(badge, fault?.state ?? "ok", fault?.word ?? "arriving");
  };
}

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

/** Days until the disk is full, and the date; within two days also the time. */
function forecast(disk) {
  const days = disk?.full_days;
  if (typeof days !== "number") return null;
  if (days >= 3650) return "> 10 years";
  if (typeof disk.full_at !== "number") return `${number(days)} days`;
  return `${number(days)} days, ${days < 2 ? clock(disk.full_at).replace(/:\d\d$/, "") : day(disk.full_at)}`;
}

export function mountHost(root) {
  const { show, badge } = card(root, {
    cpu_ratio: ["CPU busy", percent],
    iowait_ratio: ["I/O wait", percent],
    memory: ["memory available", (value) => value ?? "–"],
    free_bytes: ["disk free", bytes],
    full: ["disk full in", (value) => value ?? "–"],
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
    else if (host?.cpu_minute_ratio > MOST_BUSY) setState(badge, "warn", "CPU is busy");
    else setState(badge, known ? "ok" : "unknown", known ? "enough capacity" : "unknown");
  };
}
