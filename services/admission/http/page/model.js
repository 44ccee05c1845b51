// What the timeline knows: holdings and spells by revision, as the API hands out their changes.

import { get } from "./api.js";

const PARTS_MOST = 20; // of one reading: the API keeps fewer changes than that

export class Model {
  constructor() {
    this.clear();
  }

  clear() {
    this.revision = 0;
    this.at = 0;
    this.completeFrom = null;
    this.nodes = [];
    this.planned = [];
    this.expected = {};
    this.holdings = new Map();
    this.spells = new Map();
    this.byNode = new Map();
    this.byJob = new Map();
  }

  /** Reads what has changed; all of it anew if the history began again, or has dropped what we did not see end. */
  async read() {
    for (let part = 0; part < PARTS_MOST; part++) {
      const asked = this.revision;
      const view = await get(`v1/timeline?after=${asked}`);
      if (this.revision !== asked) continue; // it began again meanwhile
      if (view.revision < this.revision || (this.revision && view.complete_from > this.at)) {
        this.clear();
        continue;
      }
      this.#take(view);
      if (!view.more) break;
    }
  }

  #take(view) {
    for (const each of view.holdings) this.holdings.set(`${each.placement_id}/${each.node_id}/${each.since}`, each);
    for (const each of view.spells) this.spells.set(`${each.node_id}/${each.state}/${each.since}`, each);
    this.revision = view.revision;
    this.at = view.at;
    this.completeFrom = view.complete_from;
    this.nodes = view.nodes;
    this.planned = view.planned;
    this.expected = view.expected;
    this.#forget();
    this.#index();
  }

  /** What the API has forgotten is not kept here either. */
  #forget() {
    if (this.completeFrom === null) return;
    for (const [key, each] of this.holdings) {
      if (each.until !== null && each.until < this.completeFrom) this.holdings.delete(key);
    }
  }

  #index() {
    this.byNode = new Map(this.nodes.map((node) => [node.node_id, { holdings: [], spells: [], planned: [] }]));
    this.byJob = new Map();
    for (const each of this.holdings.values()) {
      this.byNode.get(each.node_id)?.holdings.push(each);
      if (!this.byJob.has(each.job_id)) this.byJob.set(each.job_id, []);
      this.byJob.get(each.job_id).push(each);
    }
    for (const each of this.spells.values()) this.byNode.get(each.node_id)?.spells.push(each);
    for (const placement of this.planned) {
      for (const member of placement.gang.members) {
        this.byNode.get(member.node)?.planned.push({ ...placement, gpus: member.gpus });
      }
    }
    const bySince = (a, b) => a.since - b.since;
    for (const here of this.byNode.values()) here.holdings.sort(bySince);
    for (const there of this.byJob.values()) there.sort(bySince);
  }

  first() {
    let first = Infinity;
    for (const each of this.holdings.values()) first = Math.min(first, each.since);
    for (const each of this.spells.values()) first = Math.min(first, each.since);
    return Number.isFinite(first) ? first : null;
  }

  /** GPUs in use and GPUs there are, as steps: [times, in use, there]. */
  use(from, until) {
    const changes = [];
    const gpusOf = new Map(this.nodes.map((node) => [node.node_id, node.gpus]));
    let there = 0;
    for (const gpus of gpusOf.values()) there += gpus;
    for (const each of this.holdings.values()) {
      if (!gpusOf.has(each.node_id)) continue; // of a node that was removed
      changes.push([each.since, each.gpu_indices.length, 0]);
      if (each.until !== null) changes.push([each.until, -each.gpu_indices.length, 0]);
    }
    for (const each of this.spells.values()) {
      if (each.state !== "lost") continue;
      const gpus = gpusOf.get(each.node_id) ?? 0;
      changes.push([each.since, 0, -gpus]);
      if (each.until !== null) changes.push([each.until, 0, gpus]);
    }
    return steps(changes, there, from, until);
  }
}

function steps(changes, there, from, until) {
  changes.sort((a, b) => a[0] - b[0]);
  const times = [from];
  const used = [0];
  const all = [there];
  let busy = 0;
  for (const [at, more, gpus] of changes) {
    if (at > until) break;
    busy += more;
    there += gpus;
    const last = times.length - 1;
    if (at <= times[last]) [used[last], all[last]] = [busy, there];
    else {
      times.push(at);
      used.push(busy);
      all.push(there);
    }
  }
  times.push(until);
  used.push(busy);
  all.push(there);
  return [times, used, all];
}
