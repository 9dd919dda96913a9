// A time chart drawn by uPlot. Its own legend shows the newest values, or those under the pointer.

import { attr, el, write } from "./dom.js";
import { clock, number, ticks } from "./format.js";
import { isOnOff, marked } from "./samples.js";
import { TIME_STEPS, timeRange, timeWords } from "./time_axis.js";

/** @import { Figure } from "./types.js" */
/** @typedef {(value: Figure) => string} Format */
/** @typedef {{ label: string, color: string, dash?: number[], format?: Format }} Line `color` is a CSS variable. */
/** @typedef {uPlot} Plot */

const { uPlot } = window;
const HEIGHT = 170;

/** @param {string} name */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Possible steps between two ticks of a value axis; an on/off chart uses 1 instead. */
const NUMBER_STEPS = Array.from({ length: 40 }, (_, place) => [1, 2, 2.5, 5].map((n) => n * 10 ** (place - 16))).flat();
const { linear, stepped } = /** @type {Required<uPlot.Series.PathBuilderFactories>} */ (uPlot.paths);
const [LINE, STEPS] = [linear(), stepped({ align: 1 })];

/** @type {(extra: uPlot.Axis) => uPlot.Axis} */
const axis = (extra) => ({
  stroke: () => colour("--muted"),
  grid: { stroke: () => colour("--line"), width: 1 },
  ticks: { show: false },
  font: '11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif',
  ...extra,
});

/**
 * A chart. `show(at, columns)` draws new data: `at` holds epoch seconds, and a null value is a gap. With `format` null the axis
 * shows as many decimals as its ticks need. The legend is the chart's text.
 */
export class TimeChart {
  /** @type {Plot | null} */
  #plot = null;
  /** @type {[number[], ...(number | null)[][]]} */
  #data = [[]];
  #hovered = false;
  #empty = true;
  /** True where every value is 0 or 1: the lines are then drawn as steps. */
  #onOff = false;
  #width = new ResizeObserver(() => this.#resize());
  #repaint = () => this.#plot?.redraw(false);

  /**
   * @param {object} options
   * @param {string} options.label
   * @param {Line[]} options.series
   * @param {Format | null} [options.format]
   * @param {number} [options.height]
   * @param {string} [options.sync] Charts with the same name share the pointer.
   * @param {boolean} [options.fromZero]
   */
  constructor({ label, series, format = number, height = HEIGHT, sync = "tidegate", fromZero = true }) {
    this.series = series;
    this.format = format;
    this.height = height;
    this.sync = sync;
    this.fromZero = fromZero;
    this.canvas = el("div", { class: "plot", role: "img", "aria-label": label });
    this.when = el("span", { class: "muted legend-at" });
    this.values = series.map(() => el("output", { class: "legend-value" }));
    const keys = series.map(({ label: name, color, dash }, index) =>
      el(
        "li",
        {},
        el("span", {
          class: `swatch ${color.slice(2)}${dash ? (dash[0] > 4 ? " dashed" : " dotted") : ""}`,
          "aria-hidden": "true",
        }),
        name,
        " ",
        this.values[index],
      ),
    );
    this.node = el(
      "figure",
      { class: "chart" },
      el("figcaption", {}, el("span", { class: "chart-title" }, label), el("ul", { class: "legend" }, keys), this.when),
      this.canvas,
    );
    this.#width.observe(this.canvas);
    document.addEventListener("themechange", this.#repaint);
  }

  /** Releases the plot and its listeners; the chart cannot be shown again. */
  close() {
    this.#width.disconnect();
    document.removeEventListener("themechange", this.#repaint);
    this.#plot?.destroy();
    this.#plot = null;
  }

  /** @param {number[]} at @param {(number | null)[][]} columns */
  show(at, columns) {
    this.#data = [at, ...columns];
    this.#onOff = !this.fromZero && columns.every(isOnOff);
    this.#empty = !columns.some((values) => values.some((value) => value !== null));
    if (this.#plot) this.#plot.setData(this.#data);
    else this.#resize();
    this.#legend();
  }

  #resize() {
    const width = Math.floor(this.canvas.clientWidth);
    if (!width || this.#data.length < 2) return;
    if (!this.#plot) this.#plot = new uPlot(this.#options(width), this.#data, this.canvas);
    else if (this.#plot.width !== width) this.#plot.setSize({ width, height: this.height });
  }

  /** @param {number} width @returns {uPlot.Options} */
  #options(width) {
    return {
      width,
      height: this.height,
      legend: { show: false },
      padding: [8, 32, 0, 0], // room for half of the last tick's label
      cursor: { drag: { x: false, y: false }, sync: { key: this.sync }, points: { size: 6 } },
      scales: { x: { range: () => timeRange(this.#data[0][0], this.#data[0].at(-1)) }, y: { range: (_, low, high) => this.#range(low, high) } },
      axes: [
        axis({ values: (_, marks, __, ___, step) => timeWords(marks, step), incrs: TIME_STEPS, space: 70, size: 26 }),
        axis({ size: 62, incrs: () => (this.#onOff ? [1] : NUMBER_STEPS), values: (_, marks, __, ___, step) => this.#marks(marks, step) }),
      ],
      series: [
        {},
        ...this.series.map(({ label, color, dash }) => /** @type {uPlot.Series} */ ({
          label,
          dash,
          width: 1.6,
          stroke: () => colour(color),
          paths: (plot, index, ...range) => (this.#onOff ? STEPS : LINE)(plot, index, ...range),
          points: { show: false, size: 5, fill: () => colour(color), filter: (plot, index) => marked(plot.data[index]) },
          spanGaps: false,
        })),
      ],
      hooks: { setCursor: [(plot) => this.#hover(plot)] },
    };
  }

  /** @param {number[]} marks @param {number} step */
  #marks(marks, step) {
    if (this.#empty) return marks.map(() => "");
    const { format } = this;
    return format === null ? ticks(marks, step) : marks.map((mark) => format(mark));
  }

  /** @param {number | null} low @param {number | null} high @returns {[number, number]} */
  #range(low, high) {
    if (high === null || low === null) return [0, 1];
    if (this.#onOff) return [-0.1, 1.1];
    if (this.fromZero) return [Math.min(0, low), Math.max(high, 0) * 1.08 || 1];
    const room = (high - low) * 0.08 || Math.abs(high) * 0.05 || 1;
    return [low - room, high + room];
  }

  /** @param {Plot} plot */
  #hover(plot) {
    const was = this.#hovered;
    this.#hovered = typeof plot.cursor.idx === "number" && (plot.cursor.left ?? -1) >= 0;
    if (was || this.#hovered) this.#legend();
  }

  #legend() {
    const [at] = this.#data;
    const index = this.#hovered ? (this.#plot?.cursor.idx ?? -1) : at.length - 1;
    this.values.forEach((node, position) => {
      const value = this.#data[position + 1]?.[index];
      write(node, (this.series[position].format ?? this.format ?? number)(value));
      attr(node, "data-value", value ?? "");
    });
    write(this.when, this.#hovered ? clock(at[index]) : this.#empty ? "no data yet" : "");
  }
}
