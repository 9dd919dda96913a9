// Sentences about a topic's retention and about a search of its records. Pure functions.

import { bytes, number } from "./format.js";
import { moment } from "./record_text.js";
import { kept } from "./topics.js";

/** @import { FoundRecords, KafkaRecord, Topic } from "./types.js" */
/** @import { Question } from "./topic_form.js" */

/** @type {Record<string, (found: FoundRecords) => string>} */
const SPENT = {
  records: ({ looked }) => `its limit of ${number(looked)} records`,
  bytes: ({ looked_bytes }) => `its limit of ${bytes(looked_bytes)}`,
  seconds: () => "its time limit",
};

/** @param {KafkaRecord[]} records */
function count(records) {
  if (!records.length) return "No records";
  return records.length === 1 ? "1 record" : `${number(records.length)} records`;
}

/** The retention of a topic, and the clock of its records' times. @param {Topic} topic */
export function aboutSentence(topic) {
  /** @type {Record<string, string>} */
  const clocks = { append: " Record times are by Kafka's clock.", create: " Record times are by the producers' clocks." };
  return `Retention: ${kept(topic)}.${clocks[topic.time_type ?? ""] ?? ""}`;
}

/**
 * The result of a search; `asked` is the request that gave `found`.
 * @param {FoundRecords} found
 * @param {Question} asked
 */
export function lookSentence(found, asked) {
  const sentences = [`${count(found.records)}${asked.key ? " with this key" : ""}.`];
  const back = asked.from === "newest" || asked.from === "before";
  if (found.gone) sentences.push("This offset does not exist: retention deleted it, or it is not written yet.");
  if (asked.key || found.spent) {
    const far = found.spent && typeof found.back_to_ms === "number" ? ` ${back ? "back" : "up"} to ${moment(found.back_to_ms)}` : "";
    const where = typeof found.only_partition === "number" ? ` of partition ${found.only_partition} (the key's partition)` : "";
    sentences.push(`Searched ${number(found.looked)} records${where}${far}.`);
  }
  if (found.spent) sentences.push(`The search stopped at ${SPENT[found.spent]?.(found) ?? found.spent}. Press ${back ? "Older" : "Newer"} to continue.`);
  if (found.silent?.length) sentences.push(`▲ No answer for partition${found.silent.length > 1 ? "s" : ""} ${found.silent.join(", ")}.`);
  return sentences.join(" ");
}
