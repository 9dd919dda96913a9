// Redrives dead letters: first a dry run with its report, then, after a second click, the real run.

import { ErrorAnswer, ask } from "./api.js";
import { el, fill } from "./dom.js";
import { number } from "./format.js";
import { nameNode } from "./name.js";
import { askSession, tokenForm } from "./login.js";
import { failure, openPanel } from "./panel.js";
import { stepNodes } from "./steps.js";

/** @import { Child } from "./dom.js" */
/** @import { RedriveReport } from "./types.js" */

const COUNTS = [
  ["letters", "dead letters judged"],
  ["accepted", "accepted"],
  ["readings", "readings"],
  ["partial", "accepted, with parts still rejected"],
  ["stored", "already stored"],
];
const LISTS = [
  ["refused", "rejected again"],
  ["ignored", "ignored by rule"],
  ["skipped", "skipped"],
];

/** @param {string[]} ids @param {boolean} dryRun @returns {Promise<RedriveReport>} */
async function post(ids, dryRun) {
  const body = JSON.stringify({ ids, dry_run: dryRun });
  return ask("/api/redrive", {}, { method: "POST", headers: { "Content-Type": "application/json" }, body });
}

/** A report as rows; fields of a later version are left out. @param {RedriveReport & Record<string, any>} report */
function reportNodes(report) {
  const row = (/** @type {string} */ name, /** @type {number} */ value) =>
    el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "figure" }, number(value)));
  const counts = COUNTS.filter(([key]) => typeof report[key] === "number").map(([key, name]) => row(name, report[key]));
  const lists = LISTS.flatMap(([key, name]) => {
    /** @type {Record<string, number>} */
    const counted = report[key] ?? {};
    return Object.entries(counted).map(([why, count]) => row(`${name}: ${why}`, count));
  });
  const examples = (report.examples ?? []).map((example) =>
    el(
      "li",
      {},
      el("code", {}, example.id ?? ""),
      " ",
      nameNode(
        [example.reason ?? example.ending, example.path, example.why, example.wanted && `wanted ${example.wanted}`]
          .filter(Boolean)
          .join(", "),
      ),
    ),
  );
  return [
    el("table", { class: "report" }, el("tbody", {}, counts, lists)),
    examples.length ? [el("h4", {}, "Examples"), el("ul", {}, examples)] : [],
  ].flat();
}

const NAMED = 3;

/**
 * Ids without a dead letter; a mistyped or expired id must not look like a judged one.
 * @param {RedriveReport} report
 */
function unknownNodes({ unknown }) {
  const ids = Array.isArray(unknown) ? unknown : [];
  const count = ids.length || (typeof unknown === "number" ? unknown : 0);
  if (!count) return null;
  const more = ids.length > 10 ? `, and ${number(ids.length - 10)} more` : "";
  const which = ids.length ? [": ", nameNode(ids.slice(0, 10).join(", ")), more] : [];
  const what = count === 1 ? "No dead letter has this id" : `No dead letter has these ${number(count)} ids`;
  return el("p", { class: "note" }, what, which, ".");
}

/**
 * The next step if nothing would be accepted, and buttons that lead back to the dead letters.
 * @param {string[]} ids
 * @param {string} next
 * @param {(id: string) => void} open
 */
function insteadNodes(ids, next, open) {
  const back = ids
    .slice(0, NAMED)
    .map((id) => el("button", { type: "button", class: "button", on: { click: () => open(id) } }, `Back to dead letter ${id}`));
  return [
    el("h3", {}, "Nothing would be accepted"),
    el("div", {}, next ? stepNodes(next) : "Each dead letter lists its next step. Fix the profile, route, registry or device first."),
    el("p", { class: "row" }, back),
  ];
}

/**
 * Opens the panel for these dead letters.
 * @param {string[]} ids
 * @param {object} options
 * @param {boolean} options.allowed True if the monitor allows redrives.
 * @param {string} options.next The next step of a single dead letter.
 * @param {(id: string) => void} options.open Shows a dead letter again.
 * @param {() => void} options.done Called after a real run.
 */
export function openRedrive(ids, { allowed, next, open, done }) {
  const what = `${number(ids.length)} ${ids.length === 1 ? "dead letter" : "dead letters"}`;
  const body = openPanel(`Redrive ${what}`);
  const show = (/** @type {(Child | Child[])[]} */ ...nodes) => fill(body, el("div", { class: "stack" }, nodes.flat()));
  if (!allowed) {
    show(
      el("p", {}, "This page is read-only: the monitor has no token file for redrives."),
      el(
        "p",
        {},
        "Set ",
        el("code", {}, "monitoring.page_token_file"),
        ", or run ",
        el("code", {}, "tidegate dlq redrive"),
        ".",
      ),
    );
    return;
  }
  const refused = (/** @type {unknown} */ error, /** @type {() => void} */ again) => {
    if (!(error instanceof ErrorAnswer) || (error.status !== 401 && error.status !== 403)) return show(failure(error));
    return show(tokenForm(failure(error), again));
  };
  /** @type {(dryRun: boolean) => Promise<void>} */
  const run = async (dryRun) => {
    const doing = dryRun ? "Judging the dead letters; nothing is written …" : "Redriving …";
    const waiting = el("p", { class: "muted", role: "status" }, doing);
    show(waiting);
    // The panel may show something newer by then. The result of a real run is shown all the same.
    const isWanted = () => {
      if (!waiting.isConnected && !dryRun) openPanel(`Redrive ${what}`);
      return waiting.isConnected || !dryRun;
    };
    try {
      if ((await askSession()).role !== "write") {
        const why = el("p", {}, "A redrive writes to Kafka and needs the monitor's token.");
        if (isWanted()) show(tokenForm(why, () => run(dryRun)));
        return;
      }
      const report = await post(ids, dryRun);
      if (isWanted()) (dryRun ? preview : finished)(report);
    } catch (error) {
      if (isWanted()) refused(error, () => run(dryRun));
    }
  };
  const preview = (/** @type {RedriveReport} */ report) => {
    const go = el(
      "button",
      { type: "button", class: "button danger", on: { click: () => run(false) } },
      `Redrive ${what} now`,
    );
    go.disabled = !report.accepted && !Object.keys(report.ignored ?? {}).length;
    show(
      el("p", { role: "status" }, "Dry run: a redrive would have this result. Nothing was written."),
      unknownNodes(report),
      reportNodes(report),
      el("p", {}, go),
      go.disabled ? insteadNodes(ids, next, open) : null,
    );
    if (!go.disabled) go.focus();
  };
  const finished = (/** @type {RedriveReport} */ report) => {
    show(
      el("p", { role: "status" }, "Done. The journal holds the outcome of each dead letter. A second redrive stores nothing twice."),
      unknownNodes(report),
      reportNodes(report),
    );
    done();
  };
  run(true);
}
