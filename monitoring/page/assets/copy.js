// Buttons that copy a text, and commands that have one.

import { el, write } from "./dom.js";

const PROGRAMS =
  /^(?:\S*\/)?(?:tidegate|make|curl|kafka-[\w-]+(?:\.sh)?|mosquitto_\w+|systemctl|journalctl|docker|kubectl|df|du|kill|openssl|amtool|promtool)\s+\S/;

async function toClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = el("textarea", { class: "hidden", "aria-hidden": "true" });
  area.value = text; // without TLS or loopback browsers offer no clipboard of their own
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** A button that copies `text` and says so. */
export function copyButton(text, what = "Copy") {
  const button = el("button", { type: "button", class: "copy", "aria-label": `${what}: ${text.slice(0, 120)}` }, what);
  button.addEventListener("click", async () => {
    try {
      await toClipboard(text);
      write(button, "Copied");
    } catch {
      write(button, "Select it by hand");
    }
    setTimeout(() => write(button, what), 1500);
  });
  return button;
}

/** Whether it can be typed in a shell as it stands: a program with its arguments, so that no bare word is taken for one. */
export function isCommand(text) {
  return PROGRAMS.test(text);
}

/** A command on its own, with a button that copies it. */
export function commandNode(text, tag = "span") {
  return el(tag, { class: "command" }, el("code", {}, text), copyButton(text));
}
