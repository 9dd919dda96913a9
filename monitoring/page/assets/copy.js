// Copy buttons, and commands with a copy button.

import { el, write } from "./dom.js";

const PROGRAMS =
  /^(?:\S*\/)?(?:tidegate|make|curl|kafka-[\w-]+(?:\.sh)?|mosquitto_\w+|systemctl|journalctl|docker|kubectl|df|du|kill|openssl|amtool|promtool)\s+\S/;

/** @param {string} text */
async function toClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = el("textarea", { class: "hidden", "aria-hidden": "true" });
  area.value = text; // browsers offer `navigator.clipboard` only over TLS or on loopback
  (document.querySelector("dialog[open]") ?? document.body).append(area); // a modal dialog blocks everything outside it
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (!isCopied) throw new Error("The browser did not copy the text.");
}

/** A button that copies `text` and confirms it. @param {string} text @param {string} what */
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

/**
 * True for a shell command: a known program with at least one argument, since a bare word may be only a name.
 * @param {string} text
 */
export function isCommand(text) {
  return PROGRAMS.test(text);
}

/** A command with a copy button. @param {string} text @param {"span" | "div"} tag */
export function commandNode(text, tag = "span") {
  return el(tag, { class: "command" }, el("code", {}, text), copyButton(text));
}
