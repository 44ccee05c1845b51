// Charts by uPlot: GPUs in use along the timeline, and a job's throughput, predicted beside measured.

import { colours, onScheme } from "./paint.js";
import { TIME_STEPS_S, byId, moment, number, say } from "./text.js";

const FONT = "11px system-ui, sans-serif";
/** Steps between marks that count GPUs. */
const WHOLE_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000];
const stepped = () => window.uPlot.paths.stepped({ align: 1 });

function axes(size, yFormat, yMarks = {}) {
  const { muted, line } = colours();
  const plain = { stroke: muted, font: FONT, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 } };
  return [
    { ...plain, size: 26, gap: 2, space: 90, incrs: TIME_STEPS_S, values: times, grid: { show: false } },
    { ...plain, size, ...yMarks, values: (_, values) => values.map(yFormat) },
  ];
}

/** Of marks too near to the right edge the text would be cut. */
function times(plot, marks, _axis, _space, step) {
  const { min, max } = plot.scales.x;
  return marks.map((at) => (max - at < (max - min) * 0.03 ? "" : moment(at, step >= 60)));
}

const QUIET = { legend: { show: false }, cursor: { show: false }, select: { show: false } };

/** A chart that is made again when the scheme or the width changes, and else only given its data. */
class Chart {
  constructor(place, options) {
    this.place = place;
    this.options = options;
    this.plot = null;
    this.data = null;
    this.gutter = null;
    this.over = new AbortController();
    onScheme(() => this.#make(), this.over.signal);
    this.sizes = new ResizeObserver(() => this.plot && this.place.clientWidth !== this.plot.width && this.#make());
    this.sizes.observe(place);
  }

  show(data, gutter = 60) {
    this.data = data;
    if (!this.plot || gutter !== this.gutter) {
      this.gutter = gutter;
      this.#make();
    } else this.plot.setData(data);
  }

  /** Without it the listeners would keep the chart, and with it the page that it was on. */
  end() {
    this.over.abort();
    this.sizes.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  #make() {
    if (!this.data || !this.place.clientWidth) return;
    this.plot?.destroy();
    const options = { ...QUIET, width: this.place.clientWidth, ...this.options(this.gutter) };
    this.plot = new window.uPlot(options, this.data, this.place);
  }
}

/** GPUs in use below the timeline, over the same range. */
export class UseChart {
  constructor(model) {
    this.model = model;
    this.range = [0, 1];
    this.chart = new Chart(byId("use"), (gutter) => this.#options(gutter));
  }

  show({ from, until, now }, gutter) {
    this.range = [from, until];
    const [times, used, there] = this.model.use(from, now);
    this.chart.show([times, used, there], gutter);
    say(byId("use-text"), `${number(used.at(-1))} of ${number(there.at(-1))} now. The dashed line is all GPUs of nodes that are not lost.`);
  }

  #options(gutter) {
    const { edges, fills, muted } = colours();
    return {
      height: 96,
      padding: [8, 0, 0, 0],
      scales: { x: { time: false, range: () => this.range }, y: { range: (_, low, high) => [0, Math.max(high, 1) * 1.08] } },
      axes: axes(gutter, (value) => number(value), { incrs: WHOLE_STEPS, space: 20 }),
      series: [
        {},
        { stroke: edges[0], fill: `${fills[0]}99`, width: 1.5, paths: stepped(), points: { show: false } },
        { stroke: muted, dash: [4, 4], width: 1, paths: stepped(), points: { show: false } },
      ],
    };
  }
}

/** Throughput of a job's runs: predicted dashed, measured solid. */
export class SpeedChart {
  constructor(place) {
    this.chart = new Chart(place, () => this.#options());
  }

  show(runs, now) {
    const [times, predicted, measured] = [[], [], []];
    for (const run of runs) {
      for (const at of [run.started_at, run.ended_at ?? now]) {
        times.push(at);
        predicted.push(run.estimated_throughput);
        measured.push(run.measured_throughput);
      }
      times.push((run.ended_at ?? now) + 1e-6);
      predicted.push(null);
      measured.push(null);
    }
    this.chart.show([times, predicted, measured]);
  }

  end() {
    this.chart.end();
  }

  #options() {
    const { edges } = colours();
    return {
      height: 150,
      padding: [8, 12, 0, 0],
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, (high || 1) * 1.15] } },
      axes: axes(60, (value) => number(value)),
      series: [
        {},
        { stroke: edges[1], dash: [5, 4], width: 2, points: { show: false } },
        { stroke: edges[0], width: 2, points: { show: false } },
      ],
    };
  }
}
