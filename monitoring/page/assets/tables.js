// Delta tables: age of the last commit, size, and small files that maintenance joins.

import { bytes, duration } from "./format.js";
import { showName } from "./name.js";
import { makeTable, showFigure } from "./table.js";

/** @import { TableFigures, Update } from "./types.js" */

/** @param {Element} root @returns {Update} */
export function mountTables(root) {
  const table = makeTable({
    label: "Tables",
    keyOf: (/** @type {TableFigures} */ item) => item.name,
    empty: "No tables yet. The stream creates them.",
    columns: [
      { head: "Table", row: true, show: (cell, item) => showName(cell, item.name) },
      {
        head: "Last commit",
        figure: true,
        show: (cell, item) =>
          showFigure(cell, item.last_commit_seconds_ago, (value) =>
            typeof value === "number" ? `${duration(value)} ago` : "–",
          ),
      },
      { head: "Version", figure: true, show: (cell, item) => showFigure(cell, item.version) },
      { head: "Files", figure: true, show: (cell, item) => showFigure(cell, item.files) },
      { head: "Small files", figure: true, show: (cell, item) => showFigure(cell, item.small_files) },
      { head: "Size", figure: true, show: (cell, item) => showFigure(cell, item.bytes, bytes) },
    ],
  });
  root.append(table.node);
  return (snapshot) => table.update(snapshot.tables ?? []);
}
