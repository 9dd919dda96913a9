// Copy buttons, and commands with a copy button.

import { el, write } from "./dom.js";

const PROGRAMS =
  /^(?:\S*\/)?(?:tidegate|make|curl|kafka-[\w-]+(?:\.sh)?|mosquitto_\w+|systemctl|journalctl|docker|kubectl|df|du|kill|openssl|amtool|promtool)\s+\S/;

async function toClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = el("textarea", { class: "hidden", "aria-hidden": "true" });
  area.value = text; // browsers offer `navigator.clipboard` only over TLS or on loopback
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** A button that copies `text` and confirms it. */
export function copyButton(text, what = "Copy") {
  const button = el("button", { type: "button", class: "copy", "aria-label": `${what}: ${text.slice(0, 120)}` }, what);
  button.addEventListener("click", async () => {
    try {
      await toClipboard(text);
      write(button, "Copied");
    } catch {
      write(button, "Copy manually");
    }
    setTimeout(() => write(button, what), 1500);
  });
  return button;
}

/** True for a shell command: a known program with at least one argument, since a bare word may be only a name. */
export function isCommand(text) {
  return PROGRAMS.test(text);
}

/** A command with a copy button. */
export function commandNode(text, tag = "span") {
  return el(tag, { class: "command" }, el("code", {}, text), copyButton(text));
}
