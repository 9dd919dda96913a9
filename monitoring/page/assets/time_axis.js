// The time axis: steps of at least one second, and distinct tick labels.

import { clock, instant } from "./format.js";

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;
const LEAST_SECONDS = 60;

/** Possible seconds between two ticks; none below one, since labels show no fractions. */
export const TIME_STEPS = [
  ...[1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
  ...[1, 2, 3, 4, 6, 8, 12].map((n) => n * HOUR),
  ...[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 30, 60, 90, 120, 180, 365, 730, 1825, 3650, 9125, 36_500].map((n) => n * DAY),
];

const twoDigits = (/** @type {number} */ number) => String(number).padStart(2, "0");

/**
 * A year, month or day, by the step; for shorter steps `clock` gives the time of day.
 * @param {number} at
 * @param {number} step
 */
function dateWord(at, step) {
  const date = instant(at);
  if (!date) return "";
  const month = twoDigits(date.getMonth() + 1);
  if (step >= 365 * DAY) return String(date.getFullYear());
  return step >= 28 * DAY ? `${date.getFullYear()}-${month}` : `${month}-${twoDigits(date.getDate())}`;
}

/**
 * Tick labels: dates for steps of a day or more, else times of day, with the date if they would repeat and seconds if needed.
 * @param {number[]} marks
 * @param {number} step
 */
export function timeWords(marks, step) {
  if (step >= DAY) return marks.map((at) => dateWord(at, step));
  if (step >= HOUR && marks[marks.length - 1] - marks[0] >= DAY) return marks.map((at) => `${dateWord(at, DAY)} ${clock(at).slice(-8, -6)}h`);
  const words = marks.map((at) => clock(at).slice(-8));
  return words.every((word) => word.endsWith(":00")) ? words.map((word) => word.slice(0, 5)) : words;
}

/**
 * The shown range as [from, until] in epoch seconds: at least a minute, so that a single reading has a place.
 * @param {number | null | undefined} first
 * @param {number | null | undefined} last
 * @returns {[number, number]}
 */
export function timeRange(first, last) {
  if (typeof first !== "number" || typeof last !== "number") {
    const now = Date.now() / 1000;
    return [now - LEAST_SECONDS, now];
  }
  const room = Math.max(0, LEAST_SECONDS - (last - first)) / 2;
  return [first - room, last + room];
}
