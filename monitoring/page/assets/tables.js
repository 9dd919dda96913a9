// The Delta tables: how fresh they are, and whether their files need compaction.

import { bytes, duration } from "./format.js";
import { showName } from "./name.js";
import { makeTable, showFigure } from "./table.js";

export function mountTables(root) {
  const table = makeTable({
    label: "Tables",
    keyOf: (item) => item.name,
    empty: "No table yet: the stream writes the first one.",
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
      { head: "of them small", figure: true, show: (cell, item) => showFigure(cell, item.small_files) },
      { head: "Size", figure: true, show: (cell, item) => showFigure(cell, item.bytes, bytes) },
    ],
  });
  root.append(table.node);
  return (snapshot) => table.update(snapshot.tables ?? []);
}
