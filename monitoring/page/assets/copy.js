// Buttons that copy a command, and texts in which `commands` stand in backticks.

import { el, write } from "./dom.js";

const LONGEST = 4000;

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

/** Nodes of a sentence: what stands in backticks becomes code, a command of ours gets a copy button. */
export function withCommands(text) {
  return String(text)
    .slice(0, LONGEST)
    .split("`")
    .flatMap((piece, index) => {
      if (index % 2 === 0) return [piece];
      const code = el("code", {}, piece);
      return /^(\S*\/)?(tidegate|make|curl|kafka|mosquitto|systemctl|docker|kubectl|df|amtool|promtool)\b/.test(piece)
        ? [el("span", { class: "command" }, code, copyButton(piece))]
        : [code];
    });
}
