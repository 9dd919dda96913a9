// Detects a missing canary: by the state of its part, and by a gap between its readings that is longer than usual.

import { duration } from "./format.js";

const LEAST_SECONDS = 10;
const TIMES = 3;
const REMEMBERED = 30;
/** The limit until the usual gap is known. */
const AT_FIRST_SECONDS = 15;

const inSeconds = (value) => duration(Math.round(value));

/** The longest wait in words. An older canary does not report it: the time since the last reading is then its lower bound. */
function oldestWait(canary) {
  if (canary?.oldest_wait_seconds > 0) return inSeconds(canary.oldest_wait_seconds);
  return typeof canary?.last_seen_seconds_ago === "number" ? `${inSeconds(canary.last_seen_seconds_ago)} or longer` : null;
}

/** Learns the usual gap between readings from the snapshots. Readings come back in batches, seconds apart on a slow machine. */
export class CanaryWatch {
  #seenAt = null;
  #gaps = [];

  /** null while readings come back; else {state, word, waits}, where `waits` is the wait of the oldest reading in words. */
  look({ at, canary, parts }) {
    const seconds = canary?.last_seen_seconds_ago;
    const part = parts?.canary;
    const down = part && !["ready", "done", "unknown"].includes(part.state) ? part.state : null;
    if (typeof seconds !== "number") {
      const bad = down === "failed" || down === "stopped" || down === "down";
      return { state: bad ? "bad" : down ? "warn" : "unknown", word: down ?? "not seen yet", waits: oldestWait(canary) };
    }
    this.#learn(at - seconds);
    if (!down && seconds <= this.#limit()) return null;
    return { state: "bad", word: `missing for ${inSeconds(seconds)}`, waits: oldestWait(canary) };
  }

  #learn(seenAt) {
    const gap = this.#seenAt === null ? null : seenAt - this.#seenAt;
    if (gap !== null && gap < 0.5) return; // the same reading, or clock jitter
    this.#seenAt = seenAt;
    if (gap !== null) this.#gaps = [...this.#gaps, gap].slice(-REMEMBERED);
  }

  #limit() {
    if (this.#gaps.length < 3) return AT_FIRST_SECONDS;
    const sorted = [...this.#gaps].sort((a, b) => a - b);
    return Math.max(LEAST_SECONDS, TIMES * sorted[sorted.length >> 1]);
  }
}
