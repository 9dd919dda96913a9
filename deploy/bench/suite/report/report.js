"use strict";
(() => {
  const all = JSON.parse(document.getElementById("charts").textContent);
  const colours = ["#1b74bb", "#d9541e", "#2a9d4a", "#8a4fc3", "#b38600", "#c2357f", "#118a8a", "#7a5c42"];
  const OPEN = 2; // groups of a scenario; the others open at a click
  const NAMED = [0.301, 1, 2, 3, 4, 5];
  const drawn = new Map();
  let text = "", line = {};
  const readColours = () => {
    const style = getComputedStyle(document.documentElement);
    text = style.getPropertyValue("--text").trim();
    line = { stroke: style.getPropertyValue("--line").trim(), width: 1 };
  };
  const percentile = (nines) => (nines >= 5 ? "max" : `p${+(100 * (1 - 10 ** -nines)).toPrecision(4)}`);
  const number = (value) => (value == null ? "" : value.toLocaleString("en", { maximumSignificantDigits: 4 }));
  const brief = (value) => (value == null ? "" : value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 4 }));
  const axis = (values) => ({ stroke: text, grid: line, ticks: line, size: 60, ...(values ? { values } : {}) });
  const serie = (name, index) => ({
    label: name, stroke: colours[index % colours.length], width: 1.5, spanGaps: true,
    dash: index >= colours.length ? [6, 4] : undefined, points: { size: 6 }, value: (_plot, value) => number(value),
  });
  const fromZero = { range: (_plot, _low, high) => [0, (high || 1) * 1.05] };

  const marked = (chart, second) => {
    const before = chart.marks.filter(([at]) => at <= second);
    return before.length ? ` (${before.at(-1)[1]})` : "";
  };
  const drawMarks = (chart) => (plot) => {
    plot.ctx.save();
    plot.ctx.strokeStyle = line.stroke;
    plot.ctx.setLineDash([2, 3]);
    for (const [at] of chart.marks) {
      const x = Math.round(plot.valToPos(at, "x", true));
      if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
      plot.ctx.beginPath();
      plot.ctx.moveTo(x, plot.bbox.top);
      plot.ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
      plot.ctx.stroke();
    }
    plot.ctx.restore();
  };

  const kinds = {
    percentile: () => ({
      xName: percentile, x: "percentile", axis: { splits: () => NAMED },
      scale: { range: (_plot, low, high) => [low - 0.1, high + 0.1] },
    }),
    time: (chart) => ({
      xName: (value) => `${number(value)} s`, x: "time", axis: {}, scale: {},
      xLegend: chart.marks && ((value) => `${number(value)} s${marked(chart, value)}`),
      hooks: chart.marks ? { draw: [drawMarks(chart)] } : {},
    }),
    growth: () => ({ xName: number, x: "at", axis: {}, scale: { distr: 3 } }),
    bars: (chart) => {
      const width = chart.names.length + 1;
      const label = (place) => chart.labels[Math.floor(place / width)];
      return {
        xName: label, x: chart.axis || "cell", scale: { range: (_plot, low, high) => [low - 1, high + 1] }, height: 300,
        axis: { splits: () => chart.labels.map((_name, index) => index * width + (width - 2) / 2), rotate: -60, size: Math.min(160, 25 + 6 * Math.max(...chart.labels.map((name) => name.length))), grid: { show: false } },
        serie: (index) => ({ paths: uPlot.paths.bars({ size: [0.95, 40] }), points: { show: false }, fill: colours[index % colours.length], width: 0 }),
      };
    },
  };

  const draw = (box, chart) => {
    const kind = kinds[chart.kind](chart);
    const logarithmic = chart.logarithmic || chart.kind === "growth";
    drawn.get(box)?.destroy();
    drawn.set(box, new uPlot({
      title: chart.title, width: Math.min(620, box.clientWidth || 620), height: kind.height || 260, hooks: kind.hooks || {},
      scales: { x: { time: false, ...kind.scale }, y: logarithmic ? { distr: 3 } : fromZero },
      axes: [{ ...axis((_plot, values) => values.map(kind.xName)), size: 40, ...kind.axis }, axis((_plot, values) => values.map(brief))],
      series: [{ label: kind.x, value: (_plot, value) => (value == null ? "" : (kind.xLegend || kind.xName)(value)) },
        ...chart.names.map((name, index) => ({ ...serie(name, index), ...(kind.serie ? kind.serie(index) : {}) }))],
    }, chart.data, box));
  };

  const charts = new Map();
  // A chart is drawn when it comes near: a report of all scenarios has hundreds.
  const near = new IntersectionObserver((found) => {
    for (const { isIntersecting, target } of found) {
      if (isIntersecting) { near.unobserve(target); draw(target, charts.get(target)); }
    }
  }, { rootMargin: "600px" });

  readColours();
  for (const place of document.querySelectorAll("[data-charts]")) {
    const groups = Map.groupBy ? Map.groupBy(all[place.dataset.charts], (chart) => chart.group)
      : all[place.dataset.charts].reduce((found, chart) => found.set(chart.group, [...(found.get(chart.group) || []), chart]), new Map());
    for (const [name, members] of groups) {
      const group = place.appendChild(document.createElement("details"));
      group.open = place.childElementCount <= OPEN;
      group.appendChild(document.createElement("summary")).textContent = `${name} (${members.length})`;
      const row = group.appendChild(document.createElement("div"));
      row.className = "charts";
      for (const chart of members) {
        const box = row.appendChild(document.createElement("div"));
        box.className = "chart";
        charts.set(box, chart);
        near.observe(box);
      }
    }
  }

  const redraw = (boxes) => { readColours(); for (const box of boxes) draw(box, charts.get(box)); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw([...drawn.keys()]));
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const one of closed) one.open = true;
    document.documentElement.classList.add("printed"); // paper is white
    redraw(charts.keys());
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printed");
    for (const one of closed) one.open = false;
    redraw([...drawn.keys()]);
  });
})();
