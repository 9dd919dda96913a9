// A table that is updated in place: rows keep their nodes, long lists are cut and say so.

import { attr, el, keyed, write } from "./dom.js";
import { number } from "./format.js";

const CAP = 50;

/** What lies off to the right is hinted at: the edge fades while there is more. */
function fade(scroller) {
  attr(scroller, "data-more", scroller.scrollWidth - scroller.clientWidth - scroller.scrollLeft > 2);
}

/** A table larger than its place can be scrolled by keyboard, and only then is a stop on the way. */
const overflowing = new ResizeObserver((entries) => {
  for (const scroller of new Set(entries.map(({ target }) => target.closest(".scroll")))) {
    fade(scroller);
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
 * On a phone, `stack` writes each row's cells below each other.
 * `update(items, known)` shows the first `cap`; nothing is only said to be there where that is known.
 */
export function makeTable({ label, columns, keyOf, cap = CAP, empty = "None.", stack = false }) {
  const body = el("tbody");
  const role = (name) => (stack ? name : null); // written out, since stacked rows are laid out as a grid
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
