// The status line and the tab's title: is all well, how many alerts, is Prometheus there, how old is what one sees.

import { attr, el, fill, keyed, write } from "./dom.js";
import { clock, duration } from "./format.js";
import { countedAlerts } from "./alerts.js";
import { safeAddress } from "./runbook.js";
import { setState, stateBadge, stateOfPart } from "./state.js";

const state = document.getElementById("state");
const badge = stateBadge();
const fresh = document.getElementById("fresh");
const lost = document.getElementById("lost");
const parts = document.getElementById("parts");
const icon = document.querySelector('link[rel="icon"]');
let title = "Tidegate";

/** The worst word for the whole: an alert counts more than a part that is still starting. */
function verdict(snapshot) {
  const firing = countedAlerts(snapshot.alerts ?? []);
  if (firing.length) {
    const critical = firing.some((alert) => alert.severity === "critical");
    return [critical ? "bad" : "warn", `${firing.length} ${firing.length === 1 ? "alert" : "alerts"}`];
  }
  return snapshot.ready ? ["ok", "Ready"] : ["warn", ["Not ready", lacking(snapshot.parts ?? {})].filter(Boolean).join(": ")];
}

/** The parts that are awaited: the first two by name. */
function lacking(parts) {
  const names = Object.keys(parts).filter((name) => parts[name].state !== "ready" && parts[name].state !== "done");
  const more = names.length > 2 ? ` and ${names.length - 2} more` : "";
  return names.slice(0, 2).join(", ") + more;
}

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
  const node = el("li", {}, name, mark);
  return {
    node,
    update: ([part, { state: word, since, detail }]) => {
      write(name, part);
      setState(mark, stateOfPart(word), word);
      attr(node, "title", [since ? `since ${clock(since)}` : "", detail ?? ""].filter(Boolean).join(": ") || null);
    },
  };
}

let shownServers = "";

export function showStatus(snapshot) {
  if (!badge.isConnected) state.append(badge);
  const [kind, words] = verdict(snapshot);
  setState(badge, kind, words);
  title = kind === "ok" ? "✓ Ready – Tidegate" : `${kind === "bad" ? "●" : "▲"} ${words} – Tidegate`;
  if (document.title !== title) document.title = title;
  attr(icon, "href", kind === "ok" ? "/assets/icon.svg" : "/assets/icon-bad.svg");
  const servers = JSON.stringify([snapshot.prometheus, snapshot.alertmanager]);
  if (servers !== shownServers) {
    shownServers = servers;
    showServer(document.getElementById("prometheus"), "Prometheus", snapshot.prometheus);
    showServer(document.getElementById("alertmanager"), "Alertmanager", snapshot.alertmanager);
  }
  keyed(parts, Object.entries(snapshot.parts ?? {}), ([part]) => part, makePart);
  write(document.getElementById("version"), snapshot.version ? `version ${snapshot.version}` : "");
  write(fresh, `live, as of ${clock(snapshot.at)}`);
}

let ticking = null;

/** Says whether the figures are live; while they are not, the page is grey and counts since when. */
export function showConnection(word, since) {
  document.documentElement.dataset.live = word;
  clearInterval(ticking);
  lost.hidden = word !== "lost";
  if (word === "lost") {
    const text = lost.querySelector(".lost-since");
    write(lost.querySelector(".lost-what"), `No live data since ${clock(since.getTime() / 1000)}.`);
    const count = () =>
      write(text, `${duration(Math.round((Date.now() - since.getTime()) / 1000))} ago; connecting again …`);
    count();
    ticking = setInterval(count, 1000);
    write(fresh, `stale, as of ${clock(since.getTime() / 1000)}`);
    document.title = "✕ no data – Tidegate";
    attr(icon, "href", "/assets/icon-bad.svg");
  } else {
    document.title = title;
  }
}
