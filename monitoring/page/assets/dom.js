// Builds and updates DOM nodes. Text from outside enters by textContent or an attribute, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | null | undefined} Child */
/** @typedef {{ [E in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[E]) => unknown }} Handlers */
/** @typedef {{ on?: Handlers, [name: string]: unknown }} Attributes */

/**
 * What `keyed` shows of one item.
 * @template T
 * @typedef {{ node: Element, update: (item: T) => unknown }} Part
 */

/**
 * Returns the element of index.html, or of `within`, that a selector names. A missing element is an error of ours.
 * @template {Element} E
 * @param {string} selector
 * @param {{ new (): E }} kind
 * @param {ParentNode} within
 * @returns {E}
 */
export function need(selector, kind, within = document) {
  const found = within.querySelector(selector);
  if (!(found instanceof kind)) throw new Error(`The page lacks ${selector}.`);
  return found;
}

/**
 * A new element; attributes that are null or false are left out, `on` holds event handlers.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes} attributes
 * @param {(Child | Child[])[]} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  const { on = {}, ...plain } = attributes;
  for (const [name, value] of Object.entries(plain)) attr(node, name, value);
  for (const [event, handler] of Object.entries(on)) node.addEventListener(event, /** @type {EventListener} */ (handler));
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/**
 * Sets an attribute where it differs; null and false remove it, true makes it empty.
 * @param {Element} node
 * @param {string} name
 * @param {unknown} value
 */
export function attr(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else {
    const text = value === true ? "" : String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

const LONGEST = 1000;

/**
 * Sets the text only where it differs, to avoid a new layout; a text longer than LONGEST is cut.
 * @param {Node} node
 * @param {string} text
 */
export function write(node, text) {
  const shown = text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
  if (node.textContent !== shown) node.textContent = shown;
}

/**
 * Replaces the children of a node.
 * @param {Element} node
 * @param {(Child | Child[])[]} children
 */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

/**
 * The first child of a table's cell; an empty cell gets one with this tag.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {Element} cell
 * @param {K} tag
 * @param {Attributes} [attributes]
 */
export function inner(cell, tag, attributes) {
  return /** @type {HTMLElementTagNameMap[K]} */ (cell.firstElementChild ?? cell.appendChild(el(tag, attributes)));
}

/**
 * An SVG shape of 16 x 16; `d` is one of our own path constants.
 * @param {string} d
 * @param {string} name
 */
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

/** @type {WeakMap<Element, Map<string, Part<any>>>} */
const known = new WeakMap();

/**
 * Updates the children of `parent` to match `items`, in order. A key that remains keeps its node: scroll position, focus and
 * open details survive. `make(item)` returns {node, update(item)}.
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => unknown} keyOf
 * @param {(item: T) => Part<T>} make
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
    if (part.node === place) place = part.node.nextSibling;
    else parent.insertBefore(part.node, place);
  }
  if (focused instanceof HTMLElement && focused !== document.activeElement && focused.isConnected)
    focused.focus({ preventScroll: true });
  known.set(parent, new Map([...after].map(([key, { part }]) => [key, part])));
}
