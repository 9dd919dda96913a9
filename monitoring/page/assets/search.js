// Device search by part of a name. `/` focuses it, arrow keys move through the results, Escape leaves it.

import { ask, isAbort, sentence } from "./api.js";
import { el, fill, need, write } from "./dom.js";
import { clock } from "./format.js";
import { deviceAddress, deviceLink } from "./name.js";

/** @import { Device } from "./types.js" */

const WAIT_MS = 200;
const LIMIT = 20;

export function mountSearch() {
  const form = need("#search", HTMLFormElement);
  const input = need("input", HTMLInputElement, form);
  const list = need("ul", HTMLElement, form);
  const count = need("[role=status]", HTMLElement, form);
  /** @type {number | undefined} */
  let waiting;
  /** @type {AbortController | undefined} */
  let asked;
  /** The input that the list answers. @type {string | undefined} */
  let answered;

  const close = () => {
    clearTimeout(waiting);
    asked?.abort();
    list.hidden = true;
    write(count, "");
  };

  const show = (/** @type {Device[]} */ devices) => {
    fill(
      list,
      devices.map((row) =>
        el(
          "li",
          {},
          deviceLink(row.device),
          el("span", { class: "muted small" }, `last seen ${clock(row.last_seen)}`),
        ),
      ),
    );
    if (!devices.length) fill(list, el("li", { class: "muted" }, "No device name contains this text."));
    list.hidden = false;
    write(count, `${devices.length}${devices.length === LIMIT ? " or more" : ""} found`);
  };

  const look = async () => {
    asked?.abort();
    asked = new AbortController();
    const words = input.value;
    try {
      show((await ask("/api/devices", { search: words, limit: LIMIT }, { signal: asked.signal })).devices);
      answered = words;
    } catch (error) {
      if (isAbort(error)) return;
      fill(list, el("li", { class: "failure" }, sentence(error)));
      list.hidden = false;
    }
  };

  input.addEventListener("input", () => {
    clearTimeout(waiting);
    if (input.value) waiting = setTimeout(look, WAIT_MS);
    else close();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const address = input.value && deviceAddress(input.value);
    const first = list.hidden || answered !== input.value ? null : list.querySelector("a");
    const exact = first && [...list.querySelectorAll("a")].find((link) => link.hash === address);
    const to = exact?.hash ?? first?.getAttribute("href") ?? address;
    if (to) location.hash = to;
    close();
    if (to) input.value = "";
  });
  form.addEventListener("keydown", (event) => {
    /** @type {HTMLElement[]} */
    const stops = [input, ...list.querySelectorAll("a")];
    const at = stops.findIndex((stop) => stop === document.activeElement);
    if (event.key === "Escape") {
      event.stopPropagation();
      if (list.hidden) input.blur();
      else input.focus();
      close();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      stops[Math.max(0, Math.min(stops.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)))].focus();
    }
  });
  list.addEventListener("click", (event) => {
    const link = event.target instanceof Element && event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    close();
    input.value = "";
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    input.focus();
    input.select();
  });
  document.addEventListener("click", (event) => (event.target instanceof Node && form.contains(event.target)) || close());
}
