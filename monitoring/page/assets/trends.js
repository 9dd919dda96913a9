// Throughput, dead letters and lag, now and over the last half hour.

import { TimeChart } from "./chart.js";
import { el } from "./dom.js";
import { number } from "./format.js";
import { showFigure } from "./table.js";

/** @import { History } from "./history.js" */
/** @import { Figure, Rates, Update } from "./types.js" */

/** @type {Record<keyof Rates, string>} */
const RATES = {
  received: "messages received",
  accepted: "accepted",
  readings: "readings produced",
  acknowledged: "acknowledged",
  dead_lettered: "dead letters",
  ignored: "ignored by rule",
  rows: "rows written",
};
const perSecond = (/** @type {Figure} */ value) => (number(value) === "–" ? "–" : `${number(value)} /s`);

/** @param {Element} root @param {History} history @returns {Update} */
export function mountTrends(root, history) {
  const names = /** @type {(keyof Rates)[]} */ (Object.keys(RATES));
  const values = names.map((name) => el("dd", { "data-rate": name }));
  const rates = el(
    "dl",
    { class: "strip" },
    names.map((name, index) => el("div", {}, el("dt", {}, RATES[name]), values[index])),
  );
  const flow = new TimeChart({
    label: "Readings in, rows out",
    format: perSecond,
    series: [
      { label: "readings produced", color: "--series-1" },
      { label: "rows written", color: "--series-4", dash: [8, 4] },
    ],
  });
  const refused = new TimeChart({
    label: "Dead letters",
    format: perSecond,
    height: 130,
    series: [{ label: "dead letters", color: "--series-2" }],
  });
  const lag = new TimeChart({
    label: "Lag",
    format: number,
    height: 130,
    series: [{ label: "unread records", color: "--series-3" }],
  });
  root.append(
    rates,
    el("p", { class: "muted small" }, "Rates: last 10 s. Plots: last half hour."),
    flow.node,
    el("div", { class: "pair" }, refused.node, lag.node),
  );
  return (snapshot) => {
    names.forEach((name, index) => showFigure(values[index], snapshot.rates?.[name], perSecond));
    flow.show(history.at, history.columns("readings", "rows"));
    refused.show(history.at, history.columns("dead_lettered"));
    lag.show(history.at, history.columns("lag"));
  };
}
