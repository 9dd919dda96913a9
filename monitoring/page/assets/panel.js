// The side panel: one at a time, closed by Escape. A dialog returns the focus to the element that opened it.

import { sentence } from "./api.js";
import { el, fill, need } from "./dom.js";

/** @import { Child } from "./dom.js" */

const NARROW = matchMedia("(max-width: 899px)");

/** @type {{ dialog: HTMLDialogElement, title: HTMLElement, body: HTMLElement } | null} */
let panel = null;

function parts() {
  if (panel) return panel;
  const dialog = need("#panel", HTMLDialogElement);
  const title = need("h2", HTMLElement, dialog);
  const body = need(".panel-body", HTMLElement, dialog);
  need("button", HTMLElement, dialog).addEventListener("click", closePanel);
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    closePanel();
  });
  panel = { dialog, title, body };
  return panel;
}

/**
 * Opens the panel with a title (text or node) and content nodes; returns the body.
 * @param {Child | Child[]} title
 * @param {Child | Child[]} content
 */
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

/** An error message, which a screen reader announces at once. @param {unknown} error */
export function failure(error) {
  return el("p", { class: "failure", role: "alert" }, sentence(error));
}
