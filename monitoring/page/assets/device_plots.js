// Last readings of a device: numbers as plots, texts as a list with their times.

import { TimeChart } from "./chart.js";
import { el, write } from "./dom.js";
import { clock, number, reading } from "./format.js";
import { nameCell, visible } from "./name.js";
import { ascending, broken } from "./samples.js";
import { makeTable, showFigure } from "./table.js";

/** @import { Figure, MetricReadings, TextReadings } from "./types.js" */

const PLOTS = 12;

const showText = nameCell((/** @type {TextReadings} */ item) => item.text);

function textTable() {
  return makeTable({
    label: "Text readings",
    keyOf: (/** @type {TextReadings} */ item) => JSON.stringify([item.metric, item.first_at]),
    cap: 60,
    stack: true,
    columns: [
      { head: "Metric", row: true, show: nameCell((item) => item.metric) },
      { head: "Text", show: (cell, item) => (cell.classList.add("rest"), showText(cell, item)) },
      { head: "First", show: (cell, item) => showFigure(cell, item.first_at, clock) },
      { head: "Last", show: (cell, item) => showFigure(cell, item.last_at, clock) },
      { head: "Count", figure: true, show: (cell, item) => showFigure(cell, item.count, number) },
    ],
  });
}

export class DevicePlots {
  /** @type {Map<string, TimeChart>} */
  #charts = new Map();

  constructor() {
    this.plots = el("div", { class: "pair" });
    this.nothing = el("p", { class: "muted" });
    this.texts = textTable();
    this.said = el("div", { class: "stack", hidden: true }, el("h4", {}, "Text readings"), this.texts.node);
    this.node = el("div", { class: "stack" }, this.plots, this.nothing, this.said);
  }

  /** Removes the plots of the device that was shown. */
  clear() {
    for (const chart of this.#charts.values()) chart.close();
    this.#charts.clear();
    this.plots.replaceChildren();
    this.said.hidden = true;
  }

  /** @param {MetricReadings[]} metrics @param {TextReadings[]} texts */
  show(metrics, texts) {
    for (const metric of metrics.slice(0, PLOTS)) {
      const [at, values] = broken(ascending(metric));
      (this.#charts.get(metric.metric) ?? this.#add(metric)).show(at, [values]);
    }
    this.said.hidden = !texts.length;
    this.texts.update(texts);
    this.plots.hidden = !metrics.length;
    write(this.nothing, metrics.length || texts.length ? "" : "No readings yet.");
    this.nothing.hidden = !this.nothing.textContent;
  }

  /** @param {MetricReadings} metric */
  #add(metric) {
    const unit = metric.unit ? ` ${visible(metric.unit)}` : "";
    const format = (/** @type {Figure} */ value) => (typeof value === "number" ? `${reading(value)}${unit}` : "–");
    const chart = new TimeChart({
      label: visible(metric.metric),
      height: 140,
      sync: "device",
      format: null,
      series: [{ label: "last", color: "--series-1", format }],
      fromZero: false,
    });
    this.#charts.set(metric.metric, chart);
    this.plots.append(chart.node);
    return chart;
  }
}
