// The path of a reading as six boxes in a row; the arrows show the flow between them.

import { attr, el, keyed, shape, write } from "./dom.js";
import { figure, number } from "./format.js";
import { setState, stateBadge } from "./state.js";
import { showFigure } from "./table.js";

/** @import { Figure, Snapshot, Station, StationFigure, Update } from "./types.js" */

const ARROW = "M1 7h9V3.5l5 4.5-5 4.5V9H1z";
/** @type {Record<string, string>} */
const PLACES = {
  devices: "#devices",
  broker: "#parts-title",
  gateway: "#errors",
  kafka: "#kafka",
  stream: "#latency",
  tables: "#tables",
};

/** @param {Snapshot} snapshot */
function lagOf(snapshot) {
  const lags = Object.values(snapshot.lag ?? {}).filter((lag) => typeof lag === "number");
  return lags.length ? lags.reduce((sum, lag) => sum + lag, 0) : null;
}

/**
 * Figure, tooltip unit and short unit of the arrow into each box.
 * @type {Record<string, (snapshot: Snapshot) => [Figure, string, string]>}
 */
const BETWEEN = {
  broker: (s) => [s.rates?.received, "messages/s", "msg/s"],
  gateway: (s) => [s.rates?.received, "messages/s", "msg/s"],
  kafka: (s) => [s.rates?.acknowledged ?? s.rates?.accepted, "messages/s acknowledged", "msg/s"],
  stream: (s) => [lagOf(s), "records waiting", "lag"],
  tables: (s) => [s.rates?.rows, "rows/s", "rows/s"],
};

function makeFigure() {
  const name = el("dt");
  const value = el("dd");
  return {
    node: el("div", {}, name, value),
    update: (/** @type {StationFigure} */ item) => {
      write(name, item.name);
      showFigure(value, item.value, (v) => figure(v, item.unit));
    },
  };
}

function makeBox() {
  const label = el("a", { class: "box-label" });
  const badge = stateBadge();
  const main = el("span", { class: "box-main" });
  const mainName = el("span", { class: "muted" });
  const figures = el("dl", { class: "box-figures" });
  const detail = el("p", { class: "box-detail" });
  const between = el("span");
  const unit = el("span", { class: "muted" });
  const arrow = el("div", { class: "arrow" }, between, shape(ARROW, "arrow-shape"), unit);
  const box = el(
    "div",
    { class: "box" },
    el("div", { class: "box-top" }, label, badge),
    el("p", {}, main, " ", mainName),
    figures,
    detail,
  );
  const node = el("li", { class: "hop" }, arrow, box);
  return {
    node,
    update: (/** @type {{ part: Station, snapshot: Snapshot }} */ { part, snapshot }) => {
      write(label, part.label);
      attr(label, "href", PLACES[part.id] ?? "#flow");
      attr(node, "data-hop", part.id);
      attr(box, "data-state", part.state);
      setState(badge, part.state);
      const [first, ...rest] = part.figures ?? [];
      showFigure(main, first?.value, (v) => figure(v, first?.unit ?? ""));
      write(mainName, first?.name ?? "");
      keyed(figures, rest.slice(0, 6), (item) => item.name, makeFigure);
      write(detail, part.detail ?? "");
      const on = BETWEEN[part.id]?.(snapshot);
      arrow.hidden = !on;
      if (!on) return;
      showFigure(between, on[0], number);
      write(unit, on[2]);
      attr(arrow, "title", `${number(on[0])} ${on[1]}`);
    },
  };
}

/** @param {Element} root @returns {Update} */
export function mountFlow(root) {
  const list = el("ol", { class: "flow" });
  root.append(list);
  return (snapshot) =>
    keyed(
      list,
      (snapshot.flow ?? []).map((part) => ({ part, snapshot })),
      ({ part }) => part.id,
      makeBox,
    );
}
