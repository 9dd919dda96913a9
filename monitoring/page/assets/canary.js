// Detects a missing canary: by the state of its part, and by a gap between its readings that is longer than usual.

import { duration } from "./format.js";

/** @import { Canary, Snapshot, State } from "./types.js" */
/** @typedef {{ state: State, word: string, waits: string | null }} CanaryFault `waits` is the wait of the oldest reading. */

const LEAST_SECONDS = 10;
const TIMES = 3;
const REMEMBERED = 30;
/** The limit until the usual gap is known. */
const AT_FIRST_SECONDS = 15;

const inSeconds = (/** @type {number} */ value) => duration(Math.round(value));

/**
 * The longest wait in words. An older canary does not report it: the time since the last reading is then its lower bound.
 * @param {Canary | undefined} canary
 */
function oldestWait(canary) {
  const waited = canary?.oldest_wait_seconds ?? 0;
  if (waited > 0) return inSeconds(waited);
  return typeof canary?.last_seen_seconds_ago === "number" ? `${inSeconds(canary.last_seen_seconds_ago)} or longer` : null;
}

/** Learns the usual gap between readings from the snapshots. Readings come back in batches, seconds apart on a slow machine. */
export class CanaryWatch {
  /** @type {number | null} */
  #seenAt = null;
  /** @type {number[]} */
  #gaps = [];

  /** Returns null while readings come back. @param {Snapshot} snapshot @returns {CanaryFault | null} */
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

  /** @param {number} seenAt */
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
