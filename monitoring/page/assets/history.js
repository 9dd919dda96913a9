// Data of the charts: the last half hour from the monitor, continued with each snapshot.

import { ask } from "./api.js";

const SECONDS = 1800;

export class History {
  /** @type {number[]} */
  at = [];
  /** @type {Record<string, (number | null)[]>} */
  series = {};

  /** Replaces the page's history by the monitor's; newer snapshots of the page are kept. */
  async load() {
    /** @type {{ at: number[], series: Record<string, (number | null)[]> }} */
    const { at, series } = await ask("/api/history");
    const newest = at.at(-1) ?? 0;
    const first = this.at.findIndex((moment) => moment > newest);
    const own = first < 0 ? this.at.length : first;
    for (const name of new Set([...Object.keys(series), ...Object.keys(this.series)])) {
      const before = series[name] ?? at.map(() => null);
      this.series[name] = [...before, ...(this.series[name]?.slice(own) ?? this.at.slice(own).map(() => null))];
    }
    this.at = [...at, ...this.at.slice(own)];
  }

  /**
   * Adds a point. A pause becomes a gap in the lines, not a straight line across it.
   * @param {number} at
   * @param {Record<string, number | null> | undefined} point
   */
  add(at, point) {
    const last = this.at.at(-1);
    if (last !== undefined && at <= last) return;
    const [before, newest] = this.at.slice(-2);
    const step = this.at.length > 2 ? newest - before : 2;
    if (last !== undefined && at - last > Math.max(10, 4 * step)) this.#push(last + 1, {});
    this.#push(at, point ?? {});
    let old = 0;
    while (this.at[old] < at - SECONDS) old += 1;
    if (old) {
      this.at.splice(0, old);
      for (const values of Object.values(this.series)) values.splice(0, old);
    }
  }

  /** @param {number} at @param {Record<string, number | null>} point */
  #push(at, point) {
    for (const name of Object.keys(point)) this.series[name] ??= this.at.map(() => null);
    this.at.push(at);
    for (const [name, values] of Object.entries(this.series)) values.push(point[name] ?? null);
  }

  /** The series of these names as columns. @param {string[]} names */
  columns(...names) {
    return names.map((name) => this.series[name] ?? this.at.map(() => null));
  }
}
