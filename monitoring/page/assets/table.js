// A table that is updated in place: rows keep their nodes; long lists are cut, with a note.

import { attr, el, keyed, need, write } from "./dom.js";
import { number } from "./format.js";

const CAP = 50;

/**
 * @template T
 * @typedef {object} Column
 * @property {string} head
 * @property {(cell: HTMLElement, item: T) => unknown} show
 * @property {boolean} [figure] Aligns numbers to the right.
 * @property {boolean} [row] Makes the cell the row's header.
 */

/** Fades the right edge while there is more to scroll to. @param {Element} scroller */
function fade(scroller) {
  attr(scroller, "data-more", scroller.scrollWidth - scroller.clientWidth - scroller.scrollLeft > 2);
}

/** A table larger than its place is scrolled by keyboard; only then is it a tab stop. */
const overflowing = new ResizeObserver((entries) => {
  for (const scroller of new Set(entries.map(({ target }) => target.closest(".scroll")))) {
    if (!scroller) continue;
    fade(scroller);
    const wide = scroller.scrollWidth > scroller.clientWidth || scroller.scrollHeight > scroller.clientHeight;
    attr(scroller, "tabindex", wide ? "0" : null);
    attr(scroller, "role", wide ? "region" : null);
    attr(scroller, "aria-label", wide ? need("caption", HTMLElement, scroller).textContent : null);
  }
});

/**
 * Shows a figure; the exact value is in data-value and, if it was shortened, in the title.
 * @template V
 * @param {Element} node
 * @param {V} value
 * @param {(value: V) => string} [format]
 */
export function showFigure(node, value, format = /** @type {(value: any) => string} */ (number)) {
  const exact = value === null || value === undefined ? "" : String(value);
  const text = format(value);
  write(node, text);
  attr(node, "data-value", exact);
  attr(node, "title", exact && text !== exact ? exact : null);
}

/**
 * A table. On a phone, `stack` puts the cells of a row below each other.
 * `update(items, known)` shows the first `cap` items. Without items it shows `empty` if `known` is true, else "Not known yet."
 * @template T
 * @param {object} options
 * @param {string} options.label
 * @param {Column<T>[]} options.columns
 * @param {(item: T) => unknown} options.keyOf
 * @param {number} [options.cap]
 * @param {string} [options.empty]
 * @param {boolean} [options.stack]
 */
export function makeTable({ label, columns, keyOf, cap = CAP, empty = "None.", stack = false }) {
  const body = el("tbody");
  const role = (/** @type {string} */ name) => (stack ? name : null); // explicit roles, since stacked rows are laid out as a grid
  const heads = columns.map(({ head, figure }) =>
    el("th", { scope: "col", class: figure ? "figure" : null, role: role("columnheader") }, head),
  );
  attr(body, "role", role("rowgroup"));
  const table = el(
    "table",
    { class: stack ? "stacked" : null, role: role("table") },
    el("caption", { class: "hidden" }, label),
    el("thead", { role: role("rowgroup") }, el("tr", { role: role("row") }, heads)),
    body,
  );
  const nothing = el("p", { class: "muted" }, "Not known yet.");
  const more = el("p", { class: "muted" });
  /** @type {HTMLElement} */
  const scroller = el("div", { class: "scroll", on: { scroll: () => fade(scroller) } }, table);
  overflowing.observe(scroller);
  overflowing.observe(table);
  const node = el("div", {}, scroller, nothing, more);
  const make = () => {
    const cells = columns.map(({ head, figure, row }) =>
      row
        ? el("th", { scope: "row", role: role("rowheader") })
        : el("td", { class: figure ? "figure" : null, role: role("cell"), "data-head": stack ? head : null }),
    );
    return {
      node: el("tr", { role: role("row") }, cells),
      update: (/** @type {T} */ item) => columns.forEach(({ show }, index) => show(cells[index], item)),
    };
  };
  const update = (/** @type {T[]} */ items, known = true) => {
    keyed(body, items.slice(0, cap), keyOf, make);
    scroller.hidden = items.length === 0;
    nothing.hidden = items.length > 0;
    write(nothing, known ? empty : "Not known yet.");
    more.hidden = items.length <= cap;
    if (!more.hidden) write(more, `${number(items.length - cap)} more are not shown.`);
  };
  return { node, update };
}
