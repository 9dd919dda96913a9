// A topic and a look at it in sentences: how it keeps records; how many were found, how far was looked, why it stopped. Pure.

import { bytes, number } from "./format.js";
import { moment } from "./record_text.js";
import { kept } from "./topics.js";

const SPENT = {
  records: ({ looked }) => `${number(looked)} records are the most of one look`,
  bytes: ({ looked_bytes }) => `${bytes(looked_bytes)} are the most of one look`,
  seconds: () => "its time was over",
};

function count(records) {
  if (!records.length) return "No record";
  return records.length === 1 ? "1 record" : `${number(records.length)} records`;
}

/** How a topic keeps its records, and whose clock their times are of. */
export function aboutSentence(topic) {
  const clocks = { append: " Times are by Kafka's clock.", create: " Times are by the producers' clocks." };
  return `Keeps ${kept(topic)}.${clocks[topic.time_type] ?? ""}`;
}

/** `asked` is the question of the look `found`. */
export function lookSentence(found, asked) {
  const sentences = [`${count(found.records)}${asked.key ? " with this key" : ""}.`];
  const back = asked.from === "newest" || asked.from === "before";
  if (found.gone) sentences.push("That offset is not there: retention took it, or it is not written yet.");
  if (asked.key || found.spent) {
    const far = found.spent && typeof found.back_to_ms === "number" ? ` ${back ? "back" : "up"} to ${moment(found.back_to_ms)}` : "";
    const where = typeof found.only_partition === "number" ? ` of partition ${found.only_partition} (where this key is)` : "";
    sentences.push(`Looked at ${number(found.looked)} records${where}${far}.`);
  }
  if (found.spent) sentences.push(`It stopped there: ${SPENT[found.spent]?.(found) ?? found.spent}. ${back ? "Older" : "Newer"} goes on.`);
  if (found.silent?.length) sentences.push(`▲ No answer for partition ${found.silent.join(", ")}.`);
  return sentences.join(" ");
}
