// The whole message of a dead letter: exact text, indented if it is JSON, or a hex dump of other bytes.

import { copyButton } from "./copy.js";
import { el, fill } from "./dom.js";
import { bytes as size, number } from "./format.js";
import { visible } from "./name.js";
import { lines } from "./record_text.js";

const ROW = 16;
const MOST_HEX = 64 * 1024;

/** @import { WholeLetter } from "./types.js" */

/** @param {string} base64 */
function decoded(base64) {
  return Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0));
}

/** The text; null if the bytes are not UTF-8. @param {Uint8Array<ArrayBuffer>} bytes */
function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** A hex dump: per line the offset, sixteen bytes and their ASCII characters. @param {Uint8Array} bytes */
function hexLines(bytes) {
  const found = [];
  for (let at = 0; at < Math.min(bytes.length, MOST_HEX); at += ROW) {
    const row = [...bytes.subarray(at, at + ROW)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const ascii = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    found.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(3 * ROW - 1)}  ${ascii}`);
  }
  if (bytes.length > MOST_HEX) found.push(`… ${number(bytes.length - MOST_HEX)} more bytes`);
  return found.join("\n");
}

/**
 * True if a text has no hidden characters; with them it is not offered as text to copy, since a terminal might interpret them.
 * @param {string} text
 */
function isPlain(text) {
  const seen = text.replace(/[\n\r\t]/g, " ");
  return visible(seen) === seen;
}

/** @param {Uint8Array} bytes @param {string | null} text @param {string} kept */
function contentNodes(bytes, text, kept) {
  return [
    kept ? el("p", { class: "note" }, kept) : null,
    el(
      "pre",
      { class: "payload", tabindex: "0", "aria-label": "Whole message" },
      text === null ? hexLines(bytes) : lines({ text }),
    ),
  ];
}

/** The whole message, folded, with copy buttons; null without any bytes. @param {WholeLetter} letter */
export function wholeMessage({ payload_base64: base64, payload_bytes: length }) {
  if (!base64) return null;
  const bytes = decoded(base64);
  const text = textOf(bytes);
  const kept = length && length > bytes.length ? `Only the first ${number(bytes.length)} of ${number(length)} bytes are shown.` : "";
  const words = `Whole message (${size(length ?? bytes.length)}${text === null ? ", not UTF-8: hex dump" : ""})`;
  const content = el("div", { class: "stack" });
  const fold = el("details", {}, el("summary", {}, words), content);
  fold.addEventListener("toggle", () => fold.open && !content.firstChild && fill(content, contentNodes(bytes, text, kept)));
  const plain = text !== null && isPlain(text) ? copyButton(text, "Copy text") : null;
  return el("div", { class: "stack" }, fold, el("p", { class: "row" }, plain, copyButton(base64, "Copy as base64")));
}
