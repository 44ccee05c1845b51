// The jobs in short: those that wait with the reason why, those that run, those that have ended.

import { get } from "./api.js";
import { Table } from "./table.js";
import { byId, duration, el, gang, jobLink, jobPath, moment, number, percent, reason } from "./text.js";

const STEPS = [50, 200, 1000];

const JOB = { name: "Job", text: (job) => job.job_id, node: (job) => jobLink(job.job_id) };
const PROJECT = { name: "Project", text: (job) => job.project };
const MODEL = { name: "Model", text: (job) => job.model };
const WAITED = { name: "Waited", kind: "number", text: (job) => duration(job.wait_s) };

const VIEWS = {
  waiting: {
    caption: "Jobs that wait, with the reason, the earliest submission first",
    empty: "No job waits.",
    columns: [
      JOB,
      PROJECT,
      MODEL,
      { name: "GPUs", kind: "number", text: (job) => counts(job.demand) },
      WAITED,
      { name: "Expected", kind: "number", text: (job) => duration(job.expected_wait_s) },
      { name: "Reason", kind: "wide", text: (job) => [reason(job.reason), job.detail].filter(Boolean).join(": ") },
    ],
  },
  running: {
    caption: "Jobs that run, the newest start first",
    empty: "No job runs.",
    columns: [
      JOB,
      PROJECT,
      MODEL,
      { name: "On", kind: "wide", text: (job) => gang(job.gang) },
      { name: "Done", kind: "number", text: (job) => percent(job.progress) },
      { name: "Complete", kind: "number", text: (job) => moment(job.expected_end) },
      WAITED,
    ],
  },
  ended: {
    caption: "Jobs that have ended, the newest end first",
    empty: "No job has ended.",
    columns: [
      JOB,
      PROJECT,
      MODEL,
      { name: "End", text: (job) => job.state },
      { name: "At", kind: "number", text: (job) => moment(job.ended_at) },
      { name: "Took", kind: "number", text: (job) => duration(job.ended_at - job.submitted_at) },
      WAITED,
      { name: "Why", kind: "wide", text: (job) => (job.state === "completed" ? "" : job.detail) },
    ],
  },
};

function counts(demand) {
  return demand.length > 4 ? `${demand[0]} to ${demand.at(-1)}` : demand.join(", ");
}

export class Jobs {
  constructor(refresh) {
    this.which = "waiting";
    this.limit = STEPS[0];
    this.more = el("button", { type: "button" }, "Show more");
    this.count = el("span");
    byId("jobs-more").append(this.count, this.more);
    this.more.addEventListener("click", () => {
      this.limit = STEPS.find((step) => step > this.limit) ?? this.limit;
      refresh();
    });
    for (const tab of document.querySelectorAll("[data-which]")) {
      tab.addEventListener("click", () => {
        this.#choose(tab.dataset.which);
        refresh();
      });
    }
    byId("find").addEventListener("submit", (event) => {
      event.preventDefault();
      location.hash = jobPath(byId("find-id").value.trim());
    });
    this.#choose("waiting");
  }

  #choose(which) {
    this.which = which;
    this.limit = STEPS[0];
    for (const tab of document.querySelectorAll("[data-which]")) {
      tab.setAttribute("aria-pressed", String(tab.dataset.which === which));
    }
    this.table = new Table(byId("jobs-table"), { ...VIEWS[which], key: (job) => job.job_id });
    this.table.empty.hidden = true;
    byId("jobs-more").hidden = true;
  }

  async read() {
    const { which, table } = this;
    const page = await get(`v1/summaries?which=${which}&limit=${this.limit}`);
    if (table !== this.table) return; // another was chosen meanwhile
    table.update(page.jobs);
    const shown = page.jobs.length;
    byId("jobs-more").hidden = page.total === 0;
    this.count.textContent = shown < page.total ? `${number(shown)} of ${number(page.total)} ` : `${number(shown)} in all`;
    this.more.hidden = shown >= page.total || this.limit === STEPS.at(-1);
  }
}
