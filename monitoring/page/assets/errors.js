// Rejections by reason; each reason links to its dead letters.

import { el, fill, write } from "./dom.js";
import { number, percent } from "./format.js";
import { makeTable, showFigure } from "./table.js";

/** @import { Rejections, Update } from "./types.js" */

/** @param {Element} root @param {(reason: string) => void} chooseReason @returns {Update} */
export function mountErrors(root, chooseReason) {
  const share = el("output", { class: "big" });
  const table = makeTable({
    label: "Rejections by reason",
    keyOf: (/** @type {Rejections} */ item) => item.reason,
    cap: 40,
    empty: "No rejections since the gateway started.",
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
      { head: "Per second", figure: true, show: (cell, item) => showFigure(cell, item.per_second, number) },
      { head: "Total", figure: true, show: (cell, item) => showFigure(cell, item.total, number) },
    ],
  });
  const rest = document.createTextNode(" of messages are rejected now");
  const now = el("p", {}, share, rest);
  const periods = "Per second: average of the last 10 s. Total: since the gateway started.";
  root.append(now, table.node, el("p", { class: "muted small" }, periods));
  return (snapshot) => {
    const [received, refused] = [snapshot.rates?.received, snapshot.rates?.dead_lettered];
    const known = typeof received === "number" && typeof refused === "number";
    const arrive = known && received > 0;
    showFigure(share, known ? (arrive ? refused / received : 0) : null, percent);
    write(rest, arrive || !known ? " of messages are rejected now" : " rejected now: no messages arrive");
    table.update(snapshot.errors ?? [], known);
  };
}
