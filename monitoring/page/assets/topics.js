// Kafka topics: partitions, records, replicas, age and retention.

import { ask } from "./api.js";
import { attr, el, fill, inner } from "./dom.js";
import { bytes, clock, duration } from "./format.js";
import { nameCell, showName, topicAddress } from "./name.js";
import { failure } from "./panel.js";
import { makeTable, showFigure } from "./table.js";

/** @import { Figure, Partition, Topic } from "./types.js" */

const LOOK_MS = 10_000;

/**
 * The sum of a figure over partitions; null if one of them is unknown.
 * @param {Partition[]} partitions
 * @param {keyof Partition} name
 */
function total(partitions, name) {
  const figures = partitions.map((one) => one[name]).filter((figure) => typeof figure === "number");
  return figures.length === partitions.length ? figures.reduce((sum, figure) => sum + figure, 0) : null;
}

/** Shows epoch ms like all other times. @param {Element} cell @param {Figure} ms */
export function showTime(cell, ms) {
  showFigure(cell, typeof ms === "number" ? ms / 1000 : null, clock);
}

/** The retention of a topic in words. @param {Topic} topic */
export function kept(topic) {
  if (!topic.policy) return "unknown";
  const limits = [
    typeof topic.retention_seconds === "number" ? duration(topic.retention_seconds) : null,
    typeof topic.retention_bytes === "number" ? `${bytes(topic.retention_bytes)} per partition` : null,
  ].filter(Boolean);
  const newest = topic.policy.includes("compact") ? ["newest record per key"] : [];
  return [...newest, limits.join(" or ")].filter(Boolean).join("; ") || "unlimited";
}

/**
 * The number of replicas in sync, marked if some are not.
 * @param {Element} cell
 * @param {Figure} have
 * @param {Figure} wanted
 */
export function showInSync(cell, have, wanted) {
  const known = typeof have === "number" && typeof wanted === "number";
  showFigure(cell, known ? have : null, () => (known ? `${have < wanted ? "▲ " : ""}${have} of ${wanted}` : "–"));
  attr(cell, "data-state", known && have < wanted ? "bad" : null);
}

/** @param {Topic} topic */
function oldest(topic) {
  const found = topic.partitions.map((one) => one.oldest_ms).filter((ms) => typeof ms === "number");
  return found.length ? Math.min(...found) : null;
}

/** @param {Topic} topic */
function newest(topic) {
  const found = topic.partitions.map((one) => one.newest_ms).filter((ms) => typeof ms === "number");
  return found.length ? Math.max(...found) : null;
}

export class TopicsPage {
  /** @type {number | undefined} */
  #timer;
  #turn = 0;

  /** @param {Element} root */
  constructor(root) {
    this.title = el("h2", { tabindex: "-1" }, "Topics");
    this.problem = el("div");
    this.table = makeTable({
      label: "Topics",
      keyOf: (/** @type {Topic} */ item) => item.topic,
      cap: 200,
      empty: "Kafka has no Tidegate topics.",
      stack: true,
      columns: [
        { head: "Topic", row: true, show: showTopicLink },
        { head: "Partitions", figure: true, show: (cell, item) => showFigure(cell, item.partitions.length) },
        { head: "Records", figure: true, show: (cell, item) => showFigure(cell, total(item.partitions, "records")) },
        {
          head: "In sync",
          figure: true,
          show: (cell, item) => showInSync(cell, total(item.partitions, "in_sync"), total(item.partitions, "replicas")),
        },
        { head: "Oldest", show: (cell, item) => showTime(cell, oldest(item)) },
        { head: "Newest", show: (cell, item) => showTime(cell, newest(item)) },
        { head: "Retention", show: nameCell(kept) },
      ],
    });
    root.append(
      el("p", {}, el("a", { href: "#/" }, "← Overview")),
      this.title,
      this.problem,
      el("section", { class: "card", "aria-label": "Topics" }, this.table.node),
    );
  }

  open() {
    fill(this.problem);
    this.load();
    clearInterval(this.#timer);
    this.#timer = setInterval(() => document.hidden || this.load(), LOOK_MS);
  }

  close() {
    clearInterval(this.#timer);
    this.#turn += 1;
  }

  async load() {
    const turn = ++this.#turn;
    try {
      /** @type {{ topics: Topic[] }} */
      const { topics } = await ask("/api/topics");
      if (turn !== this.#turn) return;
      this.table.update(topics);
      fill(this.problem);
    } catch (error) {
      if (turn === this.#turn) fill(this.problem, failure(error));
    }
  }
}

/** The name of an item's topic as a link to its records. @param {HTMLElement} cell @param {{ topic: string }} item */
export function showTopicLink(cell, item) {
  const link = inner(cell, "a");
  attr(link, "href", topicAddress(item.topic));
  showName(link, item.topic);
}
