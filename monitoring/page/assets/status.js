// The status line and the tab's title: readiness, alerts, servers, and the age of the figures.

import { attr, el, fill, keyed, need, write } from "./dom.js";
import { clock, duration } from "./format.js";
import { countedAlerts } from "./alerts.js";
import { safeAddress } from "./runbook.js";
import { setState, stateBadge, stateOfPart } from "./state.js";

/** @import { Connection } from "./live.js" */
/** @import { Alert, PartState, Server, Snapshot } from "./types.js" */
/** @typedef {{ kind: "bad" | "warn" | "ok", words: string, href: string | null }} Verdict */

const state = need("#state", HTMLElement);
const fresh = need("#fresh", HTMLElement);
const lost = need("#lost", HTMLElement);
const parts = need("#parts", HTMLElement);
const icon = need('link[rel="icon"]', HTMLLinkElement);
let title = "Tidegate";
/** @type {Record<string, string>} */
const BUDGET_ALERTS = { freshness: "TidegateFreshnessBudgetBurns", validity: "TidegateValidityBudgetBurns" };

/**
 * Problems, each with a link: parts that are not ready, bad stations, alerts, missed objectives.
 * @param {Snapshot} snapshot
 * @returns {Verdict[]}
 */
function verdicts(snapshot) {
  const firing = countedAlerts(snapshot.alerts ?? []);
  const parts = snapshot.parts ?? {};
  const lacking = Object.keys(parts).filter((name) => !["ready", "done"].includes(parts[name].state));
  const stations = (snapshot.flow ?? []).filter((station) => station.state === "bad");
  /** @type {Verdict[]} */
  const found = [];
  if (!snapshot.ready) {
    const down = stations.length > 0 || lacking.some((name) => stateOfPart(parts[name].state) === "bad");
    const words = ["Not ready", listed(lacking)].filter(Boolean).join(": ");
    found.push({ kind: down ? "bad" : "warn", words, href: "#parts-title" });
  } else if (stations.length && !firing.length) {
    found.push({ kind: "bad", words: `Unhealthy: ${listed(stations.map(({ label }) => label))}`, href: "#flow" });
  }
  if (firing.length) {
    const bad = stations.length > 0 || firing.some((alert) => alert.severity === "critical");
    const words = `${firing.length} ${firing.length === 1 ? "alert" : "alerts"}`;
    found.push({ kind: bad ? "bad" : "warn", words, href: "#alerts" });
  }
  const missed = missedObjectives(snapshot, firing);
  if (!missed.length) return found.length ? found : [{ kind: "ok", words: "Ready", href: null }];
  const words = `${missed.join(" and ")} below ${missed.length > 1 ? "their objectives" : "its objective"}`;
  return [...found, { kind: "warn", words: found.length ? words : `Ready, ${words}`, href: "#slo" }];
}

/**
 * Objectives that are missed now, except those that an alert already reports.
 * @param {Snapshot} snapshot
 * @param {Alert[]} firing
 */
function missedObjectives(snapshot, firing) {
  const told = new Set(firing.map(({ name }) => name));
  return Object.keys(BUDGET_ALERTS).filter((id) => snapshot.slo?.[id]?.burns === true && !told.has(BUDGET_ALERTS[id]));
}

/** @param {string[]} names */
function listed(names) {
  return names.slice(0, 2).join(", ") + (names.length > 2 ? ` and ${names.length - 2} more` : "");
}

/** @param {Verdict} verdict */
function makeVerdict({ href }) {
  const badge = stateBadge();
  const node = href ? el("a", { href }, badge) : el("span", {}, badge);
  return { node, update: (/** @type {Verdict} */ { kind, words }) => setState(badge, kind, words) };
}

/** @param {HTMLElement} node @param {string} name @param {Server | undefined} server */
function showServer(node, name, server) {
  const href = server?.url ? safeAddress(server.url) : null;
  const word = !server?.url ? "not used" : server.up === true ? "up" : server.up === false ? "down" : "unknown";
  attr(node, "data-server", word);
  const label = href ? el("a", { href, rel: "noopener noreferrer", target: "_blank" }, name) : name;
  fill(node, label, el("span", { class: "muted" }, ` ${word}`));
}

function makePart() {
  const mark = stateBadge();
  const name = el("span");
  const words = el("span", { class: "part-detail muted small" });
  const node = el("li", {}, name, mark, words);
  return {
    node,
    update: (/** @type {[string, PartState]} */ [part, { state: word, since, detail }]) => {
      write(name, part);
      setState(mark, stateOfPart(word), word);
      const well = stateOfPart(word) === "ok";
      const began = since ? `since ${clock(since)}` : "";
      write(words, [well ? "" : began, detail ?? ""].filter(Boolean).join(": "));
      words.hidden = !words.textContent;
      attr(node, "data-part", part);
      attr(node, "title", well && began ? began : null);
    },
  };
}

let shownServers = "";

/** @param {Snapshot} snapshot */
export function showStatus(snapshot) {
  const found = verdicts(snapshot);
  keyed(state, found, ({ href }) => href, makeVerdict);
  const kinds = new Set(found.map((verdict) => verdict.kind));
  const kind = kinds.has("bad") ? "bad" : kinds.has("warn") ? "warn" : "ok";
  const words = found.map((verdict) => verdict.words).join(" · ");
  title = `${{ bad: "●", warn: "▲", ok: "✓" }[kind]} ${words} – Tidegate`;
  if (document.title !== title) document.title = title;
  attr(icon, "href", kind === "ok" ? "/assets/icon.svg" : "/assets/icon-bad.svg");
  const servers = JSON.stringify([snapshot.prometheus, snapshot.alertmanager]);
  if (servers !== shownServers) {
    shownServers = servers;
    showServer(need("#prometheus", HTMLElement), "Prometheus", snapshot.prometheus);
    showServer(need("#alertmanager", HTMLElement), "Alertmanager", snapshot.alertmanager);
  }
  keyed(parts, Object.entries(snapshot.parts ?? {}), ([part]) => part, makePart);
  write(need("#version", HTMLElement), snapshot.version ? `version ${snapshot.version}` : "");
  write(fresh, `live, as of ${clock(snapshot.at)}`);
}

/** @type {number | undefined} */
let ticking;

/**
 * Shows whether the figures are live. While the connection is lost, the page is grey and counts the time since the last snapshot.
 * @param {Connection} word
 * @param {Date} since
 */
export function showConnection(word, since) {
  document.documentElement.dataset.live = word;
  clearInterval(ticking);
  lost.hidden = word !== "lost";
  if (word === "lost") {
    const text = need(".lost-since", HTMLElement, lost);
    write(need(".lost-what", HTMLElement, lost), `No live data since ${clock(since.getTime() / 1000)}.`);
    const count = () =>
      write(text, `${duration(Math.round((Date.now() - since.getTime()) / 1000))} ago; reconnecting …`);
    count();
    ticking = setInterval(count, 1000);
    write(fresh, `stale, as of ${clock(since.getTime() / 1000)}`);
    document.title = "✕ no data – Tidegate";
    attr(icon, "href", "/assets/icon-bad.svg");
  } else {
    document.title = title;
  }
}
