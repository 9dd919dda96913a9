// Puts the page together: which view, what each part shows of a snapshot, and the keys.

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
import { mountTrends } from "./trends.js";

adoptToken();

const watch = new CanaryWatch();
let newest = null;
let canaryFault = null;

const place = (id) => document.querySelector(`#${id} .content`);
const history = new History();
const letters = new Letters(place("letters"));
const overview = document.getElementById("overview");
const deviceRoot = document.getElementById("device");
const devicePage = new DevicePage(deviceRoot, (...asked) => letters.redrive(...asked));
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
  if (document.hidden || overview.hidden) return; // the title and the status line are enough for whoever looks elsewhere
  const began = performance.now();
  for (const update of updates) {
    try {
      update(newest);
    } catch (error) {
      console.error(error); // one broken part must not take the others' figures away
    }
  }
  document.documentElement.dataset.renderMs = (performance.now() - began).toFixed(1);
}

async function loadHistory() {
  try {
    await history.load();
    if (newest) render();
  } catch {
    // The charts then begin with what comes.
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

function route() {
  const found = /^#\/device\/(.+)$/s.exec(location.hash);
  let device = found?.[1] ?? null;
  try {
    device = device && decodeURIComponent(device);
  } catch {
    // Somebody typed a % of his own: then it is part of the name.
  }
  closePanel();
  overview.hidden = device !== null;
  deviceRoot.hidden = device === null;
  if (device === null) {
    devicePage.close();
    if (newest) render();
    return;
  }
  devicePage.open(device);
  scrollTo(0, 0);
  devicePage.title.focus({ preventScroll: true });
}

function anchor(event) {
  const link = event.target.closest?.('a[href^="#"]');
  const to = link?.getAttribute("href");
  if (!to || to.startsWith("#/")) return;
  event.preventDefault(); // a place on the page is no view: the address stays
  const target = document.getElementById(to.slice(1));
  const go = () => {
    target?.scrollIntoView();
    target?.focus({ preventScroll: true });
  };
  if (!overview.hidden || !overview.contains(target)) return go();
  addEventListener("hashchange", go, { once: true }); // from a device's page: first back to where the place is
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
