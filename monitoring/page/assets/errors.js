// What was refused, by reason; a reason leads to its dead letters.

import { el, fill, write } from "./dom.js";
import { number, percent } from "./format.js";
import { makeTable, showFigure } from "./table.js";

export function mountErrors(root, chooseReason) {
  const share = el("output", { class: "big" });
  const table = makeTable({
    label: "Refusals by reason",
    keyOf: (item) => item.reason,
    cap: 40,
    empty: "Nothing was refused since the gateway started.",
    columns: [
      {
        head: "Reason",
        row: true,
        show: (cell, item) => {
          if (cell.dataset.reason === item.reason) return;
          cell.dataset.reason = item.reason;
          fill(
            cell,
            el(
              "button",
              { type: "button", class: "link", on: { click: () => chooseReason(item.reason) } },
              item.reason.slice(0, 200),
            ),
          );
        },
      },
      { head: "per second", figure: true, show: (cell, item) => showFigure(cell, item.per_second, number) },
      { head: "in all", figure: true, show: (cell, item) => showFigure(cell, item.total, number) },
    ],
  });
  const now = el("p", {}, share, " of messages are refused now");
  const periods = "Per second: of the last 10 s. In all: since the gateway started.";
  root.append(now, table.node, el("p", { class: "muted small" }, periods));
  return (snapshot) => {
    const { received, dead_lettered: refused } = snapshot.rates ?? {};
    const ratio =
      typeof received === "number" && typeof refused === "number" ? (received > 0 ? refused / received : 0) : null;
    showFigure(share, ratio, percent);
    write(
      now.lastChild,
      received > 0 || ratio === null ? " of messages are refused now" : " refused now: nothing comes in",
    );
    table.update(snapshot.errors ?? [], ratio !== null);
  };
}
