// The four states, each with its shape, word and colour: colour alone never shows a state.

import { attr, el, fill, shape } from "./dom.js";

/** @import { State } from "./types.js" */

/** @type {Record<State, string>} */
const SHAPES = {
  ok: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm3.9 5.3-4.6 5.2-3.2-3 1-1.1 2.1 2 3.5-4.1z",
  warn: "M8 1 15.5 14.5H.5zm-1 5v4.2h2V6zm0 5.4v1.8h2v-1.8z",
  bad: "M4.9.8h6.2l4.1 4.1v6.2l-4.1 4.1H4.9L.8 11.1V4.9zM5.6 4.3 4.3 5.6 6.7 8l-2.4 2.4 1.3 1.3L8 9.3l2.4 2.4 1.3-1.3L9.3 8l2.4-2.4-1.3-1.3L8 6.7z",
  unknown: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm0 1.8a5.2 5.2 0 1 1 0 10.4A5.2 5.2 0 0 1 8 2.8zM5 7.2h6v1.6H5z",
};
/** @type {Record<State, string>} */
const WORDS = { ok: "ok", warn: "warning", bad: "bad", unknown: "unknown" };

/** A badge that `setState` fills. */
export function stateBadge() {
  return el("span", { class: "badge" });
}

/**
 * Shows a state; `word` replaces its default word. An unrecognised state is shown as unknown.
 * @param {HTMLElement} badge
 * @param {string} state
 * @param {string | null} word
 */
export function setState(badge, state, word = null) {
  const known = /** @type {State} */ (Object.hasOwn(SHAPES, state) ? state : "unknown");
  const text = (word ?? WORDS[known]).slice(0, 100);
  if (badge.dataset.state === known && badge.dataset.word === text) return;
  attr(badge, "data-state", known);
  attr(badge, "data-word", text);
  fill(badge, shape(SHAPES[known]), el("span", { class: "badge-word" }, text));
}

/** @type {Record<string, State>} */
const OF_PARTS = {
  ready: "ok",
  done: "ok",
  starting: "warn",
  restarting: "warn",
  waiting: "warn",
  failed: "bad",
  stopped: "bad",
  down: "bad",
};

/** The state for a part's word (`ready`, `restarting`, …). @param {string} word */
export function stateOfPart(word) {
  return OF_PARTS[word] ?? "unknown";
}
