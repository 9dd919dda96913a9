// The page of one device: facts, plots of its last readings, its ledger of 24 hours, and its dead letters.

import { ask } from "./api.js";
import { copyButton } from "./copy.js";
import { DevicePlots } from "./device_plots.js";
import { el, fill, write } from "./dom.js";
import { clock, duration, millis, number, utc } from "./format.js";
import { leftOutTable } from "./left_out.js";
import { openLetter } from "./letter.js";
import { letterTable } from "./letters.js";
import { nameNode, recordsAddress, shellWord } from "./name.js";
import { failure } from "./panel.js";
import { commandLine } from "./program.js";
import { setState, stateBadge } from "./state.js";
import { showFigure } from "./table.js";

/** @import { Child } from "./dom.js" */
/** @import { Device, DeviceAnswer, Figure } from "./types.js" */
/** @typedef {(ids: string[], next: string) => void} Redrive Opens the redrive of dead letters. */

const LOOK_MS = 5000;
const LEDGER = {
  received: "received",
  stored: "stored",
  dead_lettered: "dead letters",
  ignored: "ignored by rule",
  duplicate: "duplicates",
  gap: "missing in sequence",
  late: "late",
};

/**
 * Facts of a device: silence, times of its messages, clock offset and last rejection.
 * @param {Device} row
 * @param {Figure} silent
 * @param {boolean | null} quiet
 * @param {Figure} stale
 */
function factNodes(row, silent, quiet, stale) {
  const badge = stateBadge();
  const known = typeof quiet === "boolean";
  setState(
    badge,
    known ? (quiet ? "warn" : "ok") : "unknown",
    known ? (quiet ? "silent" : "not silent") : "silence unknown: seen too briefly or too long ago",
  );
  const fact = (/** @type {string} */ name, /** @type {string} */ text, title = "") =>
    el("div", {}, el("dt", {}, name), el("dd", { title: title || null }, text));
  return [
    el("p", {}, badge),
    el("dl", { class: "facts" }, [
      fact(
        "Last seen",
        `${clock(row.last_seen)}${typeof silent === "number" ? ` (${duration(silent)} ago)` : ""}`,
        utc(row.last_seen),
      ),
      typeof stale === "number" ? fact("Values stale since", clock(stale), utc(stale)) : null,
      fact("Usual interval", duration(row.interval_s)),
      fact("First seen", clock(row.first_seen), utc(row.first_seen)),
      fact("Clock offset", millis(row.clock_skew_ms)),
      row.last_rejected_because
        ? fact("Last rejected", `${row.last_rejected_because}, ${clock(row.last_rejected_at)}`)
        : null,
    ]),
  ];
}

/** Commands about the device with copy buttons. @param {string} device */
function commandNodes(device) {
  const quoted = shellWord(device);
  if (quoted === null) return [];
  const words = [`device watch ${quoted}`, `trace --device ${quoted}`];
  return words.map(commandLine).map((command) =>
    el("span", { class: "command" }, el("code", {}, command), copyButton(command)),
  );
}

/**
 * The part of a gap that may not be lost: an unreadable message is rejected without a known sequence number.
 * @param {Figure} gap
 * @param {Figure} unread
 */
function unreadWords(gap, unread) {
  const most = Math.min(gap ?? 0, unread ?? 0);
  if (!gap || !most) return "";
  const lost = most === gap ? "" : ` At least ${number(gap - most)} did not arrive.`;
  return `Missing in sequence: ${number(gap)}. Up to ${number(most)} of them arrived and were rejected without a readable number.${lost}`;
}

export class DevicePage {
  /** @type {string | null} */
  #device = null;
  /** @type {string | null} */
  #asked = null;
  /** @type {number | undefined} */
  #timer;
  #turn = 0;

  /** @param {Element} root @param {Redrive} redrive */
  constructor(root, redrive) {
    this.title = el("h2", { tabindex: "-1" });
    this.facts = el("div");
    this.ledger = Object.fromEntries(Object.keys(LEDGER).map((name) => [name, el("dd", { "data-ledger": name })]));
    this.plots = new DevicePlots();
    this.letters = letterTable((id) => openLetter(id, redrive));
    this.leftOut = leftOutTable();
    this.unread = el("p", { class: "muted small" });
    this.problem = el("div");
    this.commands = el("p", { class: "row" });
    const section = (/** @type {string} */ title, /** @type {Child[]} */ ...children) =>
      el("section", { class: "card", "aria-label": title }, el("h3", {}, title), children);
    this.content = el(
      "div",
      { class: "stack" },
      el("section", { class: "card", "aria-label": "Device" }, this.facts, this.commands),
      section("Last readings", this.plots.node),
      section(
        "Messages, last 24 hours (current minute incomplete)",
        el(
          "dl",
          { class: "strip" },
          Object.entries(LEDGER).map(([name, label]) => el("div", {}, el("dt", {}, label), this.ledger[name])),
        ),
        this.unread,
      ),
      section(
        "Fields left out by mappings",
        el("p", { class: "muted small" }, "Counted per route, over all devices that use the route."),
        this.leftOut.node,
      ),
      section("Dead letters, last 7 days", this.letters.node),
    );
    root.append(el("p", {}, el("a", { href: "#/" }, "← All devices")), this.title, this.problem, this.content);
  }

  /** Rebuilds the commands only when the command line has changed, so that a button keeps the focus. */
  #showCommands() {
    const device = this.#device ?? "";
    const asked = commandLine(device);
    if (this.#asked === asked) return;
    this.#asked = asked;
    const records = recordsAddress(device);
    fill(this.commands, commandNodes(device), records && el("a", { href: records }, "Records in Kafka"));
  }

  /** @param {string} device */
  open(device) {
    this.#device = device;
    this.plots.clear();
    fill(this.problem);
    fill(this.title, "Device ", nameNode(device));
    this.content.hidden = true;
    this.#showCommands();
    this.load();
    clearInterval(this.#timer);
    this.#timer = setInterval(
      () => document.hidden || document.documentElement.dataset.live !== "live" || this.load(),
      LOOK_MS,
    );
  }

  close() {
    clearInterval(this.#timer);
    this.plots.clear();
    this.#device = null;
  }

  async load() {
    const [device, turn] = [this.#device, ++this.#turn];
    try {
      /** @type {DeviceAnswer} */
      const found = await ask("/api/device", { device });
      if (turn !== this.#turn || device !== this.#device) return;
      this.#show(found);
      fill(this.problem);
    } catch (error) {
      if (turn === this.#turn) fill(this.problem, failure(error));
    }
  }

  /** @param {DeviceAnswer} found */
  #show(found) {
    this.content.hidden = false;
    this.#showCommands();
    fill(
      this.facts,
      found.device
        ? factNodes(found.device, found.silent_seconds, found.is_silent, found.stale_since)
        : el("p", { class: "muted" }, "No messages from this device have been counted yet."),
    );
    // An unknown device has no counts, which is not the same as 0.
    const counted = found.device || Object.values(found.ledger ?? {}).some((count) => (count ?? 0) > 0);
    for (const [name, node] of Object.entries(this.ledger)) showFigure(node, counted ? found.ledger?.[name] : null, number);
    write(this.unread, unreadWords(found.ledger?.gap, found.refused_unread));
    this.plots.show(found.metrics ?? [], found.texts ?? []);
    this.leftOut.update(found.left_out ?? [], Array.isArray(found.left_out));
    this.letters.update(found.dead_letters ?? []);
  }
}
