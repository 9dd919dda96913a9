// Alerts with their impact, likely causes and actions. A polite live region announces changes.

import { attr, el, fill, keyed, need, write } from "./dom.js";
import { clock, duration, number, utc } from "./format.js";
import { nameNode } from "./name.js";
import { openRunbook, runbookName, safeAddress } from "./runbook.js";
import { setState, stateBadge } from "./state.js";
import { stepNodes } from "./steps.js";

/** @import { Alert, Update } from "./types.js" */
/** @typedef {{ alert: Alert, at: number, open: boolean, alertmanager: string | null }} ShownAlert */

const WATCHDOG = "TidegateWatchdog";
/** @type {Record<string, number>} */
const RANK = { critical: 0, warning: 1, info: 2 };
/** @type {Record<string, number>} */
const STATES = { firing: 0, pending: 1, resolved: 2 };
const CAP = 30;

/** Alerts that need attention: firing and more severe than info, without the watchdog. @param {Alert[]} alerts */
export function countedAlerts(alerts) {
  return alerts.filter((alert) => alert.state === "firing" && alert.name !== WATCHDOG && alert.severity !== "info");
}

/** @param {Alert} alert */
function keyOf(alert) {
  return `${alert.name} ${alert.source} ${JSON.stringify(alert.labels ?? {})}`;
}

/** @param {Alert[]} alerts */
function sorted(alerts) {
  // An alert that follows from another one comes after it: the cause must be fixed first.
  const rank = (/** @type {Alert} */ alert) =>
    (STATES[alert.state] ?? 3) * 100 + (alert.explained_by?.length ? 10 : 0) + (RANK[alert.severity] ?? 3);
  return [...alerts].sort((a, b) => rank(a) - rank(b) || (b.since ?? 0) - (a.since ?? 0));
}

/** @param {Alert} alert */
function runbookLink(alert) {
  const name = runbookName(alert.runbook);
  const href = alert.runbook ? safeAddress(alert.runbook) : null;
  if (!href) return null;
  const click = (/** @type {MouseEvent} */ event) => {
    if (!name || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    openRunbook(name);
  };
  return el(
    "a",
    { class: "button", href, target: name ? null : "_blank", rel: "noopener noreferrer", on: { click } },
    "Runbook",
  );
}

/**
 * Link to Alertmanager's form that silences this alert; null for a resolved alert or an unknown Alertmanager.
 * @param {Alert} alert
 * @param {string | null} alertmanager
 */
function silenceLink(alert, alertmanager) {
  const base = alertmanager ? safeAddress(alertmanager) : null;
  if (!base || alert.state === "resolved") return null;
  const filter = encodeURIComponent(`{alertname=${JSON.stringify(alert.name)}}`);
  const href = `${base.replace(/[?#].*$/s, "").replace(/\/$/, "")}/#/silences/new?filter=${filter}`;
  return el("a", { class: "button", href, target: "_blank", rel: "noopener noreferrer" }, "Silence");
}

/** Details of an alert; built again only when they change. @param {Alert} alert @param {string | null} alertmanager */
function body(alert, alertmanager) {
  const list = (/** @type {"ul" | "ol"} */ tag, /** @type {string[]} */ items) =>
    el(
      tag,
      {},
      items.map((item) => el("li", {}, stepNodes(item))),
    );
  const labels = Object.entries(alert.labels ?? {});
  return [
    alert.impact ? [el("h4", {}, "Impact"), el("div", {}, stepNodes(alert.impact))] : null,
    alert.causes?.length ? [el("h4", {}, "Likely causes"), list("ul", alert.causes)] : null,
    alert.actions?.length ? [el("h4", {}, "Actions"), list("ol", alert.actions)] : null,
    labels.length
      ? el(
          "dl",
          { class: "labels" },
          labels.map(([name, value]) => el("div", {}, el("dt", {}, nameNode(name)), el("dd", {}, nameNode(value)))),
        )
      : null,
    el(
      "p",
      { class: "row" },
      runbookLink(alert),
      silenceLink(alert, alertmanager),
      el(
        "span",
        { class: "muted small" },
        alert.source === "prometheus" ? "Source: Prometheus" : "Source: monitor",
      ),
    ),
  ].flat();
}

function makeAlert() {
  const badge = stateBadge();
  const name = el("h3");
  const since = el("span", { class: "muted small" });
  const text = el("p", { class: "alert-text" });
  const follows = el("p", { class: "small" });
  const inner = el("div", { class: "alert-body" });
  const more = el("details", {}, el("summary", {}, "Impact, causes, actions"), inner);
  const node = el(
    "article",
    { class: "alert" },
    el("div", { class: "box-top" }, name, badge),
    text,
    follows,
    since,
    more,
  );
  /** @type {string | null} */
  let shown = null;
  let fired = false;
  return {
    node,
    update: (/** @type {ShownAlert} */ { alert, at, open, alertmanager }) => {
      const over = alert.state === "resolved";
      if (open && !fired) more.open = true; // once, when it starts to fire: a reader who closes it has read it
      fired = alert.state === "firing";
      attr(node, "data-state", alert.state);
      attr(node, "data-severity", alert.severity);
      attr(node, "data-alert", alert.name);
      write(name, alert.name);
      const kind =
        over
          ? "ok"
          : alert.state === "firing" && alert.severity === "critical"
            ? "bad"
            : alert.severity === "info"
              ? "unknown"
              : "warn";
      setState(badge, kind, over ? "resolved" : `${alert.severity}, ${alert.state}`);
      const sentence = alert.text || alert.summary || "";
      write(text, over ? `Was: ${sentence}` : sentence);
      follows.hidden = !alert.explained_by?.length;
      write(follows, follows.hidden ? "" : `Follows from ${alert.explained_by.join(", ")}.`);
      const lasts = duration(Math.max(0, Math.round(at - alert.since)));
      const value = over || typeof alert.value !== "number" ? "" : `; value ${number(alert.value)}`;
      write(since, over ? `resolved at ${clock(alert.since)} (${lasts} ago)` : `since ${clock(alert.since)} (${lasts})${value}`);
      attr(since, "title", utc(alert.since));
      const content = JSON.stringify([
        alert.impact,
        alert.causes,
        alert.actions,
        alert.labels,
        alert.runbook,
        alert.source,
        over,
        alertmanager,
      ]);
      if (content !== shown) fill(inner, body(alert, alertmanager));
      shown = content;
    },
  };
}

/**
 * Announces alerts that started or ended since the last snapshot, but not those of the first snapshot.
 * @param {HTMLElement} region
 */
function announcer(region) {
  /** @type {Map<string, string> | null} */
  let before = null;
  return (/** @type {Alert[]} */ alerts) => {
    const now = new Map(countedAlerts(alerts).map((alert) => [keyOf(alert), alert.name]));
    const last = before;
    if (last) {
      const words = [
        ...[...now].filter(([key]) => !last.has(key)).map(([, name]) => `Alert: ${name}.`),
        ...[...last].filter(([key]) => !now.has(key)).map(([, name]) => `Resolved: ${name}.`),
      ];
      if (words.length) region.textContent = words.slice(0, 5).join(" ");
    }
    before = now;
  };
}

/** @param {Element} root @returns {Update} */
export function mountAlerts(root) {
  const none = el("p", { class: "fine" });
  const badge = stateBadge();
  setState(badge, "ok", "No alerts");
  none.append(badge);
  const list = el("div", { class: "alerts" });
  const more = el("p", { class: "muted" });
  const notes = el("ul", { class: "muted small plain" });
  root.append(none, list, more, notes);
  const announce = announcer(need("#announce", HTMLElement));
  return (snapshot) => {
    const all = snapshot.alerts ?? [];
    const shown = sorted(all.filter((alert) => alert.name !== WATCHDOG));
    const alertmanager = snapshot.alertmanager?.url ?? null;
    const opened = countedAlerts(shown)[0] ?? null;
    none.hidden = shown.some((alert) => alert.state !== "resolved");
    keyed(
      list,
      shown.slice(0, CAP).map((alert) => ({ alert, at: snapshot.at, open: alert === opened, alertmanager })),
      ({ alert }) => keyOf(alert),
      makeAlert,
    );
    more.hidden = shown.length <= CAP;
    write(more, `${number(shown.length - CAP)} more alerts are not shown.`);
    const watchdog = all.find((alert) => alert.name === WATCHDOG);
    const lines = [
      watchdog
        ? `Watchdog ${watchdog.state === "firing" ? "is alive: alerts are being evaluated" : `is ${watchdog.state}`}.`
        : null,
      snapshot.burn_rate_alerts
        ? null
        : "Burn-rate alerts need Prometheus, which is not available. Threshold alerts work without it.",
    ].filter((line) => line !== null);
    keyed(
      notes,
      lines,
      (line) => line,
      (line) => ({ node: el("li", {}, line), update: () => {} }),
    );
    announce(all);
  };
}
