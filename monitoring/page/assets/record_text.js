// What a Kafka record says, as text: to the letter, indented where it is JSON, and its known fields told. Pure.

import { clock, instant, number } from "./format.js";
import { visible } from "./name.js";

const PREVIEW = 240;
const SHOWN = 12;
/** What lies deeper is not indented: its margins would be longer than its text. */
const DEEPEST = 40;
const LARGEST_PARSED = 64 * 1024;

/** The value as data where it is a JSON object; null where it is not, or not whole. */
export function parsed(record) {
  const text = record.value?.text;
  if (typeof text !== "string" || record.value.cut || text.length > LARGEST_PARSED) return null;
  try {
    const found = JSON.parse(text);
    return found !== null && typeof found === "object" && !Array.isArray(found) ? found : null;
  } catch {
    return null;
  }
}

/** The device that a record is about; null where it names none. */
export function deviceOf(record) {
  const device = parsed(record)?.device;
  return typeof device === "string" && device ? device : null;
}

/** One line of a piece of a record. */
export function preview(piece) {
  if (piece === null || piece === undefined) return "null";
  const text = piece.text ?? `base64 ${piece.base64}`;
  return text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text;
}

/** JSON with line breaks; its tokens stay as they were written, since a parser would round large numbers. */
function indented(text) {
  let depth = 0;
  let found = "";
  const line = (change) => `\n${"  ".repeat((depth += change))}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/gs)) {
    if (depth > DEEPEST) return text;
    if (token === "{" || token === "[") found += token + line(1);
    else if (token === "}" || token === "]") found = `${found.trimEnd()}${/[[{]$/.test(found.trimEnd()) ? ((depth -= 1), "") : line(-1)}${token}`;
    else if (token === ",") found += token + line(0);
    else found += token === ":" ? ": " : token;
  }
  return found;
}

/** What a record says in one line: the readings of a reading's record, why a dead letter was refused, else the value itself. */
export function gist(record) {
  const value = parsed(record);
  if (Array.isArray(value?.readings) && value.readings.length) return told(value.readings);
  if (typeof value?.reason === "string") return ["reason", "path", "got"].map((name) => value[name] ?? "").join(" ").trim();
  return preview(record.value);
}

/** A piece as lines: JSON indented, what cannot be seen written out. */
export function lines(piece) {
  if (piece === null || piece === undefined) return "null: this record deletes its key";
  if (typeof piece.text !== "string") return piece.base64 ?? "";
  let text = piece.text;
  try {
    JSON.parse(text);
    text = indented(text);
  } catch {
    // No JSON, or cut: as it is.
  }
  return text.split("\n").map(visible).join("\n");
}

/** Milliseconds of Kafka with its day where it is not today. */
export function moment(ms) {
  if (typeof ms !== "number" || !instant(ms / 1000)) return "–";
  return `${clock(ms / 1000)}.${String(Math.floor(ms) % 1000).padStart(3, "0")}`;
}

/** Microseconds of an envelope, to the letter of what they hold. */
function micros(us) {
  if (typeof us !== "number" || !instant(us / 1e6)) return "–";
  return `${clock(us / 1e6)}.${String(us % 1_000_000).padStart(6, "0")}`;
}

function readingText(one) {
  const value = one?.text ?? one?.value;
  return `${one?.metric ?? "?"} ${value ?? "–"}${one?.unit ? ` ${one.unit}` : ""}`.slice(0, PREVIEW);
}

function told(readings) {
  const texts = readings.slice(0, SHOWN).map(readingText);
  return (readings.length > SHOWN ? [...texts, "…"] : texts).join(" · ");
}

/** [name, text] of the fields that our own records have; the names say what they mean. */
export function envelope(value) {
  if (value === null) return [];
  const found = [];
  const put = (name, text) => text !== null && text !== undefined && text !== "" && found.push([name, String(text)]);
  if (typeof value.received_us === "number") put("Received by the gateway", micros(value.received_us));
  put("MQTT topic", value.topic);
  put("Refused because", value.reason);
  for (const name of ["path", "got", "wanted"]) put(`Refused: ${name}`, value[name]);
  if (Array.isArray(value.readings) && value.readings.length)
    put(`Readings (${number(value.readings.length)})`, told(value.readings));
  if (typeof value.payload_bytes === "number") put("Payload", `${number(value.payload_bytes)} bytes, in the field payload_base64`);
  if (value.gateway !== undefined && value.number !== undefined)
    put("Message", `number ${value.number} of gateway ${value.gateway}, connection ${value.epoch}`);
  if (value.first !== undefined && value.upto !== undefined && value.gateway !== undefined)
    put("Counts messages", `${value.first} to ${value.upto} of gateway ${value.gateway}, connection ${value.epoch}`);
  if (value.boot !== undefined && value.seq !== undefined) put("Sequence", `boot ${value.boot}, number ${value.seq}`);
  put("Message id", value.message_id);
  put("Trace (W3C)", value.trace);
  return found;
}
