// Names from outside (device ids, topics, payload texts): shown exactly, made harmless, and cut in the middle.

import { attr, el, inner } from "./dom.js";

const HEAD = 160;
const TAIL = 10;
const TITLE = 65_536;
/** Characters that are invisible, reorder text or are broken: they would make two ids look alike. A joiner within an emoji stays. */
const HIDDEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u200e\u200f\u2028-\u202f\u205f-\u206f\u3164\ufeff\uffa0\ufff0-\uffff]|(?<![\p{Extended_Pictographic}\p{Emoji_Modifier}]\ufe0f?)\u200d|\p{Surrogate}|[\u{e0000}-\u{e007f}]/gu;

const graphemes = "Segmenter" in Intl ? new Intl.Segmenter() : null;

/**
 * The last characters of a text; a character of several code points stays whole.
 * @param {string} text
 * @param {number} count
 */
function lastSigns(text, count) {
  const end = text.slice(-8 * count);
  const signs = graphemes ? [...graphemes.segment(end)].map((part) => part.segment) : [...end];
  return signs.slice(-count).join("");
}

/** The text with hidden characters written as \u{…}. @param {string} text */
export function visible(text) {
  return String(text).replace(HIDDEN, (sign) => `\\u{${sign.codePointAt(0)?.toString(16)}}`);
}

/** @param {string} before @param {string} name */
function address(before, name) {
  if (name.length > 4096) return null;
  try {
    return `${before}${encodeURIComponent(name)}`;
  } catch {
    return null; // half a surrogate pair cannot be encoded as UTF-8
  }
}

/** The address of a device's page; null if the id is too long or cannot be encoded. @param {string} device */
export function deviceAddress(device) {
  return address("#/device/", device);
}

/** The address of a topic's records; null as above. @param {string} topic */
export function topicAddress(topic) {
  return address("#/topic/", topic);
}

/** The address of a device's records in Kafka; null as above. @param {string} device */
export function recordsAddress(device) {
  return address("#/topic/telemetry.readings?key=", device);
}

/**
 * The name as one shell word; null if it is long or has hidden characters, which a terminal might interpret.
 * @param {string} name
 */
export function shellWord(name) {
  if (visible(name) !== name || name.length > 300) return null;
  return /^[\w./:-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
}

/**
 * Fills `node` with the text in two spans, of which CSS shortens only the first. The title holds the whole text.
 * @param {HTMLElement} node
 * @param {string | null | undefined} text
 */
export function showName(node, text) {
  const known = text === null || text === undefined ? "" : String(text);
  if (node.dataset.name === known.slice(0, 512) && Number(node.dataset.length) === known.length) return;
  node.dataset.name = known.slice(0, 512);
  node.dataset.length = String(known.length);
  const long = known.length > HEAD;
  const tail = lastSigns(known, TAIL);
  const head = long ? `${[...known.slice(0, HEAD)].join("")}…` : known.slice(0, known.length - tail.length);
  attr(node, "title", known ? visible(known.slice(0, TITLE)) : "(empty)");
  attr(node, "dir", "auto");
  node.classList.add("name");
  if (!known) return node.replaceChildren(el("span", { class: "none" }, "(empty)"));
  if (known.length <= 2 * TAIL) return node.replaceChildren(el("span", { class: "name-whole" }, visible(known)));
  node.replaceChildren(
    el("span", { class: "name-head" }, visible(head)),
    el("span", { class: "name-tail" }, visible(tail)),
  );
}

/**
 * The `show` of a column of names.
 * @template T
 * @param {(item: T) => string | null | undefined} get
 * @returns {(cell: HTMLElement, item: T) => void}
 */
export function nameCell(get) {
  return (cell, item) => showName(inner(cell, "bdi"), get(item));
}

/** A name as a node of its own. @param {string} text */
export function nameNode(text) {
  const node = el("bdi");
  showName(node, text);
  return node;
}

/** A device's name as a link to its page. @param {string} device */
export function deviceLink(device) {
  const address = deviceAddress(device);
  const node = address === null ? el("bdi") : el("a", { href: address });
  showName(node, device);
  return node;
}
