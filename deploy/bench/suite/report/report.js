"use strict";
(() => {
  const all = JSON.parse(document.getElementById("charts").textContent);
  const colours = ["#1b74bb", "#d9541e", "#2a9d4a", "#8a4fc3", "#b38600", "#c2357f", "#118a8a", "#7a5c42"];
  const style = getComputedStyle(document.documentElement);
  const text = style.getPropertyValue("--text").trim();
  const line = { stroke: style.getPropertyValue("--line").trim(), width: 1 };
  const NAMED = [0.301, 1, 2, 3, 4, 5];
  const percentile = (nines) => (nines >= 5 ? "max" : `p${+(100 * (1 - 10 ** -nines)).toPrecision(4)}`);
  const axis = (values) => ({ stroke: text, grid: line, ticks: line, size: 62, ...(values ? { values } : {}) });
  const number = (value) => (value == null ? "" : value.toLocaleString("en", { maximumSignificantDigits: 4 }));
  const serie = (name, index) => ({
    label: name, stroke: colours[index % colours.length], width: 1.5, spanGaps: true,
    dash: index >= colours.length ? [6, 4] : undefined, points: { size: 6 }, value: (_plot, value) => number(value),
  });

  for (const place of document.querySelectorAll("[data-charts]")) {
    for (const chart of all[place.dataset.charts]) {
      const box = place.appendChild(document.createElement("div"));
      box.className = "chart";
      const curve = chart.kind === "percentile", growth = chart.kind === "growth";
      const xName = curve ? percentile : growth ? number : (value) => `${value} s`;
      new uPlot({
        title: chart.title, width: Math.min(620, place.clientWidth), height: 260,
        scales: growth ? { x: { time: false, distr: 3 }, y: { distr: 3 } } : { x: { time: false, ...(curve ? { range: (_plot, low, high) => [low - 0.1, high + 0.1] } : {}) }, y: { range: (_plot, _low, high) => [0, (high || 1) * 1.05] } },
        axes: [
          { ...axis((_plot, values) => values.map(xName)), size: 40, ...(curve ? { splits: () => NAMED } : {}) },
          axis((_plot, values) => values.map(number)),
        ],
        series: [{ label: curve ? "percentile" : growth ? "at" : "time", value: (_plot, value) => (value == null ? "" : xName(value)) },
          ...chart.names.map(serie)],
      }, chart.data, box);
    }
  }
})();
