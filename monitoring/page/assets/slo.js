// Objectives: the good share, and the rest of the error budget.

import { attr, el, write } from "./dom.js";
import { budgetLeft, duration, percent, share } from "./format.js";
import { setState, stateBadge } from "./state.js";
import { showFigure } from "./table.js";

/** @import { Objective, Update } from "./types.js" */
/** @typedef {keyof typeof MEANING} ObjectiveId */

const MEANING = {
  freshness: (/** @type {Partial<Objective>} */ slo) => `Canary readings queryable within ${duration(slo.threshold_seconds)}`,
  validity: () => "Messages that are not rejected",
};

/** @type {Record<ObjectiveId, [string, string, string]>} */
const NEXT = {
  freshness: ["Find the slow hop: ", "#latency", "Latency"],
  validity: ["Find the rejection reasons: ", "#errors", "Errors"],
};
const BURN_RATES = "Burn-rate alerts report this. They need Prometheus and at least 40 min of data";

/** @param {ObjectiveId} id */
function makeObjective(id) {
  const badge = stateBadge();
  const good = el("dd");
  const goal = el("dd");
  const left = el("dd");
  const meaning = el("p", { class: "muted small" });
  const fillBar = el("span");
  const bar = el(
    "div",
    {
      class: "budget",
      role: "meter",
      "aria-label": `Error budget left: ${id}`,
      "aria-valuemin": "0",
      "aria-valuemax": "100",
    },
    fillBar,
  );
  const [sentence, href, place] = NEXT[id];
  const rules = el("span");
  const next = el("p", { class: "small next", hidden: true }, sentence, el("a", { href }, place), ". ", rules);
  const node = el(
    "div",
    { class: "objective", "data-slo": id },
    el("div", { class: "box-top" }, el("h3", {}, id[0].toUpperCase() + id.slice(1)), badge),
    meaning,
    el(
      "dl",
      { class: "strip" },
      el("div", {}, el("dt", {}, "good"), good),
      el("div", {}, el("dt", {}, "objective"), goal),
      el("div", {}, el("dt", {}, "budget left"), left),
    ),
    bar,
    next,
  );
  const update = (/** @type {Partial<Objective>} */ slo, /** @type {boolean} */ burnRates) => {
    write(meaning, `${MEANING[id](slo)}${slo.window_seconds ? `, last ${duration(slo.window_seconds)}` : ""}`);
    showFigure(good, slo.good_ratio, (ratio) => share(ratio, slo.objective));
    showFigure(goal, slo.objective, percent);
    showFigure(left, slo.budget_left, budgetLeft);
    const rest = slo.budget_left ?? null;
    const part = rest === null ? 0 : Math.max(0, Math.min(1, rest));
    fillBar.style.width = `${100 * part}%`;
    attr(bar, "aria-valuenow", Math.round(100 * part));
    attr(bar, "aria-valuetext", rest === null ? "unknown" : budgetLeft(rest));
    const state = rest === null ? "unknown" : rest <= 0 ? "bad" : rest < 0.25 ? "warn" : "ok";
    attr(bar, "data-state", state);
    next.hidden = state !== "bad" && state !== "warn";
    rules.hidden = state !== "bad";
    write(rules, `${BURN_RATES}${burnRates ? "" : "; Prometheus is not available"}.`);
    setState(
      badge,
      state,
      { ok: "within budget", warn: "budget low", bad: "budget spent", unknown: "unknown" }[state],
    );
  };
  return { node, update };
}

/** @param {Element} root @returns {Update} */
export function mountObjectives(root) {
  const ids = /** @type {ObjectiveId[]} */ (Object.keys(MEANING));
  const parts = ids.map((id) => ({ id, ...makeObjective(id) }));
  root.append(...parts.map(({ node }) => node));
  return (snapshot) => {
    for (const { id, update } of parts) update(snapshot.slo?.[id] ?? {}, snapshot.burn_rate_alerts === true);
  };
}
