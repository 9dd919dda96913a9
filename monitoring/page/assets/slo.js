// Objectives: the good share, and the rest of the error budget.

import { attr, el, write } from "./dom.js";
import { budgetLeft, duration, percent, share } from "./format.js";
import { setState, stateBadge } from "./state.js";
import { showFigure } from "./table.js";

const MEANING = {
  freshness: (slo) => `Canary readings queryable within ${duration(slo.threshold_seconds)}`,
  validity: () => "Messages that are not rejected",
};

const NEXT = {
  freshness: ["Find the slow hop: ", "#latency", "Latency"],
  validity: ["Find the rejection reasons: ", "#errors", "Errors"],
};
const BURN_RATES = "Burn-rate alerts report this. They need Prometheus and at least 40 min of data";

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
  const update = (slo, burnRates) => {
    write(meaning, `${MEANING[id](slo)}${slo.window_seconds ? `, last ${duration(slo.window_seconds)}` : ""}`);
    showFigure(good, slo.good_ratio, (ratio) => share(ratio, slo.objective));
    showFigure(goal, slo.objective, percent);
    showFigure(left, slo.budget_left, budgetLeft);
    const known = typeof slo.budget_left === "number";
    const part = known ? Math.max(0, Math.min(1, slo.budget_left)) : 0;
    fillBar.style.width = `${100 * part}%`;
    attr(bar, "aria-valuenow", Math.round(100 * part));
    attr(bar, "aria-valuetext", known ? budgetLeft(slo.budget_left) : "unknown");
    const state = !known ? "unknown" : slo.budget_left <= 0 ? "bad" : slo.budget_left < 0.25 ? "warn" : "ok";
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

export function mountObjectives(root) {
  const parts = Object.keys(MEANING).map((id) => [id, makeObjective(id)]);
  root.append(...parts.map(([, part]) => part.node));
  return (snapshot) => {
    for (const [id, part] of parts) part.update(snapshot.slo?.[id] ?? {}, snapshot.burn_rate_alerts === true);
  };
}
