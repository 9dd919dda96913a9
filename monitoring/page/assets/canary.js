// Whether the canary is missing: by its part's state, and by how long nothing came back against what is usual for it.

import { duration } from "./format.js";

const LEAST_SECONDS = 10;
const TIMES = 3;
const REMEMBERED = 30;
/** Until the usual gap is known. */
const AT_FIRST_SECONDS = 15;

const inSeconds = (value) => duration(Math.round(value));

/** Since nothing came back, one waits at least as long; an older canary tells no more. */
function oldestWait(canary) {
  if (canary?.oldest_wait_seconds > 0) return inSeconds(canary.oldest_wait_seconds);
  return typeof canary?.last_seen_seconds_ago === "number" ? `${inSeconds(canary.last_seen_seconds_ago)} or longer` : null;
}

/** Learns from look to look how far apart readings come back: in batches, so seconds lie between them on a slow machine. */
export class CanaryWatch {
  #seenAt = null;
  #gaps = [];

  /** null while it comes through; else {state, word, waits}: how long its oldest reading waits, in words. */
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
    if (gap !== null && gap < 0.5) return; // the same reading, or a clock that trembles
    this.#seenAt = seenAt;
    if (gap !== null) this.#gaps = [...this.#gaps, gap].slice(-REMEMBERED);
  }

  #limit() {
    if (this.#gaps.length < 3) return AT_FIRST_SECONDS;
    const sorted = [...this.#gaps].sort((a, b) => a - b);
    return Math.max(LEAST_SECONDS, TIMES * sorted[sorted.length >> 1]);
  }
}
