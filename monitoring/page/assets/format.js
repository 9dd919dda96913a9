// Formats figures for display: three significant digits, and a dash for an unknown value. Pure functions.

/** @import { Figure, Moment } from "./types.js" */

const NONE = "–";
/** @type {[number, string][]} */
const STEPS = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];
const GROUPED = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** @param {unknown} value @returns {value is number} */
function isNumber(value) {
  return typeof value === "number" && !Number.isNaN(value);
}

/** Three significant digits without an exponent. @param {number} value @returns {string} */
function digits(value) {
  if (value < 0) return `−${digits(-value)}`;
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return String(Math.round(value));
  if (size >= 10) return value.toFixed(1);
  if (size >= 1) return value.toFixed(2);
  if (size >= 0.001) return String(Number(value.toPrecision(2)));
  return size === 0 ? "0" : "<0.001";
}

/** A count or a rate: in full below 100,000, then as 123 k or 4.56 M. @param {Figure} value */
export function number(value) {
  if (!isNumber(value)) return NONE;
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (Math.abs(value) < 1e3) return digits(value);
  if (Math.abs(value) < 1e5) return GROUPED.format(value).replace("-", "−");
  for (const [step, sign] of STEPS) {
    if (Math.abs(value) >= step * 0.9995) {
      const scaled = value / step;
      return Math.abs(scaled) >= 1e5 ? `${scaled.toExponential(2)} ${sign}` : `${digits(scaled)} ${sign}`;
    }
  }
  return GROUPED.format(value);
}

/** Milliseconds: in ms below a second, in seconds below a minute, else as a duration. @param {Figure} value */
export function millis(value) {
  if (!isNumber(value)) return NONE;
  if (Math.abs(value) < 1000) return `${digits(value)} ms`;
  return Math.abs(value) < 60_000 ? `${digits(value / 1000)} s` : duration(value / 1000);
}

const TOP_BUCKET_MS = 60_000;

/**
 * A percentile of a latency histogram; from the last bucket's bound on, only that bound is known.
 * @param {Figure} value
 */
export function latency(value) {
  return isNumber(value) && value >= TOP_BUCKET_MS ? "> 60 s" : millis(value);
}

/** Seconds in at most two units: 4 s, 3 min 20 s, 5 h 2 min, 12 d 4 h. @param {Figure} seconds @returns {string} */
export function duration(seconds) {
  if (!isNumber(seconds)) return NONE;
  if (!Number.isFinite(seconds)) return "∞";
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds < 10) return `${Math.round(seconds * 10) / 10} s`;
  const whole = Math.round(seconds);
  /** @type {[number, string][]} */
  const units = [
    [86_400, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  if (whole >= 86_400 * 1000) return `${number(Math.round(whole / 86_400))} d`;
  const first = units.findIndex(([size]) => whole >= size);
  const [size, sign] = units[first];
  const next = units[first + 1];
  const rest = next ? Math.floor((whole % size) / next[0]) : 0;
  return `${Math.floor(whole / size)} ${sign}${rest ? ` ${rest} ${next[1]}` : ""}`;
}

/** @param {Figure} value */
export function bytes(value) {
  if (!isNumber(value)) return NONE;
  let scaled = value;
  for (const sign of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (Math.abs(scaled) < 1024) return `${digits(scaled)} ${sign}`;
    scaled /= 1024;
  }
  return `${number(scaled)} PiB`;
}

/**
 * A share in percent; between 99 and 100 it keeps up to three decimals and is never rounded up.
 * @param {Figure} ratio
 */
export function percent(ratio) {
  if (!isNumber(ratio)) return NONE;
  const value = ratio * 100;
  if (value > 99 && value < 100) return `${(Math.floor(value * 1000) / 1000).toFixed(3).replace(/0{1,2}$/, "")} %`;
  return `${digits(Math.round(value * 100) / 100)} %`;
}

/**
 * A share next to its objective: with enough decimals for hundredths of the error budget, never rounded up.
 * @param {Figure} ratio
 * @param {Figure} objective
 */
export function share(ratio, objective) {
  if (!isNumber(ratio)) return NONE;
  const budget = isNumber(objective) && objective < 1 ? 1 - objective : 0.01;
  const decimals = Math.min(6, Math.max(1, Math.ceil(-Math.log10(budget * 100) - 1e-9) + 2));
  const scale = 10 ** decimals;
  return `${Number((Math.floor(ratio * 100 * scale + 1e-6) / scale).toFixed(decimals))} %`;
}

/** The rest of an error budget; for an overspent budget, how many times it was spent. @param {Figure} left */
export function budgetLeft(left) {
  if (!isNumber(left)) return NONE;
  if (left > 0) return percent(left);
  const times = 1 - left < 10 ? Math.round((1 - left) * 10) / 10 : Math.round(1 - left);
  return left > -0.05 ? "none left" : `none left (spent ${times < 10 ? times : number(times)} times)`;
}

/** A reading with six significant digits: a pressure of 1018.3 must not become 1,018. @param {Figure} value */
export function reading(value) {
  if (!isNumber(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1e9 || (size > 0 && size < 1e-4)) return value.toPrecision(4).replace("-", "−");
  return String(Number(value.toPrecision(6))).replace("-", "−");
}

/**
 * Tick labels of an axis, with enough decimals to distinguish neighbours.
 * @param {number[]} values
 * @param {number} step
 */
export function ticks(values, step) {
  let decimals = 0;
  while (decimals < 8 && Math.abs(step * 10 ** decimals - Math.round(step * 10 ** decimals)) > 1e-6) decimals += 1;
  return values.map((value) => (Math.abs(value) >= 1e5 ? number(value) : value.toFixed(decimals).replace("-", "−")));
}

/** @type {Record<string, (value: Figure) => string>} */
const FORMATS = { ms: millis, s: duration, seconds: duration, bytes, B: bytes, ratio: percent, "": number };

/** A figure with its unit, as the boxes of the flow show it. @param {Figure} value @param {string} unit */
export function figure(value, unit) {
  if (Object.hasOwn(FORMATS, unit)) return FORMATS[unit](value);
  return isNumber(value) ? `${number(value)} ${unit}` : NONE;
}

/** Epoch seconds or an ISO text as a Date; null for anything else. @param {Moment} at */
export function instant(at) {
  const date = isNumber(at) ? new Date(at * 1000) : typeof at === "string" ? new Date(at) : null;
  return date && !Number.isNaN(date.getTime()) ? date : null;
}

/** The date in the browser's zone. @param {Moment} at */
export function day(at) {
  const date = instant(at);
  if (!date) return NONE;
  return [date.getFullYear(), date.getMonth() + 1, date.getDate()].map((n) => String(n).padStart(2, "0")).join("-");
}

/** The time of day in the browser's zone, with the date unless it is today. @param {Moment} at */
export function clock(at) {
  const date = instant(at);
  if (!date) return NONE;
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
  if (date.toDateString() === new Date().toDateString()) return time;
  return `${day(at)} ${time}`;
}

/** The instant in UTC, for tooltips. @param {Moment} at */
export function utc(at) {
  return instant(at)?.toISOString() ?? "";
}
