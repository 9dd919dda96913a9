// A runbook in the side panel, rebuilt from the server's HTML with harmless tags only and no attribute except href.

import { ask } from "./api.js";
import { commandNode, copyButton, isCommand } from "./copy.js";
import { el } from "./dom.js";
import { failure, openPanel } from "./panel.js";
import { wholeCommand } from "./program.js";

const TAGS = new Set(
  "h1 h2 h3 h4 p ul ol li pre code strong em b i a table thead tbody tr th td blockquote br hr del sup sub".split(" "),
);
const DROPPED = new Set("script style template iframe object embed svg math noscript textarea title head".split(" "));
const DEPTH = 30;
/** Alert names in a text; each has a runbook of that name (tested). */
const ALERT = /\b(Tidegate(?:[A-Z]+[a-z]+)+|Kafka(?:[A-Z]+[a-z]+){2,}|AlertmanagerDown)\b/;
/** Heading levels, lowered to come below the panel's own heading. */
/** @type {Record<string, string>} */
const LOWERED = { h1: "h2", h2: "h3", h3: "h4" };

/** The whole address if it is http(s), or relative to this site; else null. @param {string} address */
export function safeAddress(address) {
  try {
    const url = new URL(address, location.href);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

/** Commands, one per line, each with a copy button; other code unchanged. @param {string} text */
function codeNode(text) {
  const lines = text.split("\n");
  if (lines.every(isCommand)) return el("div", {}, lines.map((line) => commandNode(wholeCommand(line), "div")));
  return el("div", { class: "code" }, el("pre", { tabindex: "0" }, text), copyButton(text));
}

/** Nodes of a text in which alert names link to their runbooks. @param {string} text */
export function withRunbooks(text) {
  return text.split(ALERT).map((piece, index) => {
    if (index % 2 === 0) return piece;
    const click = (/** @type {MouseEvent} */ event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      openRunbook(piece);
    };
    return el("a", { href: `/runbooks/${piece}`, target: "_blank", rel: "noopener noreferrer", on: { click } }, piece);
  });
}

/** @param {Node} source @returns {(Node | string)[]} */
function build(source, depth = 0) {
  if (source instanceof Text) return withRunbooks(source.data);
  if (!(source instanceof Element)) return [];
  const tag = source.localName;
  if (DROPPED.has(tag) || depth > DEPTH) return [];
  const children = [...source.childNodes].flatMap((child) => build(child, depth + 1));
  if (!TAGS.has(tag)) return children;
  if (tag === "pre") return [codeNode((source.textContent ?? "").trimEnd())];
  // In a step the command is to be run, so it is completed; elsewhere it is only mentioned.
  if (tag === "code") return [el("code", {}, source.closest("li") ? wholeCommand(source.textContent ?? "") : source.textContent)];
  if (tag !== "a") return [el(/** @type {keyof HTMLElementTagNameMap} */ (LOWERED[tag] ?? tag), {}, children)];
  const href = safeAddress(source.getAttribute("href") ?? "");
  return [el("a", { href, rel: "noopener noreferrer", target: "_blank" }, children)];
}

/** Harmless nodes of HTML from outside, parsed in a document that runs no scripts. @param {string} html */
function sanitized(html) {
  return [...new DOMParser().parseFromString(html, "text/html").body.childNodes].flatMap((node) => build(node));
}

/**
 * The name of the runbook at this site's address /runbooks/<Name>; null for other addresses.
 * @param {string | null} address
 */
export function runbookName(address) {
  return /^\/runbooks\/([A-Za-z0-9_-]+)$/.exec(address ?? "")?.[1] ?? null;
}

/** Shows a runbook in the side panel. @param {string} name */
export async function openRunbook(name) {
  const waiting = el("p", { class: "muted" }, "Loading …");
  const body = openPanel(`Runbook: ${name}`, waiting);
  const content = el("div", { class: "prose" });
  try {
    const { html } = await ask("/api/runbook", { name });
    const nodes = sanitized(html);
    // The panel's title already shows the name, so the first heading is left out.
    if (nodes[0] instanceof Element && nodes[0].localName === "h2" && nodes[0].textContent?.trim() === name)
      nodes.shift();
    content.append(...nodes);
  } catch (error) {
    content.append(failure(error));
  }
  if (waiting.isConnected) body.replaceChildren(content); // else the panel shows something newer
}
