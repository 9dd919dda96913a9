// Consumer groups: lag in records and seconds, and the time until retention deletes unread records. Partitions are below.

import { attr, el, write } from "./dom.js";
import { duration, number } from "./format.js";
import { nameCell } from "./name.js";
import { makeTable, showFigure } from "./table.js";
import { showTopicLink } from "./topics.js";

/** @import { GroupLag, PartitionLag, Update } from "./types.js" */

const SOON_SECONDS = 24 * 3600;

/** @param {HTMLElement} cell @param {GroupLag} item */
function showLoss(cell, item) {
  const seconds = item.time_to_data_loss_seconds;
  const soon = typeof seconds === "number" && seconds < SOON_SECONDS;
  showFigure(cell, seconds, (value) => (typeof value === "number" ? `${soon ? "▲ " : ""}${duration(value)}` : "never"));
  attr(cell, "data-state", soon ? "bad" : null);
}

/** @param {Element} root @returns {Update} */
export function mountKafka(root) {
  const brokers = el("output");
  const groups = makeTable({
    label: "Consumer groups",
    keyOf: (/** @type {GroupLag} */ item) => `${item.group} ${item.topic}`,
    empty: "No consumer groups yet.",
    stack: true,
    columns: [
      { head: "Group", row: true, show: nameCell((item) => item.group) },
      { head: "Topic", show: showTopicLink },
      { head: "Lag", figure: true, show: (cell, item) => showFigure(cell, item.lag) },
      { head: "Behind by", figure: true, show: (cell, item) => showFigure(cell, item.lag_seconds, duration) },
      { head: "Read /s", figure: true, show: (cell, item) => showFigure(cell, item.per_second) },
      { head: "Data loss in", figure: true, show: showLoss },
    ],
  });
  const partitions = makeTable({
    label: "Partitions",
    keyOf: (/** @type {PartitionLag} */ item) => `${item.topic} ${item.partition}`,
    cap: 64,
    columns: [
      { head: "Topic", row: true, show: showTopicLink },
      { head: "Partition", figure: true, show: (cell, item) => showFigure(cell, item.partition) },
      { head: "Lag", figure: true, show: (cell, item) => showFigure(cell, item.lag) },
      { head: "Written /s", figure: true, show: (cell, item) => showFigure(cell, item.per_second) },
      { head: "Committed offset", figure: true, show: (cell, item) => showFigure(cell, item.committed) },
      { head: "End offset", figure: true, show: (cell, item) => showFigure(cell, item.end) },
    ],
  });
  const summary = el("summary");
  root.append(
    el("p", { class: "row muted" }, el("span", {}, "Brokers: ", brokers), el("a", { href: "#/topics" }, "Topics and their records")),
    groups.node,
    el("details", {}, summary, partitions.node),
  );
  return ({ kafka }) => {
    showFigure(brokers, kafka?.brokers);
    groups.update(kafka?.groups ?? [], typeof kafka?.brokers === "number");
    const found = [...(kafka?.partitions ?? [])].sort((a, b) => (b.lag ?? 0) - (a.lag ?? 0));
    write(summary, `Partitions: ${number(found.length)}, largest lag ${number(found[0]?.lag)}`);
    partitions.update(found);
  };
}
