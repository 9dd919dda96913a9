// A Kafka record as text: exact, indented if it is JSON, with labels for known fields. Pure functions.

import { clock, instant, number } from "./format.js";
import { visible } from "./name.js";

/** @import { KafkaRecord, Piece } from "./types.js" */
/** @typedef {Record<string, any>} RecordValue The JSON object of a record: anything may be in it. */

const PREVIEW = 240;
const SHOWN = 12;
/** Deeper JSON is not indented: its margins would be longer than its text. */
const DEEPEST = 40;
const LARGEST_PARSED = 64 * 1024;

/**
 * The value as a JSON object; null if it is something else, cut or too large.
 * @param {KafkaRecord} record
 * @returns {RecordValue | null}
 */
export function parsed(record) {
  const text = record.value?.text;
  if (typeof text !== "string" || record.value?.cut || text.length > LARGEST_PARSED) return null;
  try {
    const found = JSON.parse(text);
    return found !== null && typeof found === "object" && !Array.isArray(found) ? found : null;
  } catch {
    return null;
  }
}

/** The device that a record names; null without one. @param {KafkaRecord} record */
export function deviceOf(record) {
  const device = parsed(record)?.device;
  return typeof device === "string" && device ? device : null;
}

/** A piece of a record, cut to one short text. @param {Piece | null | undefined} piece */
export function preview(piece) {
  if (piece === null || piece === undefined) return "null";
  const text = piece.text ?? `base64 ${piece.base64}`;
  return text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text;
}

/**
 * JSON with line breaks; its tokens stay as they are, since a parser would round large numbers.
 * @param {string} text
 */
function indented(text) {
  let depth = 0;
  let found = "";
  const line = (/** @type {number} */ change) => `\n${"  ".repeat((depth += change))}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/gs)) {
    if (depth > DEEPEST) return text;
    if (token === "{" || token === "[") found += token + line(1);
    else if (token === "}" || token === "]") found = `${found.trimEnd()}${/[[{]$/.test(found.trimEnd()) ? ((depth -= 1), "") : line(-1)}${token}`;
    else if (token === ",") found += token + line(0);
    else found += token === ":" ? ": " : token;
  }
  return found;
}

/**
 * A record in one line: its readings, the rejection of a dead letter, or else the value itself.
 * @param {KafkaRecord} record
 */
export function gist(record) {
  const value = parsed(record);
  if (Array.isArray(value?.readings) && value.readings.length) return told(value.readings);
  if (typeof value?.reason === "string") return ["reason", "path", "got"].map((name) => value[name] ?? "").join(" ").trim();
  return preview(record.value);
}

/** A piece as lines: JSON is indented, hidden characters are written out. @param {Piece | null | undefined} piece */
export function lines(piece) {
  if (piece === null || piece === undefined) return "null: this record deletes its key";
  if (typeof piece.text !== "string") return piece.base64 ?? "";
  let text = piece.text;
  try {
    JSON.parse(text);
    text = indented(text);
  } catch {
    // Not JSON, or cut: unchanged.
  }
  return text.split("\n").map(visible).join("\n");
}

/** A Kafka time in milliseconds, with the date unless it is today. @param {number | null | undefined} ms */
export function moment(ms) {
  if (typeof ms !== "number" || !instant(ms / 1000)) return "–";
  return `${clock(ms / 1000)}.${String(Math.floor(ms) % 1000).padStart(3, "0")}`;
}

/** A time in microseconds from a record's value, with all its digits. @param {number} us */
function micros(us) {
  if (!instant(us / 1e6)) return "–";
  return `${clock(us / 1e6)}.${String(us % 1_000_000).padStart(6, "0")}`;
}

/** @param {RecordValue | null} one */
function readingText(one) {
  const value = one?.text ?? one?.value;
  return `${one?.metric ?? "?"} ${value ?? "–"}${one?.unit ? ` ${one.unit}` : ""}`.slice(0, PREVIEW);
}

/** @param {RecordValue[]} readings */
function told(readings) {
  const texts = readings.slice(0, SHOWN).map(readingText);
  return (readings.length > SHOWN ? [...texts, "…"] : texts).join(" · ");
}

/** [label, text] of the known fields in Tidegate's own records. @param {RecordValue | null} value */
export function envelope(value) {
  if (value === null) return [];
  /** @type {[string, string][]} */
  const found = [];
  const put = (/** @type {string} */ name, /** @type {unknown} */ text) =>
    text !== null && text !== undefined && text !== "" && found.push([name, String(text)]);
  if (typeof value.received_us === "number") put("Received by gateway", micros(value.received_us));
  put("MQTT topic", value.topic);
  put("Rejection reason", value.reason);
  for (const name of ["path", "got", "wanted"]) put(`Rejection: ${name}`, value[name]);
  if (Array.isArray(value.readings) && value.readings.length)
    put(`Readings (${number(value.readings.length)})`, told(value.readings));
  if (typeof value.payload_bytes === "number") put("Payload", `${number(value.payload_bytes)} bytes, in the field payload_base64`);
  if (value.gateway !== undefined && value.number !== undefined)
    put("Message", `number ${value.number} of gateway ${value.gateway}, epoch ${value.epoch}`);
  if (value.first !== undefined && value.upto !== undefined && value.gateway !== undefined)
    put("Outcomes of messages", `${value.first} to ${value.upto} of gateway ${value.gateway}, epoch ${value.epoch}`);
  if (value.boot !== undefined && value.seq !== undefined) put("Sequence", `boot ${value.boot}, number ${value.seq}`);
  put("Message id", value.message_id);
  put("Trace (W3C)", value.trace);
  return found;
}
