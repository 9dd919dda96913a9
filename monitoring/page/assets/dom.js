// Builds and updates DOM nodes. Text from outside enters by textContent or an attribute, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** A new element; attributes that are null or false are left out, `on` holds event handlers. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else attr(node, name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets an attribute where it differs; null and false remove it, true makes it empty. */
export function attr(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else {
    const text = value === true ? "" : String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

const LONGEST = 1000;

/** Sets the text only where it differs, to avoid a new layout; a text longer than LONGEST is cut. */
export function write(node, text) {
  const shown = text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
  if (node.textContent !== shown) node.textContent = shown;
}

/** Replaces the children of a node. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

/** An SVG shape of 16 x 16; `d` is one of our own path constants. */
export function shape(d, name = "icon") {
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of [
    ["viewBox", "0 0 16 16"],
    ["class", name],
    ["aria-hidden", "true"],
  ])
    svg.setAttribute(key, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", d);
  svg.append(path);
  return svg;
}

const known = new WeakMap();

/**
 * Updates the children of `parent` to match `items`, in order. A key that remains keeps its node: scroll position, focus and
 * open details survive. `make(item)` returns {node, update(item)}.
 */
export function keyed(parent, items, keyOf, make) {
  const before = known.get(parent) ?? new Map();
  const after = new Map();
  for (const item of items) {
    let key = String(keyOf(item));
    while (after.has(key)) key += "\u0000";
    after.set(key, { item, part: before.get(key) ?? make(item) });
  }
  const focused = document.activeElement;
  for (const [key, part] of before) if (!after.has(key)) part.node.remove();
  let place = parent.firstChild;
  for (const { item, part } of after.values()) {
    part.update(item);
    if (part.node === place) place = place.nextSibling;
    else parent.insertBefore(part.node, place);
  }
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
  known.set(parent, new Map([...after].map(([key, { part }]) => [key, part])));
}
