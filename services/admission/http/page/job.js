// A job's page: what it is, why it waits, where it ran, how fast, its facts and its output.

import { Refused, get, lines } from "./api.js";
import { SpeedChart } from "./charts.js";
import { terms } from "./cluster.js";
import { Table } from "./table.js";
import { byId, clusterNow, duration, el, gang, jobLink, moment, number, percent, plural, reason, words } from "./text.js";

const FACTS_MOST = 100;
const HOLDERS_MOST = 5;
const RUNS_MOST = 100;
const RUNS_LISTED = 15;
const OUTPUT_MOST = 500;
const OUTPUT_EVERY_MS = 4000;
const FORGOTTEN = 410; // the status of a job that the monitor no longer keeps

export class JobPage {
  constructor() {
    this.place = byId("job");
    this.id = null;
  }

  async open(id) {
    this.close();
    this.id = id;
    this.forgotten = false;
    this.facts = new Map();
    this.factsRead = false;
    this.outputAt = -Infinity;
    this.#build();
    this.place.hidden = false;
    this.place.focus({ preventScroll: true });
    scrollTo(0, 0);
    await this.read();
  }

  close() {
    this.chart?.end();
    this.chart = null;
    this.id = null;
    this.place.hidden = true;
    this.place.replaceChildren();
  }

  #build() {
    const part = (title, ...inside) => el("section", { "aria-label": title }, el("h2", {}, title), ...inside);
    this.state = el("span", { class: "badge" });
    this.bar = el("progress", { max: "1", value: "0", "aria-label": "Samples done" });
    this.why = el("p", { class: "lead" });
    this.holders = el("p", { class: "lead", hidden: true });
    this.list = el("dl", { class: "about" });
    this.runsPlace = el("div");
    this.runsRest = el("p", { class: "hint", hidden: true });
    this.speed = el("div", { class: "chart" });
    this.factsPlace = el("div");
    this.output = part("Output");
    this.output.hidden = true;
    this.known = el("div", { hidden: true }, this.bar, this.list,
      part("Places", this.runsPlace, this.runsRest, el("h3", { id: "speed-title" }, "Throughput, in samples/s"),
        el("p", { class: "hint" }, "Dashed: predicted when it was placed. Solid: measured over the run."), this.speed));
    this.place.replaceChildren(
      el("p", {}, el("a", { href: "#/" }, "← The cluster")),
      el("div", { class: "head" }, el("h1", { id: "job-title" }, this.id), this.state),
      this.why,
      this.holders,
      this.known,
      this.output,
      part("Facts", el("p", { class: "hint" }, "Newest first."), this.factsPlace),
    );
    this.speed.setAttribute("role", "img");
    this.speed.setAttribute("aria-label", "Throughput predicted and measured; the table above has the numbers");
    this.chart = new SpeedChart(this.speed);
    this.runs = runsTable(this.runsPlace);
    this.factTable = factsTable(this.factsPlace);
  }

  /** Reads the job again, and once its facts: they are there also of a job that is no longer kept. */
  async read() {
    const { id } = this;
    if (id === null) return;
    await Promise.all([this.forgotten || this.#readJob(id), this.factsRead || this.#readFacts(id)]);
  }

  /** If the cluster does not show the job, the page says why. */
  async #readJob(id) {
    const path = `v1/jobs/${encodeURIComponent(id)}`;
    try {
      const job = await get(path);
      const [why, runs] = await Promise.all([get(`${path}/why`), this.#runs(path)]);
      if (this.id !== id) return;
      this.#show(job, why);
      this.runs.update([...runs].reverse().slice(0, RUNS_LISTED));
      this.runsRest.hidden = runs.length <= RUNS_LISTED;
      this.runsRest.textContent = `The last ${RUNS_LISTED} of ${number(runs.length)}.`;
      this.speed.hidden = runs.length === 0;
      if (runs.length) this.chart.show(runs.slice(-RUNS_MOST), clusterNow());
      this.#readOutput(path, id).catch((error) => this.id === id && showOutput(this.output, [{ node: "output", problem: error.message }]));
    } catch (error) {
      if (!(error instanceof Refused) || this.id !== id) throw error;
      this.why.textContent = error.message;
      this.forgotten = error.status === FORGOTTEN;
    }
  }

  async #runs(path) {
    try {
      return (await get(`${path}/runs`)).runs;
    } catch (error) {
      if (error instanceof Refused) return []; // newer than what the monitor knows
      throw error;
    }
  }

  #show(job, why) {
    document.title = `${job.job_id} – hopyard`;
    this.known.hidden = false;
    this.state.textContent = job.state;
    const ended = job.ended_at !== null;
    this.why.textContent = ended && !job.reason ? "" : [reason(why.reason), why.detail].filter(Boolean).join(": ");
    this.#showHolders(why);
    const done = Math.min(job.samples_done / job.spec.samples, 1);
    this.bar.value = done;
    const { workload } = job.spec;
    terms(this.list, [
      ["Done", `${percent(done)} of ${number(job.spec.samples)} samples`],
      ["Model", workload.model],
      ["Data set", workload.dataset],
      ["Batch", `${number(workload.batch_size)} samples a GPU, ${workload.optimizer}`],
      ["GPUs it can use", job.spec.demand.join(", ")],
      ["GPU types", job.spec.gpu_types.join(", ") || "any"],
      ["Project", job.spec.project],
      ["User", job.spec.user || "unknown"],
      ["Priority", number(job.spec.priority)],
      ["Submitted", moment(job.submitted_at)],
      ["First start", moment(job.started_at)],
      ["End", moment(job.ended_at)],
      ["Waited", duration(job.wait_s)],
      ["Expected to wait", duration(job.expected_wait_s)],
      ["Length without waiting (age)", duration(job.age_s)],
      ["Latency ratio", number(job.latency_ratio)],
      ["Restarts", restarts(job)],
      ...launched(job),
    ]);
  }

  /** Its place among those that wait, and who has the GPUs it could use. */
  #showHolders(why) {
    const place = why.position === null ? "" : `Number ${number(why.position)} of the ${number(why.queue_length)} jobs that the last plan left out. `;
    const holders = why.holders.slice(0, HOLDERS_MOST);
    const text = place + holders.map((each) => each.job_id + each.gpus).join();
    if (this.holders.said === text) return;
    this.holders.said = text;
    this.holders.hidden = text === "";
    const links = holders.flatMap((each, at) => [at ? ", " : "", jobLink(each.job_id), ` (${plural(each.gpus, "GPU")})`]);
    this.holders.replaceChildren(place, holders.length ? "GPUs it could use are with " : "", ...links);
  }

  // ---- facts

  async #readFacts(id) {
    const found = await lines(`v1/events?job=${encodeURIComponent(id)}&newest=${FACTS_MOST}`);
    if (this.id !== id) return;
    this.factsRead = true;
    for (const each of found) this.facts.set(each.seq, each);
    this.#showFacts();
  }

  /** A fact that has just come; true if it is about this job. */
  fact(line) {
    if (this.id === null || line.event.job_id !== this.id) return false;
    this.facts.set(line.seq, line);
    if (this.facts.size > FACTS_MOST) this.facts.delete(Math.min(...this.facts.keys()));
    this.#showFacts();
    return true;
  }

  /** Facts may have come that the page did not follow: they are read again. */
  forgetFacts() {
    this.facts?.clear();
    this.factsRead = false;
  }

  #showFacts() {
    this.factTable.update([...this.facts.values()].sort((a, b) => b.seq - a.seq));
  }

  // ---- output

  /** The newest lines; now and then, for every agent of the job is asked. */
  async #readOutput(path, id) {
    if (performance.now() - this.outputAt < OUTPUT_EVERY_MS) return;
    this.outputAt = performance.now();
    const found = await lines(`${path}/output?newest=${OUTPUT_MOST}`);
    if (this.id === id) showOutput(this.output, found);
  }
}

function restarts({ restarts: all, interruptions, failures, spec }) {
  const apart = [
    interruptions && `${number(interruptions)} interrupted`,
    failures && spec.retries && `${number(failures)} failed, ${plural(spec.retries, "retry", "retries")} allowed`,
  ];
  const why = apart.filter(Boolean).join(", ");
  return why ? `${number(all)}; ${why}` : number(all);
}

/** How it ended and what it saved, how its processes are started; of an emulated job nearly nothing. */
function launched(job) {
  const { spec } = job;
  const shell = spec.command.length > 2 && spec.command[0] === "sh" && spec.command[1] === "-c";
  const exit = job.signal === null ? job.exit_code !== null && `exit code ${job.exit_code}` : `signal ${job.signal}`;
  const perGpu = [spec.cpus && plural(spec.cpus, "CPU core"), spec.memory && `${number(spec.memory / 2 ** 30)} GiB of memory`];
  return [
    ["Exit", job.state === "failed" && exit],
    ["Checkpoints", job.saved_at !== null && `${number(job.checkpoints)}, the newest at ${number(job.samples_saved)} samples, ${moment(job.saved_at)}`],
    ["Ran", spec.time_limit_s && `${duration(job.running_s)} of ${duration(spec.time_limit_s)} at most`],
    ["Command", shell ? spec.command[2] : spec.command.join(" ")],
    ["Folder", spec.working_directory],
    ["Environment", Object.entries(spec.environment ?? {}).map(([name, value]) => `${name}=${value}`).join(" ")],
    ["Image", spec.image],
    ["Per GPU", perGpu.filter(Boolean).join(", ")],
    ["Preemptible", spec.preemptible === false && "no"],
  ].filter(([, text]) => text);
}

/** What the job printed, each line with its node and rank; or why a node's lines are missing. */
function showOutput(place, found) {
  const text = found.map((line) => `${line.node}${line.rank === undefined ? "" : ` ${line.rank}`} | ${line.problem || line.text}`).join("\n");
  place.hidden = text === "";
  const shown = place.querySelector("pre") ?? place.appendChild(el("pre", { tabindex: "0", role: "region", "aria-label": "What the job printed" }));
  if (shown.textContent !== text) shown.textContent = text;
}

const STOPPED = { plan: "stopped", "node-lost": "node lost", "agent-restarted": "agent restarted", interrupted: "interrupted", failed: "failed", "node-left": "node left", merge: "merged" };

function runsTable(place) {
  return new Table(place, {
    caption: "Where the job ran, newest first, with throughput predicted and measured",
    empty: "It has not run yet.",
    key: (run) => run.placement_id,
    columns: [
      { name: "On", kind: "wide", text: (run) => gang(run.gang) },
      { name: "From", kind: "number", text: (run) => moment(run.started_at) },
      { name: "For", kind: "number", text: (run) => duration((run.ended_at ?? clusterNow()) - run.started_at) },
      { name: "Samples", kind: "number", text: (run) => `${number(run.samples_from)}–${number(run.samples_to)}` },
      { name: "Predicted", kind: "number", text: (run) => number(run.estimated_throughput) },
      { name: "Measured", kind: "number", text: (run) => number(run.measured_throughput) },
      { name: "Off by", kind: "number", text: offBy },
      { name: "Known by", text: (run) => run.layer ?? "–" },
      { name: "End", text: (run) => (run.cause?.moved && run.preempted !== "merge" ? "moved" : STOPPED[run.preempted] ?? "–") },
    ],
  });
}

function offBy({ estimated_throughput: predicted, measured_throughput: measured }) {
  if (!predicted || !measured) return "–";
  const share = predicted / measured - 1;
  return `${share > 0 ? "+" : ""}${percent(share)}`;
}

function factsTable(place) {
  return new Table(place, {
    caption: "Facts about the job, newest first",
    empty: "None yet.",
    key: (line) => line.seq,
    columns: [
      { name: "Fact", text: ({ event }) => words(event.fact.replace(".", " ")) },
      { name: "At", kind: "number", text: ({ event }) => moment(event.at) },
      { name: "What", kind: "wide", text: ({ event }) => inShort(event) },
    ],
  });
}

const SKIPPED = new Set(["fact", "at", "job_id", "placement_id", "spec", "workload", "modules", "nodes", "key", "meeting"]);
const TEXT_MOST = 200;

function inShort(event) {
  const parts = [];
  for (const [name, value] of Object.entries(event)) {
    if (SKIPPED.has(name) || value === null || value === "" || Array.isArray(value)) continue;
    if (name === "gang") parts.push(gang(value));
    else if (name === "node_id") parts.push(`on ${value}`);
    else if (typeof value !== "object") parts.push(`${words(name)} ${typeof value === "number" ? number(value, 5) : value}`);
  }
  const text = parts.join(", ");
  return text.length > TEXT_MOST ? `${text.slice(0, TEXT_MOST)}…` : text;
}
