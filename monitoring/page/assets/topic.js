// One topic: its partitions, consumer groups, and records, newest first. Reading them leaves no trace in Kafka.

import { ask } from "./api.js";
import { attr, el, fill, inner, write } from "./dom.js";
import { bytes, duration } from "./format.js";
import { deviceAddress, nameCell, nameNode, showName, visible } from "./name.js";
import { failure } from "./panel.js";
import { openRecord } from "./record.js";
import { deviceOf, gist, moment, preview } from "./record_text.js";
import { makeTable, showFigure } from "./table.js";
import { TopicForm } from "./topic_form.js";
import { aboutSentence, lookSentence } from "./topic_sentence.js";
import { showInSync, showTime } from "./topics.js";

/** @import { Question } from "./topic_form.js" */
/** @import { Figure, FoundRecords, GroupLag, KafkaRecord, Partition, Snapshot, Topic } from "./types.js" */
/** @typedef {{ record: KafkaRecord, device: string | null }} Row */

const LIMIT = 50;
const FOLLOW_MS = 2000;
const ABOUT_MS = 10_000;
const NARROW = matchMedia("(max-width: 599px)");

/** @param {HTMLElement} cell @param {Row} row */
function showKey(cell, { record, device }) {
  const text = record.key === null ? null : preview(record.key);
  const address = device !== null && text === device ? deviceAddress(device) : null;
  const tag = address ? "a" : "bdi";
  if (cell.firstElementChild?.localName !== tag) fill(cell, el(tag));
  const name = inner(cell, tag);
  if (address) attr(name, "href", address);
  showName(name, text);
}

/** @param {(record: KafkaRecord) => void} open */
function recordTable(open) {
  return makeTable({
    label: "Records",
    keyOf: (/** @type {Row} */ { record }) => `${record.partition}:${record.offset}`,
    cap: 200,
    empty: "No records here.",
    stack: true,
    columns: [
      {
        head: "Time",
        row: true,
        show: (cell, { record }) => {
          const button = inner(cell, "button", { type: "button", class: "link" });
          write(button, moment(record.at_ms));
          attr(button, "aria-label", `Record ${record.offset} of partition ${record.partition}, ${moment(record.at_ms)}`);
          attr(button, "data-record", `${record.partition}:${record.offset}`);
          button.onclick = () => open(record);
        },
      },
      { head: "Partition", figure: true, show: (cell, { record }) => showFigure(cell, record.partition, String) },
      { head: "Offset", figure: true, show: (cell, { record }) => showFigure(cell, record.offset, String) },
      { head: "Key", show: showKey },
      { head: "Size", figure: true, show: (cell, { record }) => showFigure(cell, record.size_bytes, bytes) },
      {
        head: "Value",
        show: (cell, { record }) => write(inner(cell, "bdi", { class: "preview", dir: "ltr" }), visible(gist(record))),
      },
    ],
  });
}

function partitionTable() {
  return makeTable({
    label: "Partitions",
    keyOf: (/** @type {Partition} */ item) => item.partition,
    cap: 200,
    stack: true,
    columns: [
      { head: "Partition", row: true, show: (cell, item) => showFigure(cell, item.partition, String) },
      { head: "First offset", figure: true, show: (cell, item) => showFigure(cell, item.first, plain) },
      { head: "Next offset", figure: true, show: (cell, item) => showFigure(cell, item.next, plain) },
      { head: "Records", figure: true, show: (cell, item) => showFigure(cell, item.records) },
      { head: "Oldest", show: (cell, item) => showTime(cell, item.oldest_ms) },
      { head: "Newest", show: (cell, item) => showTime(cell, item.newest_ms) },
      { head: "Leader", figure: true, show: (cell, item) => showFigure(cell, item.leader, (id) => (id === null ? "▲ none" : String(id))) },
      { head: "In sync", figure: true, show: (cell, item) => showInSync(cell, item.in_sync, item.replicas) },
    ],
  });
}

/** An offset with all its digits, so that it can be used in other tools. @param {Figure} value */
function plain(value) {
  return typeof value === "number" ? String(value) : "–";
}

function groupTable() {
  return makeTable({
    label: "Consumer groups",
    keyOf: (/** @type {GroupLag} */ item) => item.group,
    empty: "No consumer group that the monitor knows reads this topic.",
    columns: [
      { head: "Group", row: true, show: nameCell((item) => item.group) },
      { head: "Lag", figure: true, show: (cell, item) => showFigure(cell, item.lag) },
      { head: "Behind by", figure: true, show: (cell, item) => showFigure(cell, item.lag_seconds, duration) },
    ],
  });
}

export class TopicPage {
  /** @type {string | null} */
  #topic = null;
  #turn = 0;
  /** @type {{ follow?: number, about?: number }} */
  #timers = {};
  /** The page of records that the table shows. @type {FoundRecords | null} */
  #last = null;

  /** @param {Element} root */
  constructor(root) {
    this.title = el("h2", { tabindex: "-1" });
    this.facts = el("p", { class: "muted" });
    this.partitions = partitionTable();
    this.groups = groupTable();
    this.table = recordTable((record) => openRecord(this.#topic ?? "", record));
    this.form = new TopicForm({ changed: () => this.show(), follow: (on) => this.#follow(on) });
    this.aboutProblem = el("div");
    this.problem = el("div");
    this.told = el("p", { class: "muted", role: "status" });
    const button = (/** @type {string} */ text, /** @type {() => void} */ press) =>
      el("button", { type: "button", class: "button", disabled: true, on: { click: press } }, text);
    this.newer = button("← Newer", () => this.#page("after", this.#last?.newer));
    this.older = button("Older →", () => this.#page("before", this.#last?.older));
    this.records = el(
      "section",
      { class: "card", "aria-label": "Records" },
      el("h3", {}, "Records"),
      el("div", { class: "stack records" }, this.form.node, this.problem, this.told, this.table.node, el("p", { class: "row" }, this.newer, this.older)),
    );
    this.records.addEventListener("keydown", (event) => this.#step(event));
    root.append(
      el("p", {}, el("a", { href: "#/topics" }, "← All topics")),
      this.title,
      el(
        "section",
        { class: "card", "aria-label": "Topic" },
        el("div", { class: "stack" }, this.aboutProblem, this.facts, el("details", { open: !NARROW.matches, class: "stack" }, el("summary", {}, "Partitions and consumer groups"), this.partitions.node, this.groups.node)),
      ),
      this.records,
    );
  }

  /**
   * `asked` holds partition, key, from and offset of the address.
   * @param {string} topic
   * @param {URLSearchParams} asked
   */
  open(topic, asked) {
    this.close();
    this.#topic = topic;
    this.#last = null;
    fill(this.title, "Topic ", nameNode(topic));
    fill(this.aboutProblem);
    write(this.facts, "Loading …");
    this.partitions.update([], false);
    this.table.update([], false);
    this.form.reset(asked);
    this.#about();
    this.#timers.about = setInterval(() => document.hidden || this.#about(), ABOUT_MS);
    this.show();
  }

  close() {
    clearInterval(this.#timers.about);
    clearTimeout(this.#timers.follow);
    this.#topic = null;
    this.#turn += 1;
  }

  /** Shows the consumer groups of the newest snapshot. @param {Snapshot} snapshot */
  update(snapshot) {
    if (this.#topic === null) return;
    const groups = (snapshot.kafka?.groups ?? []).filter((item) => item.topic === this.#topic);
    this.groups.update(groups, typeof snapshot.kafka?.brokers === "number");
  }

  /** Loads the records that the form asks for. */
  show() {
    const asked = this.form.question();
    if (typeof asked === "string") return fill(this.problem, failure(new Error(asked)));
    if (asked.from !== "newest") this.form.following.checked = false;
    return this.#load(asked);
  }

  /** @param {"before" | "after"} from @param {string | null | undefined} at */
  #page(from, at) {
    if (!at) return;
    this.form.following.checked = false;
    const { partition, key } = { partition: this.form.partition.value, key: this.form.key.value };
    this.#load({ from, at, partition, key });
  }

  /** @param {boolean} on */
  #follow(on) {
    clearTimeout(this.#timers.follow);
    if (!on) return;
    this.form.begin.value = "newest";
    this.form.begin.dispatchEvent(new Event("change"));
  }

  /** @param {Question} asked */
  async #load(asked) {
    clearTimeout(this.#timers.follow);
    const [name, turn] = [this.#topic, ++this.#turn];
    attr(this.records, "aria-busy", "true");
    if (!this.#last) write(this.told, "Reading records …");
    try {
      /** @type {FoundRecords} */
      const found = await ask("/api/topic", { name, limit: LIMIT, ...asked });
      if (turn !== this.#turn) return;
      this.#take(found, asked);
      fill(this.problem);
    } catch (error) {
      if (turn !== this.#turn) return;
      fill(this.problem, failure(error));
      if (!this.#last) write(this.told, "");
    }
    attr(this.records, "aria-busy", null);
    if (this.form.following.checked) this.#again();
  }

  /** Schedules the next request; a hidden page waits until it is visible again. */
  #again() {
    this.#timers.follow = setTimeout(() => (document.hidden ? this.#again() : this.show()), FOLLOW_MS);
  }

  /** @param {FoundRecords} found @param {Question} asked */
  #take(found, asked) {
    // At the newest end there may be no newer records yet: the list stays, and the next request continues from here.
    const still = asked.from === "after" && !found.records.length ? this.#last : null;
    const shown = still ? { ...still, newer: found.newer } : found;
    this.#last = shown;
    this.newer.disabled = !shown.newer;
    this.older.disabled = !shown.older;
    write(this.told, still ? "No newer records yet." : lookSentence(found, asked));
    if (!still) this.table.update(found.records.map((record) => ({ record, device: deviceOf(record) })));
  }

  async #about() {
    const topic = this.#topic;
    try {
      /** @type {{ topics: Topic[] }} */
      const { topics } = await ask("/api/topics");
      if (topic !== this.#topic) return;
      const found = topics.find((item) => item.topic === topic);
      fill(this.aboutProblem);
      write(this.facts, found ? aboutSentence(found) : "This topic does not exist in Kafka.");
      this.partitions.update(found?.partitions ?? []);
      if (found) this.form.offer(found.partitions.map((one) => one.partition));
    } catch (error) {
      if (topic !== this.#topic) return;
      fill(this.aboutProblem, failure(error));
      if (this.facts.textContent === "Loading …") write(this.facts, "");
    }
  }

  /** Moves the focus from record to record with the arrow keys. @param {KeyboardEvent} event */
  #step(event) {
    const { key, target } = event;
    const by = key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0;
    if (!by || !(target instanceof HTMLElement && target.dataset.record)) return;
    event.preventDefault();
    const stops = [.../** @type {NodeListOf<HTMLElement>} */ (this.records.querySelectorAll("[data-record]"))];
    stops[Math.max(0, Math.min(stops.length - 1, stops.indexOf(target) + by))].focus();
  }
}
