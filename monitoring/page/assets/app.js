// Entry point of the page: mounts its sections, updates them with each snapshot and switches between views.

import { mountAlerts } from "./alerts.js";
import { CanaryWatch } from "./canary.js";
import { DevicePage } from "./device.js";
import { mountDevices } from "./devices.js";
import { need } from "./dom.js";
import { mountErrors } from "./errors.js";
import { mountFlow } from "./flow.js";
import { mountAudit, mountCanary, mountHost } from "./health.js";
import { History } from "./history.js";
import { mountKafka } from "./kafka.js";
import { mountLatency } from "./latency.js";
import { Letters } from "./letters.js";
import { Live } from "./live.js";
import { enter, keepSession, logIn, mountLogin, takeToken } from "./login.js";
import { closePanel } from "./panel.js";
import { learnProgram } from "./program.js";
import { mountSearch } from "./search.js";
import { mountObjectives } from "./slo.js";
import { showConnection, showStatus } from "./status.js";
import { mountTables } from "./tables.js";
import { TopicPage } from "./topic.js";
import { TopicsPage } from "./topics.js";
import { mountTrends } from "./trends.js";

/** @import { CanaryFault } from "./canary.js" */
/** @import { Snapshot, Update } from "./types.js" */
/** @typedef {"device" | "topic" | "topics"} View */

const token = takeToken();
const watch = new CanaryWatch();
/** @type {Snapshot | null} */
let newest = null;
/** @type {CanaryFault | null} */
let canaryFault = null;

const place = (/** @type {string} */ id) => need(`#${id} .content`, HTMLElement);
const history = new History();
const letters = new Letters(place("letters"));
const overview = need("#overview", HTMLElement);
const roots = {
  device: need("#device", HTMLElement),
  topic: need("#topic", HTMLElement),
  topics: need("#topics", HTMLElement),
};
const views = /** @type {View[]} */ (Object.keys(roots));
const pages = {
  device: new DevicePage(roots.device, (ids, next) => letters.redrive(ids, next)),
  topic: new TopicPage(roots.topic),
  topics: new TopicsPage(roots.topics),
};
/** @type {Update[]} */
const updates = [
  mountFlow(place("flow")),
  mountAlerts(place("alerts")),
  mountObjectives(place("slo")),
  mountCanary(place("canary"), () => canaryFault),
  mountAudit(place("audit")),
  mountHost(place("host")),
  mountLatency(place("latency"), history, () => canaryFault),
  mountTrends(place("trends"), history),
  mountErrors(place("errors"), (reason) => letters.filter(reason)),
  mountKafka(place("kafka")),
  mountDevices(place("devices")),
  (snapshot) => letters.update(snapshot),
  mountTables(place("tables")),
];

/** @param {Snapshot} snapshot */
function render(snapshot) {
  showStatus(snapshot);
  pages.topic.update(snapshot);
  if (document.hidden || overview.hidden) return; // a hidden page or another view needs only the title and the status line
  const began = performance.now();
  for (const update of updates) {
    try {
      update(snapshot);
    } catch (error) {
      console.error(error); // an error in one section must not stop the others
    }
  }
  document.documentElement.dataset.renderMs = (performance.now() - began).toFixed(1);
}

function renderNewest() {
  if (newest) render(newest);
}

async function loadHistory() {
  try {
    await history.load();
    renderNewest();
  } catch {
    // Without the history the charts start with the next snapshot.
  }
}

const live = new Live(
  "/api/stream",
  (snapshot) => {
    newest = snapshot;
    learnProgram(snapshot.command);
    canaryFault = watch.look(snapshot);
    history.add(snapshot.at, snapshot.point);
    render(snapshot);
  },
  (state, since) => {
    showConnection(state, since);
    if (state === "live") loadHistory();
    if (state === "lost") keepSession();
  },
);

/** The decoded text; a text with a `%` that cannot be decoded stays as it was typed. @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * The view of an address, and the call that opens it; null for the overview. A device's name may hold any character, a topic's
 * name no question mark.
 * @param {string} hash
 * @returns {{ view: View, open: () => void } | null}
 */
function viewOf(hash) {
  const device = /^#\/device\/(.+)$/s.exec(hash);
  if (device) return { view: "device", open: () => pages.device.open(decoded(device[1])) };
  const topic = /^#\/topic\/([^?]+)\??(.*)$/s.exec(hash);
  if (topic) return { view: "topic", open: () => pages.topic.open(decoded(topic[1]), new URLSearchParams(topic[2])) };
  return hash === "#/topics" ? { view: "topics", open: () => pages.topics.open() } : null;
}

function route() {
  const asked = viewOf(location.hash);
  closePanel();
  overview.hidden = asked !== null;
  for (const view of views) {
    roots[view].hidden = view !== asked?.view;
    if (view !== asked?.view) pages[view].close();
  }
  if (asked === null) return renderNewest();
  asked.open();
  renderNewest();
  scrollTo(0, 0);
  pages[asked.view].title.focus({ preventScroll: true });
}

/** @param {MouseEvent} event */
function anchor(event) {
  const link = event.target instanceof Element ? event.target.closest('a[href^="#"]') : null;
  const to = link?.getAttribute("href");
  if (!to || to.startsWith("#/")) return;
  event.preventDefault(); // a link to a section changes neither the view nor the address
  const target = document.getElementById(to.slice(1));
  const go = () => {
    target?.scrollIntoView();
    target?.focus({ preventScroll: true });
  };
  if (!overview.hidden || !overview.contains(target)) return go();
  addEventListener("hashchange", go, { once: true }); // from another view: first back to the overview
  location.hash = "#/";
}

document.addEventListener("click", anchor);
document.addEventListener("keydown", (event) => event.key === "Escape" && closePanel());
document.addEventListener("visibilitychange", () => document.hidden || renderNewest());
addEventListener("hashchange", () => {
  const given = takeToken();
  if (given) logIn(given).catch(console.warn);
  route();
});
mountLogin();
await enter(token);
mountSearch();
route();
live.start();
