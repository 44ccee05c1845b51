// The timeline: nodes as rows, GPUs as lanes, holdings as bars. Only the rows that are seen are drawn.

import { colours, jobPaint, onScheme, plainPaint } from "./paint.js";
import { TIME_STEPS_S, byId, clusterNow, duration, el, jobLink, jobPath, moment, plural, say } from "./text.js";

const AXIS = 22;
const GROUP = 20;
const ROW_LEAST = 15;
const PAD = 3;
const AHEAD = 0.18; // of the width: what is expected
const SIGNS = { lost: "✕ ", draining: "◌ ", slow: "▾ " };
const ENDS = {
  checkpointed: "checkpointed",
  completed: "completed",
  failed: "failed",
  refused: "refused",
  interrupted: "interrupted",
  quota: "its share done",
  "node-lost": "node lost",
  "agent-restarted": "agent restarted",
};
const LABEL_LEAST = 46;
const FONT = "system-ui, sans-serif";

export class Timeline {
  constructor(model, changedRange) {
    this.model = model;
    this.changedRange = changedRange;
    this.box = byId("lanes");
    this.canvas = byId("canvas");
    this.context = this.canvas.getContext("2d");
    this.rows = [];
    this.span = 0; // seconds shown; 0: all there is
    this.end = null; // of what is shown; null: follows the clock
    this.hits = [];
    this.chosen = null; // {node, holding}
    this.#listen();
  }

  // ---- what is shown when

  range() {
    const now = clusterNow();
    const first = this.model.first() ?? now - 60;
    const past = this.span || Math.max((now - first) * 1.02, 60);
    const whole = past / (1 - AHEAD);
    const end = this.end ?? now + whole * AHEAD;
    return { from: end - whole, until: end, now };
  }

  show(span) {
    this.span = span;
    this.end = null;
    this.draw();
  }

  zoom(factor) {
    const { from, until, now } = this.range();
    const least = 10;
    this.span = Math.max((until - from) * (1 - AHEAD) * factor, least);
    if (this.end !== null) this.#endAt((from + until) / 2 + (this.span / (1 - AHEAD)) / 2, now);
    this.draw();
  }

  /** Ends what is shown at a time; where that would be further ahead than it ever follows the clock, it follows it. */
  #endAt(at, now) {
    const ahead = (this.span / (1 - AHEAD)) * AHEAD;
    this.end = at < now + ahead ? at : null;
  }

  // ---- rows

  layout() {
    const nodes = [...this.model.nodes].sort(
      (a, b) => order(a.gpu_type, b.gpu_type) || order(a.node_id, b.node_id),
    );
    const all = nodes.reduce((sum, node) => sum + node.gpus, 0);
    const lane = Math.max(2, Math.min(10, Math.floor((520 - nodes.length * 2 * PAD) / Math.max(all, 1))));
    this.rows = [];
    let top = AXIS;
    let type = null;
    for (const node of nodes) {
      if (node.gpu_type !== type) {
        type = node.gpu_type;
        const alike = nodes.filter((each) => each.gpu_type === type);
        const gpus = alike.reduce((sum, each) => sum + each.gpus, 0);
        this.rows.push({ top, height: GROUP, title: `${type}: ${plural(alike.length, "node")}, ${plural(gpus, "GPU")}` });
        top += GROUP;
      }
      const height = Math.max(node.gpus * lane, ROW_LEAST) + 2 * PAD;
      this.rows.push({ top, height, node, lane: (height - 2 * PAD) / node.gpus });
      top += height;
    }
    const total = `${top + 4}px`;
    const spacer = byId("spacer");
    if (spacer.style.height !== total) spacer.style.height = total;
  }

  draw() {
    this.layout();
    const width = this.box.clientWidth;
    const height = Math.min(this.box.clientHeight, this.box.scrollHeight);
    if (!width || !height) return;
    this.#size(width, height);
    this.gutter = width < 600 ? 78 : 132;
    const range = this.range();
    const scale = (width - this.gutter) / (range.until - range.from);
    const view = { ...range, width, height, x: (at) => this.gutter + (at - range.from) * scale };
    const draw = this.context;
    const paint = colours();
    draw.fillStyle = paint.back;
    draw.fillRect(0, 0, width, height);
    this.hits = [];
    const scrolled = this.box.scrollTop;
    for (const row of this.rows) {
      const top = row.top - scrolled;
      if (top + row.height < AXIS || top > height) continue;
      if (row.title) this.#group(view, row, top);
      else this.#row(view, row, top);
    }
    this.#moves(view, scrolled);
    this.#axis(view);
    this.#name();
    this.changedRange(range, this.gutter);
  }

  #size(width, height) {
    const ratio = devicePixelRatio || 1;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      [this.canvas.width, this.canvas.height] = [w, h];
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  #group(view, row, top) {
    this.#text(row.title, 8, top + row.height / 2 + 1, colours().muted, `600 11px ${FONT}`, view.width - 16);
  }

  #row(view, row, top) {
    const draw = this.context;
    const paint = colours();
    const { node } = row;
    const here = this.model.byNode.get(node.node_id) ?? { holdings: [], spells: [], planned: [] };
    draw.fillStyle = paint.line;
    draw.fillRect(0, top, view.width, 1);
    draw.save();
    draw.beginPath();
    draw.rect(this.gutter, Math.max(top, AXIS), view.width - this.gutter, row.height);
    draw.clip();
    const over = Math.max(...here.holdings.map((each) => each.until ?? view.now), -Infinity);
    for (const spell of here.spells) this.#spell(view, row, top, spell, spell.until === null ? over : -Infinity);
    for (const holding of here.holdings) this.#holding(view, row, top, holding);
    this.#planned(view, row, top, here);
    draw.restore();
    if (this.chosen?.node === node.node_id) {
      draw.strokeStyle = paint.ink;
      draw.lineWidth = 1.5;
      draw.strokeRect(1, top + 1, view.width - 2, row.height - 1);
    }
    const ink = node.state === "alive" ? paint.ink : paint.muted;
    const sign = SIGNS[node.state] ?? (node.slow == null ? "" : SIGNS.slow);
    draw.font = `11px ${FONT}`;
    const name = fitted(draw, node.node_id, this.gutter - 14 - draw.measureText(sign).width, true);
    this.#text(sign + name, 8, top + row.height / 2 + 1, ink, `11px ${FONT}`, this.gutter);
  }

  /** `over`: when the last holding of the node ends. */
  #spell(view, row, top, spell, over) {
    const [left, right] = this.#across(view, spell.since, spell.until ?? view.now);
    if (right < this.gutter || left > view.width) return;
    const draw = this.context;
    const lost = spell.state === "lost";
    draw.fillStyle = plainPaint(draw, lost ? "cross" : "falling", lost);
    draw.fillRect(left, top + 1, right - left, row.height - 1);
    const free = Math.max(left, this.gutter, view.x(over));
    if (right - free > LABEL_LEAST) this.#label(spell.state, free + 6, top + row.height / 2 + 1, right);
  }

  #holding(view, row, top, holding) {
    const [left, right] = this.#across(view, holding.since, holding.until ?? view.now);
    const end = holding.until === null ? (this.model.expected[holding.placement_id] ?? null) : null;
    const ahead = end === null ? right : Math.min(Math.max(view.x(end), right), view.width + 2);
    if (ahead < this.gutter || left > view.width) return;
    const draw = this.context;
    const paint = holding.measures
      ? { fill: plainPaint(draw, "dots", true), edge: colours().muted }
      : jobPaint(draw, holding.job_id);
    const chosen = this.chosen?.holding ?? null;
    draw.globalAlpha = chosen && chosen.job_id !== holding.job_id ? 0.35 : 1;
    let tallest = null;
    for (const [first, count] of runsOf(holding.gpu_indices)) {
      const y = top + PAD + first * row.lane;
      const height = Math.max(count * row.lane - 1, 1);
      draw.fillStyle = paint.fill;
      draw.fillRect(left, y, right - left, height);
      draw.strokeStyle = paint.edge;
      draw.lineWidth = chosen && same(chosen, holding) ? 2.5 : 1;
      draw.strokeRect(left + 0.5, y + 0.5, Math.max(right - left - 1, 0.5), Math.max(height - 1, 0.5));
      if (ahead > right + 1) this.#outline(right, y, ahead - right, height, paint.edge);
      this.hits.push({ left, right: ahead, top: y, bottom: y + height, node: row.node.node_id, holding });
      if (!tallest || height > tallest.height) tallest = { y, height };
    }
    const from = Math.max(left, this.gutter);
    if (tallest.height >= 10 && right - from > LABEL_LEAST) {
      this.#label(holding.job_id, from + 4, tallest.y + tallest.height / 2 + 0.5, right - 2);
    }
    draw.globalAlpha = 1;
  }

  /** What has not begun lies beyond the line of now, on the last GPUs that nothing holds. */
  #planned(view, row, top, here) {
    const held = new Set(here.holdings.filter((each) => each.until === null).flatMap((each) => each.gpu_indices));
    const free = [...Array(row.node.gpus).keys()].filter((index) => !held.has(index));
    for (const placement of here.planned) {
      const indices = free.splice(0, placement.gpus);
      const [first, count] = [indices[0] ?? 0, indices.length || placement.gpus];
      const left = view.x(view.now);
      const y = top + PAD + first * row.lane;
      const height = Math.max(Math.min(count, row.node.gpus) * row.lane - 1, 2);
      this.#outline(left, y, view.width - left - 2, height, jobPaint(this.context, placement.job_id).edge);
      const holding = { ...placement, node_id: row.node.node_id, planned: true };
      this.hits.push({ left, right: view.width, top: y, bottom: y + height, node: row.node.node_id, holding });
      if (height >= 10) this.#label(`planned: ${placement.job_id}`, left + 4, y + height / 2 + 0.5, view.width - 4);
    }
  }

  #outline(left, top, width, height, edge) {
    const draw = this.context;
    draw.setLineDash([3, 3]);
    draw.strokeStyle = edge;
    draw.lineWidth = 1;
    draw.strokeRect(left + 0.5, top + 0.5, width - 1, Math.max(height - 1, 0.5));
    draw.setLineDash([]);
  }

  /** Lines between one place of the chosen job and the next. */
  #moves(view, scrolled) {
    const job = this.chosen?.holding?.job_id;
    const places = (job && this.model.byJob.get(job)) || [];
    const draw = this.context;
    draw.save();
    draw.beginPath();
    draw.rect(this.gutter, AXIS, view.width - this.gutter, view.height - AXIS);
    draw.clip();
    draw.strokeStyle = colours().ink;
    draw.lineWidth = 1.5;
    for (const [here, next] of movesOf(places)) {
      const [from, to] = [this.#middle(here), this.#middle(next)];
      if (from === null || to === null) continue;
      draw.beginPath();
      draw.moveTo(view.x(here.until), from - scrolled);
      draw.lineTo(view.x(next.since), to - scrolled);
      draw.stroke();
      draw.fillStyle = colours().ink;
      draw.fillRect(view.x(next.since) - 2.5, to - scrolled - 2.5, 5, 5);
    }
    draw.restore();
  }

  #middle(holding) {
    const row = this.rows.find((each) => each.node?.node_id === holding.node_id);
    if (!row) return null;
    const first = holding.gpu_indices[0] ?? 0;
    return row.top + PAD + (first + holding.gpu_indices.length / 2) * row.lane;
  }

  #axis(view) {
    const draw = this.context;
    const paint = colours();
    draw.fillStyle = paint.back;
    draw.fillRect(0, 0, view.width, AXIS);
    const wanted = ((view.until - view.from) / (view.width - this.gutter)) * 90;
    const step = TIME_STEPS_S.find((each) => each >= wanted) ?? TIME_STEPS_S.at(-1);
    const now = view.x(view.now);
    for (let at = Math.ceil(view.from / step) * step; at < view.until; at += step) {
      const x = view.x(at);
      if (x > view.width - 30) break;
      draw.fillStyle = paint.strong;
      draw.fillRect(x, AXIS - 5, 1, 5);
      if (Math.abs(x - now) > 52) this.#text(moment(at, step >= 60), x + 3, 11, paint.muted, `11px ${FONT}`, 90);
    }
    draw.fillStyle = paint.strong;
    draw.fillRect(0, AXIS - 1, view.width, 1);
    if (now < this.gutter || now > view.width) return;
    draw.fillStyle = paint.now;
    draw.fillRect(now - 0.75, 5, 1.5, view.height);
    this.#text("now", now + 4, 11, paint.now, `600 11px ${FONT}`, 40);
  }

  #across(view, since, until) {
    const left = Math.max(view.x(since), this.gutter - 4);
    return [left, Math.min(Math.max(view.x(until), left + 1), view.width + 2)];
  }

  #label(text, x, y, right) {
    const draw = this.context;
    draw.save();
    draw.beginPath();
    draw.rect(x - 3, y - 8, Math.max(right - x, 0), 16);
    draw.clip();
    draw.font = `11px ${FONT}`;
    draw.textBaseline = "middle";
    draw.lineWidth = 3;
    draw.strokeStyle = colours().back;
    draw.globalAlpha *= 0.75;
    draw.strokeText(text, x, y);
    draw.globalAlpha /= 0.75;
    draw.fillStyle = colours().ink;
    draw.fillText(text, x, y);
    draw.restore();
  }

  #text(text, x, y, ink, font, most) {
    const draw = this.context;
    draw.font = font;
    draw.fillStyle = ink;
    draw.textBaseline = "middle";
    draw.fillText(fitted(draw, text, most), x, y);
  }

  #name() {
    const nodes = this.model.nodes.length;
    const open = [...this.model.holdings.values()].filter((each) => each.until === null);
    const jobs = new Set(open.map((each) => each.job_id)).size;
    const name = `${plural(nodes, "node")}, ${plural(jobs, "job")} on their GPUs`;
    if (this.canvas.getAttribute("aria-label") !== name) this.canvas.setAttribute("aria-label", name);
  }

  // ---- pointer and keys

  #listen() {
    const redraw = () => this.draw();
    this.box.addEventListener("scroll", redraw, { passive: true });
    new ResizeObserver(redraw).observe(this.box);
    onScheme(redraw);
    this.box.addEventListener("keydown", (event) => this.#key(event));
    this.canvas.addEventListener("click", (event) => {
      if (this.dragged) return;
      const hit = this.#at(event);
      this.#choose(hit?.node ?? null, hit?.holding ?? null, false);
    });
    this.canvas.addEventListener("dblclick", (event) => this.#open(this.#at(event)?.holding));
    this.canvas.addEventListener("pointermove", (event) => this.#over(event));
    this.canvas.addEventListener("pointerdown", (event) => {
      this.drag = { x: event.clientX, ...this.range() };
      this.dragged = false;
    });
    for (const over of ["pointerup", "pointercancel"]) addEventListener(over, () => (this.drag = null));
  }

  #over(event) {
    if (this.drag) {
      const moved = event.clientX - this.drag.x;
      if (Math.abs(moved) > 4) this.dragged = true;
      if (!this.dragged) return;
      const scale = (this.drag.until - this.drag.from) / (this.box.clientWidth - this.gutter);
      this.span = (this.drag.until - this.drag.from) * (1 - AHEAD);
      this.#endAt(this.drag.until - moved * scale, clusterNow());
      this.draw();
      return;
    }
    const hit = this.#at(event);
    this.canvas.style.cursor = hit ? "pointer" : "default";
    if (!this.chosen) this.#read(hit?.node ?? null, hit?.holding ?? null, false);
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    return this.hits.findLast((hit) => x >= hit.left && x <= hit.right && y >= hit.top - 1 && y <= hit.bottom + 1);
  }

  #key(event) {
    const moves = {
      ArrowDown: () => this.#node(1),
      ArrowUp: () => this.#node(-1),
      ArrowRight: () => this.#step(1),
      ArrowLeft: () => this.#step(-1),
      Enter: () => this.#open(this.chosen?.holding),
      Escape: () => this.#choose(null, null, true),
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      End: () => this.show(this.span),
    };
    const act = moves[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  #node(way) {
    const nodes = this.rows.filter((row) => row.node);
    if (!nodes.length) return;
    const at = nodes.findIndex((row) => row.node.node_id === this.chosen?.node);
    const row = nodes[Math.min(Math.max(at + way, 0), nodes.length - 1)];
    const box = this.box;
    if (row.top - AXIS < box.scrollTop) box.scrollTop = row.top - AXIS - GROUP;
    if (row.top + row.height > box.scrollTop + box.clientHeight) box.scrollTop = row.top + row.height - box.clientHeight + 8;
    const here = this.model.byNode.get(row.node.node_id)?.holdings ?? [];
    this.#choose(row.node.node_id, here.findLast((each) => each.until === null) ?? here.at(-1) ?? null, true);
  }

  #step(way) {
    if (!this.chosen) return this.#node(1);
    const here = this.model.byNode.get(this.chosen.node)?.holdings ?? [];
    const at = here.findIndex((each) => this.chosen.holding && same(each, this.chosen.holding));
    const next = here[Math.min(Math.max(at + way, 0), here.length - 1)];
    if (next) this.#choose(this.chosen.node, next, true);
  }

  #open(holding) {
    if (holding) location.hash = jobPath(holding.job_id);
  }

  #choose(node, holding, aloud) {
    this.chosen = node === null ? null : { node, holding };
    this.#read(node, holding, aloud);
    this.draw();
  }

  /** What is under the pointer or chosen, in words; by keys it is read out. */
  #read(node, holding, aloud) {
    const out = byId("readout");
    out.setAttribute("aria-live", aloud ? "polite" : "off");
    const ratio = this.model.nodes.find((each) => each.node_id === node)?.slow ?? null;
    const slow = ratio === null ? "" : `; the node is slow: ${ratio.toFixed(2)} of its peers`;
    if (!holding) return say(out, node ? `${node}: nothing ran here${slow}` : "");
    const text = this.#sentence(node, holding) + slow;
    if (out.textContent === holding.job_id + text) return undefined;
    out.replaceChildren(jobLink(holding.job_id), el("span", {}, text));
  }

  #sentence(node, holding) {
    if (holding.planned) return ` is planned for ${plural(holding.gpus, "GPU")} of ${node}`;
    const what = holding.measures ? "is measured on" : "on";
    const gpus = `GPU ${holding.gpu_indices.join(", ")} of ${node}`;
    if (holding.until === null) return ` ${what} ${gpus} since ${moment(holding.since)}`;
    const length = duration(holding.until - holding.since);
    return ` ${what} ${gpus}, ${moment(holding.since)} to ${moment(holding.until)} (${length}; ${ENDS[holding.end] ?? (holding.end || "over")})`;
  }
}

const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

const same = (a, b) => a.placement_id === b.placement_id && a.node_id === b.node_id && a.since === b.since;

/** Neighbouring GPUs as [first, count]. */
export function runsOf(indices) {
  const runs = [];
  for (const index of [...indices].sort((a, b) => a - b)) {
    const last = runs.at(-1);
    if (last && last[0] + last[1] === index) last[1] += 1;
    else runs.push([index, 1]);
  }
  return runs;
}

/** Of a job's holdings, each pair of one that ended and the first that began elsewhere after it. */
function movesOf(places) {
  const found = [];
  for (const here of places) {
    if (here.until === null) continue;
    const next = places.find((each) => each.since >= here.until && each.placement_id !== here.placement_id);
    if (next) found.push([here, next]);
  }
  return found;
}

/** Cut to `most` pixels; of names that begin alike the end says more. */
function fitted(draw, text, most, fromEnd = false) {
  if (draw.measureText(text).width <= most) return text;
  const cut = (length) => (fromEnd ? `…${text.slice(text.length - length)}` : `${text.slice(0, length)}…`);
  let length = text.length - 1;
  while (length > 1 && draw.measureText(cut(length)).width > most) length -= 1;
  return cut(length);
}
