// Latency of readings: end to end, per hop as a waterfall, and over time.

import { TimeChart } from "./chart.js";
import { attr, el, keyed, write } from "./dom.js";
import { latency, millis } from "./format.js";
import { showFigure } from "./table.js";

/** @import { CanaryFault } from "./canary.js" */
/** @import { History } from "./history.js" */
/** @import { Hop, Quantiles, Update } from "./types.js" */
/** @typedef {Hop & { from: number, end: number }} PlacedHop `from` and `end` in milliseconds. */

/** @type {Record<string, string>} */
const HOPS = {
  device_to_gateway: "device → gateway",
  gateway_to_kafka: "gateway → Kafka",
  kafka_to_read: "Kafka → Spark read",
  read_to_commit: "read → commit",
  commit_to_queryable: "commit → queryable",
};
/** @type {(keyof Quantiles)[]} */
const QUANTILES = ["p50", "p95", "p99"];

/** @param {string} label @param {string} note */
function figures(label, note) {
  const values = QUANTILES.map(() => el("dd"));
  const node = el(
    "div",
    { class: "quantiles" },
    el("p", { class: "quantiles-label" }, label, el("span", { class: "muted" }, ` ${note}`)),
    el(
      "dl",
      {},
      QUANTILES.map((name, index) => el("div", {}, el("dt", {}, name), values[index])),
    ),
  );
  return {
    node,
    update: (/** @type {Quantiles | undefined} */ found) =>
      QUANTILES.forEach((name, index) => showFigure(values[index], found?.[name], latency)),
  };
}

/**
 * Each hop starts after the medians of the hops before it; its bar reaches to p50, in paler colours to p95 and p99.
 * @param {Hop[]} hops
 * @returns {PlacedHop[]}
 */
function placed(hops) {
  let start = 0;
  const found = hops.map((hop) => {
    const from = start;
    start += hop.p50 ?? 0;
    return { ...hop, from };
  });
  const end = Math.max(1e-9, ...found.map((hop) => hop.from + (hop.p99 ?? hop.p95 ?? hop.p50 ?? 0)));
  return found.map((hop) => ({ ...hop, end }));
}

function makeHop() {
  // Explicit roles, since a phone lays the rows out as a grid.
  const name = el("th", { scope: "row", role: "rowheader" });
  const bars = QUANTILES.toReversed().map((quantile) => ({ quantile, bar: el("span", { class: `fall fall-${quantile}` }) }));
  const track = el(
    "td",
    { class: "fall-track", "aria-hidden": "true" },
    el(
      "div",
      {},
      bars.map(({ bar }) => bar),
    ),
  );
  const cells = QUANTILES.map(() => el("td", { class: "figure", role: "cell" }));
  const node = el("tr", { role: "row" }, name, track, cells);
  return {
    node,
    update: (/** @type {PlacedHop} */ hop) => {
      attr(node, "data-hop", hop.hop);
      write(name, HOPS[hop.hop] ?? hop.hop);
      for (const { quantile, bar } of bars) {
        bar.hidden = typeof hop[quantile] !== "number";
        bar.style.left = `${(100 * hop.from) / hop.end}%`;
        bar.style.width = `${(100 * Math.max(0, hop[quantile] ?? 0)) / hop.end}%`;
      }
      QUANTILES.forEach((quantile, index) => showFigure(cells[index], hop[quantile], latency));
    },
  };
}

/** @param {Element} root @param {History} history @param {() => CanaryFault | null} watch @returns {Update} */
export function mountLatency(root, history, watch) {
  const canary = figures("Canary", "publish → queryable, last 2 min");
  const all = figures("All readings", "received → committed, last 2 min");
  const body = el("tbody", { role: "rowgroup" });
  const table = el(
    "table",
    { class: "falls", role: "table" },
    el("caption", { class: "hidden" }, "Latency per hop"),
    el(
      "thead",
      { role: "rowgroup" },
      el(
        "tr",
        { role: "row" },
        el("th", { scope: "col", role: "columnheader" }, "Hop"),
        el("td", { class: "fall-track", "aria-hidden": "true" }),
        QUANTILES.map((name) => el("th", { scope: "col", class: "figure", role: "columnheader" }, name)),
      ),
    ),
    body,
  );
  const missing = el("p", { class: "note bad", role: "note", hidden: true });
  const skew = el("p", { class: "note", role: "note" });
  const chart = new TimeChart({
    label: "Canary, end to end",
    format: latency,
    series: [
      { label: "p50", color: "--series-1" },
      { label: "p95", color: "--series-2", dash: [8, 4] },
      { label: "p99", color: "--series-3", dash: [2, 3] },
    ],
  });
  root.append(
    missing,
    el("div", { class: "pair" }, canary.node, all.node),
    table,
    el(
      "p",
      { class: "muted small" },
      "Each hop starts after the medians of the hops before it. Percentiles of hops do not add up to the total.",
    ),
    skew,
    chart.node,
  );
  return (snapshot) => {
    const fault = watch();
    const lost = fault !== null && fault.waits !== null;
    missing.hidden = !lost;
    if (lost)
      write(
        missing,
        `The canary is missing: its oldest reading has waited ${fault.waits}. Its percentiles include only readings that came back.`,
      );
    for (const node of [canary.node, table]) attr(node, "data-old", lost);
    canary.update(snapshot.latency_ms);
    all.update(snapshot.readings_latency_ms);
    keyed(body, placed(snapshot.hops ?? []), (hop) => hop.hop, makeHop);
    const skewed = Object.entries(snapshot.clock_skew_ms ?? {});
    skew.hidden = skewed.length === 0;
    write(
      skew,
      `Clocks differ: ${skewed.map(([hop, ms]) => `${HOPS[hop] ?? hop} by up to ${millis(ms)}`).join("; ")}. These hops count as 0.`,
    );
    chart.show(history.at, history.columns("latency_p50", "latency_p95", "latency_p99"));
  };
}
