// A table that is updated in place: rows keep their nodes; long lists are cut, with a note.

import { attr, el, keyed, write } from "./dom.js";
import { number } from "./format.js";

const CAP = 50;

/** Fades the right edge while there is more to scroll to. */
function fade(scroller) {
  attr(scroller, "data-more", scroller.scrollWidth - scroller.clientWidth - scroller.scrollLeft > 2);
}

/** A table larger than its place is scrolled by keyboard; only then is it a tab stop. */
const overflowing = new ResizeObserver((entries) => {
  for (const scroller of new Set(entries.map(({ target }) => target.closest(".scroll")))) {
    fade(scroller);
    const wide = scroller.scrollWidth > scroller.clientWidth || scroller.scrollHeight > scroller.clientHeight;
    attr(scroller, "tabindex", wide ? "0" : null);
    attr(scroller, "role", wide ? "region" : null);
    attr(scroller, "aria-label", wide ? scroller.querySelector("caption").textContent : null);
  }
});

/** Shows a figure; the exact value is in data-value and, if it was shortened, in the title. */
export function showFigure(node, value, format = number) {
  const exact = value === null || value === undefined ? "" : String(value);
  const text = format(value);
  write(node, text);
  attr(node, "data-value", exact);
  attr(node, "title", exact && text !== exact ? exact : null);
}

/**
 * A table with `columns` of {head, show(cell, item), figure?, row?}: `figure` aligns numbers to the right, `row` is the row's
 * header. On a phone, `stack` puts the cells of a row below each other.
 * `update(items, known)` shows the first `cap` items. Without items it shows `empty` if `known` is true, else "Not known yet."
 */
export function makeTable({ label, columns, keyOf, cap = CAP, empty = "None.", stack = false }) {
  const body = el("tbody");
  const role = (name) => (stack ? name : null); // explicit roles, since stacked rows are laid out as a grid
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
