// One dead letter: its message with the faulty part marked, the rejection, and the next step.

import { ask } from "./api.js";
import { copyButton } from "./copy.js";
import { el } from "./dom.js";
import { clock, utc } from "./format.js";
import { deviceLink, nameNode, topicAddress, visible } from "./name.js";
import { failure, openPanel } from "./panel.js";
import { wholeMessage } from "./payload.js";
import { commandLine } from "./program.js";
import { stepNodes } from "./steps.js";

/** @import { Child } from "./dom.js" */
/** @import { WholeLetter } from "./types.js" */

/**
 * The lines of the payload, with the span above the carets marked; carets count code points.
 * @param {string[]} lines
 */
function payloadNodes(lines) {
  const carets = lines.length !== 2 ? null : /^( *)(\^+)$/.exec(lines[1]);
  if (!carets) return [visible(lines.join("\u0001")).replaceAll("\\u{1}", "\n")];
  const signs = [...lines[0]];
  const [from, to] = [carets[1].length, carets[1].length + carets[2].length];
  const piece = (/** @type {number} */ first, /** @type {number} */ last = signs.length) =>
    visible(signs.slice(first, last).join(""));
  // At the end of the text there is no character to mark.
  const place = from < signs.length ? el("mark", {}, piece(from, to)) : el("mark", { class: "end" }, "◀ the text ends here");
  return [piece(0, from), place, piece(to)];
}

/** @param {string} name @param {Child[]} value */
function fact(name, ...value) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value));
}

/**
 * The Kafka record of the dead letter: topic, partition and offset.
 * @param {string} topic
 * @param {WholeLetter} letter
 */
function recordNodes(topic, { partition, offset }) {
  const address = topicAddress(topic);
  return [address ? el("a", { href: address }, visible(topic)) : visible(topic), ` partition ${partition}, offset ${offset}`];
}

/** The route that the next step's command drafts. @param {string} draft */
function draftNodes(draft) {
  const lines = draft.split("\n").map(visible);
  return [
    el("h3", {}, "Draft route"),
    el("pre", { class: "payload", tabindex: "0", "aria-label": "Draft route" }, lines.join("\n")),
    el("p", { class: "row" }, copyButton(draft, "Copy draft")),
  ];
}

/** @param {WholeLetter} letter @param {(next: string) => void} redrive */
function letterNodes(letter, redrive) {
  const optional = (/** @type {string} */ name, /** @type {string | null | undefined} */ text) =>
    text === null || text === undefined || text === ""
      ? null
      : fact(name, el("span", { class: "wrap" }, visible(text)));
  return el(
    "div",
    { class: "stack" },
    el("dl", { class: "facts" }, [
      fact(
        "Reason",
        el("strong", {}, letter.reason),
        letter.partial ? " (part of the message; the rest was stored)" : "",
      ),
      letter.device ? fact("Device", deviceLink(letter.device)) : fact("Device", "unknown"),
      optional("MQTT topic", letter.mqtt_topic),
      fact("Received", el("span", { title: utc(letter.received_at) }, clock(letter.received_at))),
      optional("Rejected by", letter.stage),
      optional("Path", letter.path),
      optional("Got", letter.got),
      optional("Wanted", letter.wanted),
      optional("Redriven", letter.redriven_as),
      optional("Message id", letter.message_id),
      letter.source_topic ? fact("Kafka", ...recordNodes(letter.source_topic, letter)) : null,
    ]),
    el("h3", {}, "Message"),
    el(
      "pre",
      { class: "payload", tabindex: "0", "aria-label": "Message as received" },
      payloadNodes(letter.payload_lines ?? []),
    ),
    wholeMessage(letter),
    el("h3", {}, "Next step"),
    el("div", {}, stepNodes(letter.next ?? "")),
    letter.draft ? draftNodes(letter.draft) : null,
    el(
      "p",
      { class: "row" },
      el("button", { type: "button", class: "button", on: { click: () => redrive(letter.next) } }, "Redrive this dead letter …"),
      copyButton(commandLine(`dlq show ${letter.id}`), "Copy command"),
    ),
  );
}

/**
 * Shows dead letter `id`; `redrive(ids, next)` opens its redrive and gets its next step.
 * @param {string} id
 * @param {(ids: string[], next: string) => void} redrive
 */
export async function openLetter(id, redrive) {
  const waiting = el("p", { class: "muted" }, "Loading …");
  const body = openPanel(["Dead letter ", nameNode(id)], waiting);
  const show = (/** @type {Node} */ content) => {
    if (waiting.isConnected) body.replaceChildren(content); // else the panel shows something newer
  };
  try {
    show(letterNodes(await ask("/api/dead-letter", { id }), (next) => redrive([id], next)));
  } catch (error) {
    show(failure(error));
  }
}
