// Throughput, dead letters and lag, now and over the last half hour.

import { TimeChart } from "./chart.js";
import { el } from "./dom.js";
import { number } from "./format.js";
import { showFigure } from "./table.js";

const RATES = {
  received: "messages received",
  accepted: "accepted",
  readings: "readings produced",
  acknowledged: "acknowledged",
  dead_lettered: "dead letters",
  ignored: "ignored by rule",
  rows: "rows written",
};
const perSecond = (value) => (number(value) === "–" ? "–" : `${number(value)} /s`);

export function mountTrends(root, history) {
  const values = Object.fromEntries(Object.keys(RATES).map((name) => [name, el("dd", { "data-rate": name })]));
  const rates = el(
    "dl",
    { class: "strip" },
    Object.entries(RATES).map(([name, label]) => el("div", {}, el("dt", {}, label), values[name])),
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
    for (const [name, node] of Object.entries(values)) showFigure(node, snapshot.rates?.[name], perSecond);
    flow.show(history.at, history.columns("readings", "rows"));
    refused.show(history.at, history.columns("dead_lettered"));
    lag.show(history.at, history.columns("lag"));
  };
}
