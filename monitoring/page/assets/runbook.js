// A runbook in the side panel, built anew from the server's HTML: only harmless tags come through, never an attribute but href.

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
/** Names of alerts in a text; each has a runbook of its name (tested). */
const ALERT = /\b(Tidegate(?:[A-Z]+[a-z]+)+|Kafka(?:[A-Z]+[a-z]+){2,}|AlertmanagerDown)\b/;
/** Below the panel's own heading. */
const LOWERED = { h1: "h2", h2: "h3", h3: "h4" };

/** Only addresses that open a page: this site's, or http(s). */
export function safeAddress(address) {
  try {
    const url = new URL(address, location.href);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

/** Commands line by line, each to be copied; other code as it is. */
function codeNode(text) {
  const lines = text.split("\n");
  if (lines.every(isCommand)) return el("div", {}, lines.map((line) => commandNode(wholeCommand(line), "div")));
  return el("div", { class: "code" }, el("pre", { tabindex: "0" }, text), copyButton(text));
}

/** Nodes of a text in which names of alerts lead to their runbooks. */
export function withRunbooks(text) {
  return text.split(ALERT).map((piece, index) => {
    if (index % 2 === 0) return piece;
    const click = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      openRunbook(piece);
    };
    return el("a", { href: `/runbooks/${piece}`, target: "_blank", rel: "noopener noreferrer", on: { click } }, piece);
  });
}

function build(source, depth = 0) {
  if (source.nodeType === Node.TEXT_NODE) return withRunbooks(source.data);
  const tag = source.nodeType === Node.ELEMENT_NODE ? source.localName : null;
  if (tag === null || DROPPED.has(tag) || depth > DEPTH) return [];
  const children = [...source.childNodes].flatMap((child) => build(child, depth + 1));
  if (!TAGS.has(tag)) return children;
  if (tag === "pre") return [codeNode(source.textContent.trimEnd())];
  // In a step it is to be typed; elsewhere it is only named.
  if (tag === "code") return [el("code", {}, source.closest("li") ? wholeCommand(source.textContent) : source.textContent)];
  if (tag !== "a") return [el(LOWERED[tag] ?? tag, {}, children)];
  const href = safeAddress(source.getAttribute("href") ?? "");
  return [el("a", { href, rel: "noopener noreferrer", target: "_blank" }, children)];
}

/** Nodes of HTML that somebody else made; parsed in a document that runs nothing. */
function sanitized(html) {
  return [...new DOMParser().parseFromString(html, "text/html").body.childNodes].flatMap((node) => build(node));
}

/** Name of the runbook at this site's address /runbooks/<Name>; null where it lives elsewhere. */
export function runbookName(address) {
  return /^\/runbooks\/([A-Za-z0-9_-]+)$/.exec(address ?? "")?.[1] ?? null;
}

/** Shows it beside the page. */
export async function openRunbook(name) {
  const body = openPanel(`Runbook: ${name}`, el("p", { class: "muted" }, "Loading …"));
  const content = el("div", { class: "prose" });
  try {
    const { html } = await ask("/api/runbook", { name });
    const nodes = sanitized(html);
    // The panel's title says what the page's first heading would.
    if (nodes[0] instanceof Element && nodes[0].localName === "h2" && nodes[0].textContent.trim() === name)
      nodes.shift();
    content.append(...nodes);
  } catch (error) {
    content.append(failure(error));
  }
  body.replaceChildren(content);
}
