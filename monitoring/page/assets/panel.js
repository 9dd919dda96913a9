// The side panel: one at a time, closed by Escape. A dialog returns the focus to the element that opened it.

import { el, fill } from "./dom.js";

const NARROW = matchMedia("(max-width: 899px)");

let panel = null;

function parts() {
  if (panel) return panel;
  const dialog = document.getElementById("panel");
  const title = dialog.querySelector("h2");
  const body = dialog.querySelector(".panel-body");
  dialog.querySelector("button").addEventListener("click", closePanel);
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    closePanel();
  });
  panel = { dialog, title, body };
  return panel;
}

/** Opens the panel with a title (text or node) and content nodes; returns the body. */
export function openPanel(title, content = []) {
  const { dialog, title: heading, body } = parts();
  fill(heading, title);
  fill(body, content);
  body.scrollTop = 0;
  if (!dialog.open) {
    if (NARROW.matches) dialog.showModal();
    else dialog.show();
  }
  heading.focus();
  return body;
}

export function closePanel() {
  const { dialog } = parts();
  if (!dialog.open) return false;
  dialog.close();
  return true;
}

/** An error message, which a screen reader announces at once. */
export function failure(error) {
  return el("p", { class: "failure", role: "alert" }, error.message ?? String(error));
}
