// Dead letters: counts by reason, and a list, newest first, to filter, select and redrive.

import { ask, sentence } from "./api.js";
import { causeTable } from "./causes.js";
import { attr, el, fill, inner, need, write } from "./dom.js";
import { clock, number } from "./format.js";
import { openLetter } from "./letter.js";
import { deviceLink, nameCell } from "./name.js";
import { openRedrive } from "./redrive.js";
import { makeTable, showFigure } from "./table.js";

/** @import { Column } from "./table.js" */
/** @import { Cause, DeadLetter, Snapshot } from "./types.js" */

const LIMIT = 100;
const LOOK_MS = 10_000;
const showGot = nameCell((/** @type {DeadLetter} */ item) => item.got ?? "–");

/** @param {HTMLElement} cell @param {DeadLetter} item */
function showDevice(cell, item) {
  if (cell.dataset.device === (item.device ?? "")) return;
  cell.dataset.device = item.device ?? "";
  fill(cell, item.device ? deviceLink(item.device) : el("span", { class: "muted" }, "unknown"));
}

/**
 * A table of dead letters; a click calls `open(id)`. With `chosen`, a Set of ids, dead letters can be selected.
 * @param {(id: string) => void} open
 * @param {Set<string> | null} chosen
 * @param {() => void} changed
 */
export function letterTable(open, chosen = null, changed = () => {}) {
  /** @type {(ids: Set<string>) => Column<DeadLetter>} */
  const choose = (ids) => ({
    head: "Selected",
    show: (cell, item) => {
      const box = inner(cell, "input", { type: "checkbox" });
      attr(box, "aria-label", `Select dead letter ${item.id}`);
      box.checked = ids.has(item.id);
      box.onchange = () => {
        if (box.checked) ids.add(item.id);
        else ids.delete(item.id);
        changed();
      };
    },
  });
  /** @type {Column<DeadLetter>[]} */
  const columns = [
    {
      head: "Reason",
      row: true,
      show: (cell, item) => {
        const button = inner(cell, "button", { type: "button", class: "link" });
        write(button, `${item.reason}${item.partial ? " (part)" : ""}`);
        button.onclick = () => open(item.id);
        attr(button, "data-letter", item.id);
      },
    },
    { head: "Device", show: showDevice },
    { head: "Path", show: nameCell((item) => item.path ?? "–") },
    { head: "Got", show: (cell, item) => (cell.classList.add("rest"), showGot(cell, item)) },
    { head: "Received", show: (cell, item) => showFigure(cell, item.received_at, clock) },
    { head: "Redriven", show: (cell, item) => write(cell, item.redriven_as ?? "–") },
  ];
  return makeTable({
    label: "Dead letters",
    keyOf: (item) => item.id,
    cap: LIMIT,
    empty: "No dead letters.",
    columns: chosen ? [choose(chosen), ...columns] : columns,
  });
}

export class Letters {
  /** @type {Set<string>} */
  #chosen = new Set();
  /** @type {string[]} */
  #ids = [];
  /** For each page after the first: the dead letter before which the page begins. @type {string[]} */
  #befores = [];
  #allowed = false;
  #askedAt = -Infinity;
  /** @type {number | null} */
  #total = null;
  #turn = 0;

  /** @param {Element} root */
  constructor(root) {
    this.reason = el("select", { name: "reason" }, el("option", { value: "" }, "all reasons"));
    this.device = el("input", {
      name: "device",
      type: "search",
      placeholder: "all devices",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.causes = causeTable((reason, device) => this.filter(reason, device));
    this.table = letterTable(
      (id) => this.open(id),
      this.#chosen,
      () => this.#count(),
    );
    this.button = el("button", {
      type: "button",
      class: "button",
      on: { click: () => this.redrive([...this.#chosen]) },
    });
    this.all = el("button", { type: "button", class: "button", on: { click: () => this.#chooseAll() } });
    const turn = (/** @type {string} */ name, /** @type {() => void} */ click) =>
      el("button", { type: "button", class: "button", on: { click } }, name);
    this.newer = turn("← Newer", () => this.#turnTo(this.#befores.slice(0, -1)));
    this.older = turn("Older →", () => this.#turnTo([...this.#befores, ...this.#ids.slice(-1)]));
    this.page = el("span", { class: "muted small", role: "status" });
    this.pages = el("p", { class: "row", hidden: true }, this.newer, this.older, this.page);
    this.problem = el("p", { class: "failure", role: "alert", hidden: true });
    const form = el(
      "form",
      { class: "row filter", on: { submit: (event) => (event.preventDefault(), this.#turnTo([])) } },
      el("label", {}, "Reason ", this.reason),
      el("label", {}, "Device ", this.device),
      el("button", { type: "submit", class: "button" }, "Show"),
      this.all,
      this.button,
    );
    this.reason.addEventListener("change", () => this.#turnTo([]));
    root.append(
      el("details", {}, el("summary", {}, "By reason, last 7 days"), this.causes.node),
      form,
      this.problem,
      this.table.node,
      this.pages,
    );
    this.#count();
  }

  /** Filters by reason and device, and scrolls to the list. @param {string} reason */
  filter(reason, device = "") {
    this.#offer([reason]);
    this.reason.value = reason;
    this.device.value = device;
    this.#turnTo([]);
    need("#letters", HTMLElement).scrollIntoView();
    this.reason.focus({ preventScroll: true });
  }

  /**
   * Reloads after new rejections, at most every LOOK_MS, since each reload reads the tables.
   * @param {Snapshot} snapshot
   */
  update(snapshot) {
    this.#allowed = snapshot.redrive === true;
    this.#offer((snapshot.errors ?? []).map((item) => item.reason));
    const total = (snapshot.errors ?? []).reduce((sum, item) => sum + (item.total ?? 0), 0);
    const due = performance.now() - this.#askedAt > LOOK_MS;
    if (this.#total === null || (due && (total !== this.#total || !this.problem.hidden))) {
      this.#total = total;
      this.load();
    }
  }

  async load() {
    this.#askedAt = performance.now();
    const turn = ++this.#turn;
    try {
      /** @type {{ causes: Cause[], letters: DeadLetter[] }} */
      const { causes, letters } = await ask("/api/dead-letters", {
        reason: this.reason.value,
        device: this.device.value,
        limit: LIMIT,
        before: this.#befores.at(-1),
      });
      if (turn !== this.#turn) return;
      this.problem.hidden = true;
      this.#ids = letters.map((letter) => letter.id);
      for (const id of this.#chosen) if (!this.#ids.includes(id)) this.#chosen.delete(id);
      this.causes.update(causes);
      this.table.update(letters);
      this.#showPages();
    } catch (error) {
      if (turn !== this.#turn) return;
      write(this.problem, sentence(error));
      this.problem.hidden = false;
    }
    this.#count();
  }

  /** @param {string} id */
  open(id) {
    return openLetter(id, (ids, next) => this.redrive(ids, next));
  }

  /** `next` is the next step of a single dead letter. @param {string[]} ids */
  redrive(ids, next = "") {
    openRedrive(ids, {
      allowed: this.#allowed,
      next,
      open: (id) => this.open(id),
      done: () => {
        this.#chosen.clear();
        this.load();
      },
    });
  }

  /** @param {string[]} befores */
  #turnTo(befores) {
    this.#befores = befores;
    return this.load();
  }

  #showPages() {
    const [first, count] = [this.#befores.length * LIMIT, this.#ids.length];
    this.pages.hidden = !first && count < LIMIT;
    this.newer.disabled = !first;
    this.older.disabled = count < LIMIT;
    write(this.page, count ? `${number(first + 1)} to ${number(first + count)}, newest first` : "no older dead letters");
  }

  /** @param {string[]} reasons */
  #offer(reasons) {
    const there = new Set([...this.reason.options].map((option) => option.value));
    for (const reason of reasons) if (!there.has(reason)) this.reason.append(el("option", { value: reason }, reason));
  }

  #chooseAll() {
    const all = this.#chosen.size === this.#ids.length;
    this.#chosen.clear();
    if (!all) for (const id of this.#ids) this.#chosen.add(id);
    for (const box of this.table.node.querySelectorAll("input")) box.checked = !all;
    this.#count();
  }

  #count() {
    const count = this.#chosen.size;
    write(this.button, count ? `Redrive ${number(count)} selected …` : "Redrive selected …");
    this.button.disabled = count === 0;
    this.all.disabled = this.#ids.length === 0;
    write(this.all, count && count === this.#ids.length ? "Select none" : "Select all shown");
  }
}
