// The record filter of a topic: its start, partition and key, as fields and as a request.

import { attr, el, fill } from "./dom.js";

/** @typedef {{ from: string, partition: string, key: string, at?: string | number }} Question A request for records. */

const BEGINS = { newest: "newest", oldest: "oldest", time: "time", offset: "offset" };

/** The time of a field, which is in the browser's zone, as epoch ms; null if it is invalid. @param {string} text */
function epochMs(text) {
  const found = new Date(text).getTime();
  return Number.isNaN(found) ? null : found;
}

/** Epoch ms in the format of the field. @param {number} ms */
function local(ms) {
  const date = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000);
  return date.toISOString().slice(0, 19);
}

/** @param {string} text @param {HTMLElement} field */
function labelled(text, field) {
  return el("label", {}, `${text} `, field);
}

export class TopicForm {
  /**
   * Calls `changed()` when the filter changes, and `follow(on)` when following is switched on or off.
   * @param {{ changed: () => void, follow: (on: boolean) => void }} calls
   */
  constructor({ changed, follow }) {
    this.begin = el("select", { name: "from" }, Object.entries(BEGINS).map(([value, text]) => el("option", { value }, text)));
    this.time = el("input", { name: "time", type: "datetime-local", step: "1" });
    this.offset = el("input", { name: "offset", type: "search", inputmode: "numeric", pattern: "[0-9]*", placeholder: "0", autocomplete: "off" });
    this.partition = el("select", { name: "partition" });
    this.key = el("input", { name: "key", type: "search", placeholder: "all keys", autocomplete: "off", spellcheck: "false", autocapitalize: "none" });
    this.following = el("input", { name: "follow", type: "checkbox" });
    this.places = [labelled("Time", this.time), labelled("Offset", this.offset)];
    this.node = el(
      "form",
      { class: "row filter", "aria-label": "Record filter", on: { submit: (event) => (event.preventDefault(), changed()) } },
      labelled("From", this.begin),
      this.places,
      labelled("Partition", this.partition),
      labelled("Key", this.key),
      el("button", { type: "submit", class: "button" }, "Show"),
      labelled("Follow", this.following),
    );
    this.begin.addEventListener("change", () => this.#arrange() || changed());
    this.partition.addEventListener("change", changed);
    this.following.addEventListener("change", () => follow(this.following.checked));
    this.offer([]);
    this.#arrange();
  }

  /** Offers these partitions. @param {number[]} partitions */
  offer(partitions) {
    const chosen = this.partition.value;
    const wanted = ["", ...partitions.map(String)];
    if (chosen && !wanted.includes(chosen)) wanted.push(chosen); // requested by an address
    if (wanted.join() === [...this.partition.options].map((each) => each.value).join()) return;
    fill(this.partition, wanted.map((value) => el("option", { value }, value || "all")));
    this.partition.value = chosen;
  }

  /** Resets the form to the newest records, or to what an address asks for. @param {URLSearchParams} asked */
  reset(asked) {
    const from = asked.get("from") ?? "";
    this.begin.value = Object.hasOwn(BEGINS, from) ? from : "newest";
    this.offset.value = asked.get("offset") ?? "";
    this.time.value = local(Date.now() - 3_600_000);
    this.key.value = asked.get("key") ?? "";
    this.following.checked = false;
    fill(this.partition, el("option", { value: "" }, "all"));
    const partition = asked.get("partition") ?? "";
    if (/^\d{1,9}$/.test(partition)) {
      this.partition.append(el("option", { value: partition }, partition));
      this.partition.value = partition;
    }
    this.#arrange();
  }

  /** The request, or an error message. @returns {Question | string} */
  question() {
    const [from, partition, key] = [this.begin.value, this.partition.value, this.key.value];
    if (from === "time") {
      const at = epochMs(this.time.value);
      return at === null ? "Enter a start time." : { from, at, partition, key };
    }
    if (from !== "offset") return { from, partition, key };
    if (partition === "") return "Choose a partition: offsets are counted per partition.";
    const at = this.offset.value.trim() || "0";
    return /^\d{1,18}$/.test(at) ? { from, at, partition, key } : "Invalid offset: enter a whole number, such as 0.";
  }

  /** Shows the field that the start needs; returns true if a time or an offset must be entered first. */
  #arrange() {
    const from = this.begin.value;
    attr(this.places[0], "hidden", from !== "time");
    attr(this.places[1], "hidden", from !== "offset");
    return from === "time" || from === "offset";
  }
}
