// The axis of time: whole seconds at least, and words that tell two neighbours apart.

import { clock, instant } from "./format.js";

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;
const LEAST_SECONDS = 60;

/** Seconds between two ticks; none below one, since nothing below is written. */
export const TIME_STEPS = [
  ...[1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
  ...[1, 2, 3, 4, 6, 8, 12].map((n) => n * HOUR),
  ...[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 30, 60, 90, 120, 180, 365, 730, 1825, 3650, 9125, 36_500].map((n) => n * DAY),
];

const twoDigits = (number) => String(number).padStart(2, "0");

/** Years, months or days; the times of day of shorter steps come from `clock`. */
function dateWord(at, step) {
  const date = instant(at);
  if (!date) return "";
  const month = twoDigits(date.getMonth() + 1);
  if (step >= 365 * DAY) return String(date.getFullYear());
  return step >= 28 * DAY ? `${date.getFullYear()}-${month}` : `${month}-${twoDigits(date.getDate())}`;
}

/** Times of day, with seconds where the step has them and the date where they would come again; dates where it is a day or more. */
export function timeWords(marks, step) {
  if (step >= DAY) return marks.map((at) => dateWord(at, step));
  if (step >= HOUR && marks.at(-1) - marks[0] >= DAY) return marks.map((at) => `${dateWord(at, DAY)} ${clock(at).slice(-8, -6)}h`);
  const words = marks.map((at) => clock(at).slice(-8));
  return words.every((word) => word.endsWith(":00")) ? words.map((word) => word.slice(0, 5)) : words;
}

/** What of time is shown: a minute at least, so that a single sample has a place; [from, until] in epoch seconds. */
export function timeRange(first, last) {
  if (typeof first !== "number" || typeof last !== "number") {
    const now = Date.now() / 1000;
    return [now - LEAST_SECONDS, now];
  }
  const room = Math.max(0, LEAST_SECONDS - (last - first)) / 2;
  return [first - room, last + room];
}
