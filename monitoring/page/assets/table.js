// A table that is updated in place: rows keep their nodes, long lists are cut and say so.

import { attr, el, keyed, write } from "./dom.js";
import { number } from "./format.js";

const CAP = 50;

/** A table larger than its place can be scrolled by keyboard, and only then is a stop on the way. */
const overflowing = new ResizeObserver((entries) => {
  for (const scroller of new Set(entries.map(({ target }) => target.closest(".scroll")))) {
    const wide = scroller.scrollWidth > scroller.clientWidth || scroller.scrollHeight > scroller.clientHeight;
    attr(scroller, "tabindex", wide ? "0" : null);
    attr(scroller, "role", wide ? "region" : null);
    attr(scroller, "aria-label", wide ? scroller.querySelector("caption").textContent : null);
  }
});

/** Shows a figure; the exact one stands in data-value and, where it was shortened, in the title. */
export function showFigure(node, value, format = number) {
  const exact = value === null || value === undefined ? "" : String(value);
  const text = format(value);
  write(node, text);
  attr(node, "data-value", exact);
  attr(node, "title", exact && text !== exact ? exact : null);
}

/**
 * A table with `columns` of {head, show(cell, item), figure?, row?}: `figure` sets numbers to the right, `row` heads the row.
 * `update(items, known)` shows the first `cap`; nothing is only said to be there where that is known.
 */
export function makeTable({ label, columns, keyOf, cap = CAP, empty = "None." }) {
  const body = el("tbody");
  const heads = columns.map(({ head, figure }) => el("th", { scope: "col", class: figure ? "figure" : null }, head));
  const table = el("table", {}, el("caption", { class: "hidden" }, label), el("thead", {}, el("tr", {}, heads)), body);
  const nothing = el("p", { class: "muted" }, empty);
  const more = el("p", { class: "muted" });
  const scroller = el("div", { class: "scroll" }, table);
  overflowing.observe(scroller);
  overflowing.observe(table);
  const node = el("div", {}, scroller, nothing, more);
  const make = () => {
    const cells = columns.map(({ figure, row }) =>
      row ? el("th", { scope: "row" }) : el("td", { class: figure ? "figure" : null }),
    );
    return {
      node: el("tr", {}, cells),
      update: (item) => columns.forEach(({ show }, index) => show(cells[index], item)),
    };
  };
  const update = (items, known = true) => {
    keyed(body, items.slice(0, cap), keyOf, make);
    scroller.hidden = items.length === 0;
    nothing.hidden = items.length > 0;
    write(nothing, known ? empty : "Not known yet.");
    more.hidden = items.length <= cap;
    if (!more.hidden) write(more, `${number(items.length - cap)} more are not shown.`);
  };
  return { node, update };
}
