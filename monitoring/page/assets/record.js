// One Kafka record in the panel: its place, content and headers, with links and commands.

import { copyButton } from "./copy.js";
import { el } from "./dom.js";
import { bytes, number, utc } from "./format.js";
import { deviceLink, shellWord, visible } from "./name.js";
import { openPanel } from "./panel.js";
import { commandLine } from "./program.js";
import { deviceOf, envelope, lines, moment, parsed, preview } from "./record_text.js";

/** @import { Child } from "./dom.js" */
/** @import { KafkaRecord, Piece } from "./types.js" */

/** @type {Record<string, string>} */
const CLOCKS = { append: "by Kafka's clock", create: "by the producer's clock" };

/** @param {Child} name @param {Child[]} value */
function fact(name, ...value) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value));
}

/** @param {string} text */
function wrapped(text) {
  return el("span", { class: "wrap" }, visible(text));
}

/** @param {Piece | null} piece */
function cutNote(piece) {
  return piece?.cut ? el("p", { class: "note" }, `Only the beginning is shown; the total is ${number(piece.bytes)} bytes.`) : null;
}

/** @param {string} title @param {Piece | null} piece */
function pieceNodes(title, piece) {
  const encoded = piece && typeof piece.text !== "string" ? " (not text, shown as base64)" : "";
  return [
    el("h3", {}, `${title}${encoded}`),
    cutNote(piece),
    el("pre", { class: "payload", tabindex: "0", "aria-label": title }, lines(piece)),
  ];
}

/** @param {KafkaRecord["headers"]} headers */
function headerNodes(headers) {
  if (headers === null) return [el("p", { class: "muted" }, "Header names are not valid UTF-8.")];
  if (!headers.length) return [el("p", { class: "muted" }, "None.")];
  return [el("dl", { class: "facts" }, headers.map(({ name, value }) => fact(wrapped(name), wrapped(preview(value)))))];
}

/**
 * The command that traces the record's device; null if a terminal might interpret the device's name.
 * @param {string} device
 */
function deviceNodes(device) {
  const word = shellWord(device);
  if (word === null) return null;
  const command = commandLine(`trace --device ${word}`);
  return el("span", { class: "command" }, el("code", {}, command), copyButton(command));
}

/** Shows a record of `topic`. @param {string} topic @param {KafkaRecord} record */
export function openRecord(topic, record) {
  const [device, value] = [deviceOf(record), parsed(record)];
  const copied = record.value?.text ?? record.value?.base64;
  const time = typeof record.at_ms === "number" ? utc(record.at_ms / 1000) : null;
  openPanel(
    [`Record ${record.offset} of partition ${record.partition}`],
    el(
      "div",
      { class: "stack record" },
      el("dl", { class: "facts" }, [
        fact("Topic", wrapped(topic)),
        fact("Time", el("span", { title: time }, moment(record.at_ms)), ` ${CLOCKS[record.time_type ?? ""] ?? ""}`),
        fact("Size", bytes(record.size_bytes)),
        fact("Key", record.key === null ? el("span", { class: "none" }, "null") : wrapped(preview(record.key))),
        device ? fact("Device", deviceLink(device)) : null,
        envelope(value).map(([name, text]) => fact(name, wrapped(text))),
      ].flat()),
      el("p", { class: "row" }, [
        copied ? copyButton(copied, "Copy value") : null,
        record.key?.text ? copyButton(record.key.text, "Copy key") : null,
        device ? deviceNodes(device) : null,
      ]),
      pieceNodes("Value", record.value),
      el("h3", {}, "Headers"),
      headerNodes(record.headers),
    ),
  );
}
