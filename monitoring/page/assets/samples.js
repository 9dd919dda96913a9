// Readings as a plot needs them: sorted, with gaps, and with markers where no line would show them. Pure functions.

import { instant } from "./format.js";

/** @import { Moment } from "./types.js" */
/** @typedef {[number[], (number | null)[]]} Points Epoch seconds and values. */

const LEAST_GAP = 10;
const TOO_LONG = 3;
const FEW = 40;

/**
 * Epoch seconds and values, sorted by time; a value that is not a number becomes a gap.
 * @param {{ at: Moment[], value: unknown[] }} readings
 * @returns {Points}
 */
export function ascending({ at, value }) {
  const points = at.flatMap((moment, index) => {
    const [date, shown] = [instant(moment), value[index]];
    return date ? [{ moment: date.getTime() / 1000, shown: typeof shown === "number" ? shown : null }] : [];
  });
  points.sort((a, b) => a.moment - b.moment);
  return [points.map(({ moment }) => moment), points.map(({ shown }) => shown)];
}

/**
 * The step that nine of ten steps do not exceed: it allows for bursts and jitter, but not for an outage among few readings.
 * @param {number[]} at
 */
function usualStep(at) {
  const steps = at.slice(1).map((moment, index) => moment - at[index]);
  steps.sort((a, b) => a - b);
  return steps[Math.floor((steps.length - 1) * 0.9)] ?? 0;
}

/**
 * Inserts a null where a step is much longer than usual, so that no line is drawn over an outage.
 * @param {Points} points
 * @returns {Points}
 */
export function broken([at, values]) {
  const most = Math.max(LEAST_GAP, TOO_LONG * usualStep(at));
  /** @type {Points} */
  const [moments, numbers] = [[], []];
  at.forEach((moment, index) => {
    if (index && moment - at[index - 1] > most) {
      moments.push((moment + at[index - 1]) / 2);
      numbers.push(null);
    }
    moments.push(moment);
    numbers.push(values[index]);
  });
  return [moments, numbers];
}

/** True if every known value is 0 or 1, and there is one. @param {(number | null)[]} values */
export function isOnOff(values) {
  return values.some((value) => value !== null) && values.every((value) => value === null || value === 0 || value === 1);
}

/**
 * Indices of the readings that need a marker: all if they are few, else those between two gaps.
 * @param {ArrayLike<number | null | undefined>} values
 */
export function marked(values) {
  const there = Array.from(values, (_, index) => index).filter((index) => values[index] !== null && values[index] !== undefined);
  if (there.length <= FEW) return there;
  return there.filter((index) => (values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null);
}
