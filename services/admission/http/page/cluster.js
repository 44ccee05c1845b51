// The cluster at a glance: GPUs and jobs in numbers, metrics, services, nodes.

import { Table } from "./table.js";
import { byId, clock, clusterNow, duration, el, moment, number, percent, plural, say } from "./text.js";

const JOB_STATES = ["submitted", "profiled", "queued", "preempted", "running", "completed", "failed", "cancelled", "rejected"];

const FIGURES = [
  ["Mean JCT", "jct_s_mean", duration],
  ["JCT p95", "jct_s_p95", duration],
  ["Mean waiting time", "wt_s_mean", duration],
  ["Mean latency ratio", "lr_mean", number],
  ["Recent latency ratio", "raqlr", number],
  ["Mean FTF ρ", "ftf_rho_mean", number],
  ["Jobs with ρ > 1", "ftf_unfair_share", percent],
  ["GPUs busy", "gru", percent],
  ["Nodes busy", "cru", percent],
  ["Mean GPUs in fragments", "fragments_mean", number],
  ["Mean throughput in GPUs", "cluster_throughput_mean", number],
  ["Restarts", "restarts", number],
  ["Lost work, GPU time", "lost_work_gpu_s", duration],
  ["Decision p50", "decision_s_p50", duration],
  ["Decision p99", "decision_s_p99", duration],
  ["Largest gap", "gap_max", percent],
];

export class Cluster {
  constructor() {
    this.tiles = new Map();
    this.services = new Table(byId("services-table"), {
      caption: "Services and how they are",
      key: instanceName,
      empty: "No service has reported.",
      columns: [
        { name: "Service", text: instanceName },
        { name: "State", text: (service) => service.state, node: (service) => mark(service.state, service.state === "up") },
        { name: "Restarts", kind: "number", text: (service) => number(service.restarts) },
        { name: "Trouble", text: (service) => [service.last_error, ...service.troubles].filter(Boolean).join("; ") || "none" },
      ],
    });
    this.nodes = new Table(byId("nodes"), {
      caption: "Nodes, their GPUs and the jobs on them",
      key: (node) => node.node_id,
      empty: "No node has joined.",
      columns: [
        { name: "Node", text: (node) => node.node_id },
        { name: "Type", text: (node) => node.gpu_type },
        { name: "State", text: (node) => node.state, node: (node) => mark(node.state, node.state === "alive") },
        { name: "In use", kind: "number", text: (node) => `${node.used} of ${node.gpus}` },
        { name: "Jobs", text: (node) => node.jobs },
      ],
    });
  }

  status(status) {
    say(byId("policy"), status.policy ? `policy ${status.policy}` : "no plan yet");
    this.#gpus(status.gpus);
    this.#counts(status);
    this.#figures(status.metrics);
    this.services.update(status.services);
  }

  time() {
    const pace = clock.speed === 1 ? "" : ` (${number(clock.speed)} × time)`;
    say(byId("clock"), moment(clusterNow()) + pace);
  }

  #gpus(types) {
    const place = byId("gpus");
    for (const [type, [busy, all]] of Object.entries(types)) {
      const tile = this.tiles.get(type) ?? this.#tile(place, type);
      say(tile.number, `${busy} of ${all} GPUs`);
      tile.meter.max = Math.max(all, 1);
      tile.meter.value = busy;
    }
    for (const [type, tile] of this.tiles) {
      if (type in types) continue;
      tile.box.remove();
      this.tiles.delete(type);
    }
  }

  #tile(place, type) {
    const shown = { number: el("strong"), meter: el("meter", { min: "0", "aria-label": `GPUs of ${type} in use` }) };
    shown.box = el("div", { class: "tile" }, el("span", {}, type), shown.number, shown.meter);
    place.append(shown.box);
    this.tiles.set(type, shown);
    return shown;
  }

  #counts(status) {
    const shown = JOB_STATES.filter((state) => status.jobs[state]).map((state) => [state, number(status.jobs[state])]);
    for (const [state, count] of Object.entries(status.nodes)) if (count) shown.push([`${count === 1 ? "node" : "nodes"} ${state}`, number(count)]);
    terms(byId("counts"), shown.length ? shown : [["jobs", "none yet"]]);
  }

  #figures(metrics) {
    terms(byId("figures"), FIGURES.map(([name, key, format]) => [name, format(metrics[key])]));
  }

  showNodes(model) {
    if (!byId("nodes-fold").open) return;
    this.nodes.update(model.nodes.map((node) => ({ ...node, ...onNode(model, node) })));
  }
}

/** The first instance has the name of its service. */
const instanceName = ({ name, instance }) => (instance === 1 ? name : `${name}-${instance}`);

function onNode(model, node) {
  const open = (model.byNode.get(node.node_id)?.holdings ?? []).filter((each) => each.until === null);
  const used = open.reduce((sum, each) => sum + each.gpu_indices.length, 0);
  return { used, jobs: open.map((each) => `${each.job_id} (${plural(each.gpu_indices.length, "GPU")})`).join(", ") || "none" };
}

/** A state in words, with a sign before it: ● well, ▲ not. */
export function mark(text, well) {
  return el("span", { class: well ? "state-well" : "state-ill" }, text);
}

/** Terms and what they are, kept where they are while only the values change. */
export function terms(list, pairs) {
  const names = pairs.map(([name]) => name).join("\n");
  if (list.named !== names) {
    list.named = names;
    list.replaceChildren(...pairs.map(([name]) => el("div", {}, el("dt", {}, name), el("dd"))));
  }
  pairs.forEach(([, value], index) => say(list.children[index].lastChild, value));
}
