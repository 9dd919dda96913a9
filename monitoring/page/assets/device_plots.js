// Last readings of a device: numbers as plots, texts as a list with their times.

import { TimeChart } from "./chart.js";
import { el, write } from "./dom.js";
import { clock, number, reading } from "./format.js";
import { showName, visible } from "./name.js";
import { ascending, broken } from "./samples.js";
import { makeTable, showFigure } from "./table.js";

const PLOTS = 12;
const name = (get) => (cell, item) => showName(cell.firstChild ?? cell.appendChild(el("bdi")), get(item));

function textTable() {
  const time = (get) => (cell, item) => showFigure(cell, get(item), clock);
  return makeTable({
    label: "Text readings",
    keyOf: (item) => JSON.stringify([item.metric, item.first_at]),
    cap: 60,
    stack: true,
    columns: [
      { head: "Metric", row: true, show: name((item) => item.metric) },
      { head: "Text", show: (cell, item) => (cell.classList.add("rest"), name(({ text }) => text)(cell, item)) },
      { head: "First", show: time((item) => item.first_at) },
      { head: "Last", show: time((item) => item.last_at) },
      { head: "Count", figure: true, show: (cell, item) => showFigure(cell, item.count, number) },
    ],
  });
}

export class DevicePlots {
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

  show(metrics, texts) {
    for (const metric of metrics.slice(0, PLOTS)) {
      if (!this.#charts.has(metric.metric)) this.#add(metric);
      const [at, values] = broken(ascending(metric));
      this.#charts.get(metric.metric).show(at, [values]);
    }
    this.said.hidden = !texts.length;
    this.texts.update(texts);
    this.plots.hidden = !metrics.length;
    write(this.nothing, metrics.length || texts.length ? "" : "No readings yet.");
    this.nothing.hidden = !this.nothing.textContent;
  }

  #add(metric) {
    const unit = metric.unit ? ` ${visible(metric.unit)}` : "";
    const format = (value) => (typeof value === "number" ? `${reading(value)}${unit}` : "–");
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
  }
}
