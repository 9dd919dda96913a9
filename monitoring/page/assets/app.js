// Entry point of the page: mounts its sections, updates them with each snapshot and switches between views.

import { mountAlerts } from "./alerts.js";
import { CanaryWatch } from "./canary.js";
import { DevicePage } from "./device.js";
import { mountDevices } from "./devices.js";
import { mountErrors } from "./errors.js";
import { mountFlow } from "./flow.js";
import { mountAudit, mountCanary, mountHost } from "./health.js";
import { History } from "./history.js";
import { mountKafka } from "./kafka.js";
import { mountLatency } from "./latency.js";
import { Letters } from "./letters.js";
import { Live } from "./live.js";
import { closePanel } from "./panel.js";
import { learnProgram } from "./program.js";
import { mountSearch } from "./search.js";
import { mountObjectives } from "./slo.js";
import { showConnection, showStatus } from "./status.js";
import { mountTables } from "./tables.js";
import { adoptToken } from "./token.js";
import { TopicPage } from "./topic.js";
import { TopicsPage } from "./topics.js";
import { mountTrends } from "./trends.js";

adoptToken();

const watch = new CanaryWatch();
let newest = null;
let canaryFault = null;

const place = (id) => document.querySelector(`#${id} .content`);
const history = new History();
const letters = new Letters(place("letters"));
const overview = document.getElementById("overview");
const roots = Object.fromEntries(["device", "topic", "topics"].map((name) => [name, document.getElementById(name)]));
const pages = {
  device: new DevicePage(roots.device, (...asked) => letters.redrive(...asked)),
  topic: new TopicPage(roots.topic),
  topics: new TopicsPage(roots.topics),
};
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

function render() {
  showStatus(newest);
  pages.topic.update(newest);
  if (document.hidden || overview.hidden) return; // a hidden page or another view needs only the title and the status line
  const began = performance.now();
  for (const update of updates) {
    try {
      update(newest);
    } catch (error) {
      console.error(error); // an error in one section must not stop the others
    }
  }
  document.documentElement.dataset.renderMs = (performance.now() - began).toFixed(1);
}

async function loadHistory() {
  try {
    await history.load();
    if (newest) render();
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
    render();
  },
  (state, since) => {
    showConnection(state, since);
    if (state === "live") loadHistory();
  },
);

/** The decoded text; a text with a `%` that cannot be decoded stays as it was typed. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The view and the name in an address. A device's name may hold any character, a topic's name no question mark. */
function viewOf(hash) {
  const device = /^#\/device\/(.+)$/s.exec(hash);
  if (device) return { view: "device", name: decoded(device[1]) };
  const topic = /^#\/topic\/([^?]+)\??(.*)$/s.exec(hash);
  if (topic) return { view: "topic", name: decoded(topic[1]), asked: new URLSearchParams(topic[2]) };
  return { view: hash === "#/topics" ? "topics" : null };
}

function route() {
  const { view, name, asked } = viewOf(location.hash);
  closePanel();
  overview.hidden = view !== null;
  for (const [each, root] of Object.entries(roots)) {
    root.hidden = each !== view;
    if (each !== view) pages[each].close();
  }
  if (view === null) {
    if (newest) render();
    return;
  }
  pages[view].open(name, asked);
  if (newest) render();
  scrollTo(0, 0);
  pages[view].title.focus({ preventScroll: true });
}

function anchor(event) {
  const link = event.target.closest?.('a[href^="#"]');
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
document.addEventListener("visibilitychange", () => newest && !document.hidden && render());
addEventListener("hashchange", () => {
  adoptToken();
  route();
});
mountSearch();
route();
live.start();
