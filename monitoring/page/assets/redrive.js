// Redriving dead letters: first a dry run and its report, then, after a second click, in earnest.

import { ask } from "./api.js";
import { el, fill } from "./dom.js";
import { number } from "./format.js";
import { nameNode } from "./name.js";
import { failure, openPanel } from "./panel.js";
import { stepNodes } from "./steps.js";
import { keepToken, token } from "./token.js";

const COUNTS = [
  ["letters", "letters judged"],
  ["accepted", "accepted"],
  ["readings", "readings"],
  ["partial", "accepted with parts still refused"],
  ["stored", "stored already"],
];
const LISTS = [
  ["refused", "refused again"],
  ["ignored", "ignored by rule"],
  ["skipped", "skipped"],
];

async function post(ids, dryRun) {
  return ask(
    "/api/redrive",
    {},
    {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${token()}` },
      body: JSON.stringify({ ids, dry_run: dryRun }),
    },
  );
}

/** A report as rows; what a later version adds is left out rather than guessed. */
function reportNodes(report) {
  const row = (name, value) =>
    el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "figure" }, number(value)));
  const counts = COUNTS.filter(([key]) => typeof report[key] === "number").map(([key, name]) => row(name, report[key]));
  const lists = LISTS.flatMap(([key, name]) =>
    Object.entries(report[key] ?? {}).map(([why, count]) => row(`${name}: ${why}`, count)),
  );
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

/** Ids that no letter has; a mistyped or aged one must not look like one that was judged. */
function unknownNodes({ unknown }) {
  const ids = Array.isArray(unknown) ? unknown : [];
  const count = ids.length || (typeof unknown === "number" ? unknown : 0);
  if (!count) return null;
  const more = ids.length > 10 ? `, and ${number(ids.length - 10)} more` : "";
  const which = ids.length ? [": ", nameNode(ids.slice(0, 10).join(", ")), more] : [];
  const what = count === 1 ? "No dead letter has this id" : `No dead letter has these ${number(count)} ids`;
  return el("p", { class: "note" }, what, which, ".");
}

/** What to do where nothing would be accepted: the letter's own next step, and the way back to it. */
function insteadNodes(ids, next, open) {
  const back = ids
    .slice(0, NAMED)
    .map((id) => el("button", { type: "button", class: "button", on: { click: () => open(id) } }, `Back to letter ${id}`));
  return [
    el("h3", {}, "Nothing would be accepted"),
    el("div", {}, next ? stepNodes(next) : "Each letter says its next step: mend the profile, route, registry or device first."),
    el("p", { class: "row" }, back),
  ];
}

function tokenForm(why, then) {
  const input = el("input", {
    type: "password",
    name: "token",
    autocomplete: "off",
    required: true,
    spellcheck: "false",
  });
  const submit = (event) => {
    event.preventDefault();
    keepToken(input.value.trim());
    then();
  };
  return el(
    "form",
    { class: "stack", on: { submit } },
    why,
    el("label", {}, "Token ", input),
    el(
      "p",
      { class: "muted small" },
      "It is the first line of the token file (embedded run: ",
      el("code", {}, "<data>/page-token"),
      "). It stays in this tab.",
    ),
    el("button", { type: "submit", class: "button" }, "Use this token"),
  );
}

/**
 * Opens the panel for these letters. `allowed` says whether the server has a token at all; `next` is the one letter's next step,
 * `open(id)` shows a letter again, `done` is called after a real run.
 */
export function openRedrive(ids, { allowed, next, open, done }) {
  const what = `${number(ids.length)} ${ids.length === 1 ? "letter" : "letters"}`;
  const body = openPanel(`Redrive ${what}`);
  const show = (...nodes) => fill(body, el("div", { class: "stack" }, nodes.flat()));
  if (!allowed) {
    show(
      el("p", {}, "This page only shows: the monitor has no token file, so nothing can be changed from here."),
      el(
        "p",
        {},
        "Name one in the setting ",
        el("code", {}, "monitoring.page_token_file"),
        ", or use ",
        el("code", {}, "tidegate dlq redrive"),
        ".",
      ),
    );
    return;
  }
  const refused = (error, again) => {
    if (error.status !== 401 && error.status !== 403) return show(failure(error));
    keepToken("");
    return show(tokenForm(failure(error), again));
  };
  const run = async (dryRun) => {
    if (!token())
      return show(
        tokenForm(el("p", {}, "Redriving writes to Kafka, so it needs the monitor's token."), () => run(dryRun)),
      );
    show(
      el("p", { class: "muted", role: "status" }, dryRun ? "Judging the letters; nothing is written …" : "Redriving …"),
    );
    try {
      const report = await post(ids, dryRun);
      return dryRun ? preview(report) : finished(report);
    } catch (error) {
      return refused(error, () => run(dryRun));
    }
  };
  const preview = (report) => {
    const go = el(
      "button",
      { type: "button", class: "button danger", on: { click: () => run(false) } },
      `Redrive ${what} now`,
    );
    go.disabled = !report.accepted && !Object.keys(report.ignored ?? {}).length;
    show(
      el("p", { role: "status" }, "Dry run: this is what would happen. Nothing was written."),
      unknownNodes(report),
      reportNodes(report),
      el("p", {}, go),
      go.disabled ? insteadNodes(ids, next, open) : null,
    );
    if (!go.disabled) go.focus();
  };
  const finished = (report) => {
    show(
      el("p", { role: "status" }, "Done. Each letter's end is in the journal; a second redrive stores nothing twice."),
      unknownNodes(report),
      reportNodes(report),
    );
    done();
  };
  run(true);
}
