// One dead letter: its message with the failing place marked, why it was refused, and what to do next.

import { ask } from "./api.js";
import { copyButton, withCommands } from "./copy.js";
import { el } from "./dom.js";
import { clock, utc } from "./format.js";
import { deviceLink, nameNode, visible } from "./name.js";
import { failure, openPanel } from "./panel.js";
import { commandLine } from "./program.js";

/** The lines, with the span over the carets marked; carets count code points. */
function payloadNodes(lines) {
  const carets = lines.length === 2 && /^( *)(\^+)$/.exec(lines[1]);
  if (!carets) return [visible(lines.join("\u0001")).replaceAll("\\u{1}", "\n")];
  const signs = [...lines[0]];
  const [from, to] = [carets[1].length, carets[1].length + carets[2].length];
  const piece = (first, last) => visible(signs.slice(first, last).join(""));
  // At the end of the text there is no sign to mark.
  const place = from < signs.length ? el("mark", {}, piece(from, to)) : el("mark", { class: "end" }, "◀ the text ends here");
  return [piece(0, from), place, piece(to)];
}

function fact(name, ...value) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value));
}

function letterNodes(letter, redrive) {
  const optional = (name, text) =>
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
        letter.partial ? " (a part of the message; the rest was stored)" : "",
      ),
      letter.device ? fact("Device", deviceLink(letter.device)) : fact("Device", "not known"),
      optional("MQTT topic", letter.mqtt_topic),
      fact("Received", el("span", { title: utc(letter.received_at) }, clock(letter.received_at))),
      optional("Refused by", letter.stage),
      optional("Where", letter.path),
      optional("Got", letter.got),
      optional("Wanted", letter.wanted),
      optional("Redriven", letter.redriven_as),
    ]),
    el("h3", {}, "Message"),
    el(
      "pre",
      { class: "payload", tabindex: "0", "aria-label": "Message as received" },
      payloadNodes(letter.payload_lines ?? []),
    ),
    el("h3", {}, "Next step"),
    el("p", {}, withCommands(letter.next ?? "")),
    el(
      "p",
      { class: "row" },
      el("button", { type: "button", class: "button", on: { click: () => redrive(letter.next) } }, "Redrive this letter …"),
      copyButton(commandLine(`dlq show ${letter.id}`), "Copy command"),
      letter.payload_base64 ? copyButton(letter.payload_base64, "Copy as base64") : null,
    ),
  );
}

/** Shows letter `id`; `redrive(ids, next)` opens the redrive of it, and tells its next step. */
export async function openLetter(id, redrive) {
  const body = openPanel(["Dead letter ", nameNode(id)], el("p", { class: "muted" }, "Loading …"));
  try {
    body.replaceChildren(letterNodes(await ask("/api/dead-letter", { id }), (next) => redrive([id], next)));
  } catch (error) {
    body.replaceChildren(failure(error));
  }
}
