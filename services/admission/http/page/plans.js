// The last plans: how each was made, how good it is known to be, and what it left out and why.

import { get } from "./api.js";
import { Table } from "./table.js";
import { byId, duration, el, gang, jobLink, moment, number, percent, plural, reason as name } from "./text.js";

const SHOWN = 100; // rows of one plan
const FOUND = {
  optimal: "solved",
  incumbent: "the solver's best in its time",
  greedy: "by weight, without the solver",
  queue: "in the order of its queue",
};

export class Plans {
  constructor(fail) {
    this.fail = fail;
    this.table = new Table(byId("plans-table"), {
      caption: "The last plans, newest first",
      empty: "No plan has been made yet.",
      key: (each) => each.plan.plan_id,
      columns: [
        { name: "At", text: ({ plan }) => `${moment(plan.at)} ${plan.kind}`, node: (each) => this.#opener(each) },
        { name: "Policy", text: ({ plan }) => plan.policy },
        { name: "Found", text: ({ plan }) => FOUND[plan.stage] ?? plan.stage },
        { name: "Gap", kind: "number", text: ({ plan }) => (plan.stage === "queue" ? "–" : percent(plan.gap)) },
        { name: "Decided in", kind: "number", text: ({ plan }) => duration(plan.decision_s) },
        { name: "Solved in", kind: "number", text: ({ plan }) => duration(plan.solve_s) },
        { name: "Placed", kind: "number", text: ({ plan }) => number(plan.placements) },
        { name: "GPUs idle", kind: "number", text: ({ plan }) => number(plan.idle_gpus) },
        { name: "Left out", kind: "wide", text: leftOut },
        { name: "Notes", kind: "wide", text: ({ plan }) => plan.notes.join("; ") || "none" },
      ],
    });
  }

  async read() {
    this.table.update((await get("v1/plans?limit=12")).plans);
  }

  #opener({ plan }) {
    const label = `${moment(plan.at)} ${plan.kind}`;
    const button = el("button", { type: "button", class: "plain", "aria-controls": "plan" }, label);
    button.addEventListener("click", () => this.#open(plan).catch(this.fail));
    return button;
  }

  async #open(plan) {
    const detail = await get(`v1/plans/${encodeURIComponent(plan.plan_id)}`);
    const place = byId("plan");
    const close = el("button", { type: "button" }, "Close");
    close.addEventListener("click", () => (place.hidden = true));
    const title = el("h3", { tabindex: "-1" }, `Plan of ${moment(plan.at)}, round ${number(plan.round)}`);
    const left = el("div");
    const placed = el("div");
    place.replaceChildren(
      el("div", { class: "head" }, title, close),
      el("h4", {}, `Left out: ${plural(plan.left_out, "job")}`), left, rest(plan.left_out),
      el("h4", {}, `Placed: ${plural(plan.placements, "job")}`), placed, rest(plan.placements),
    );
    leftTable(left).update(detail.left_out.slice(0, SHOWN));
    placedTable(placed).update(detail.placements.slice(0, SHOWN));
    place.hidden = false;
    title.focus();
  }
}

const rest = (count) => (count > SHOWN ? el("p", { class: "hint" }, `The first ${SHOWN} of ${number(count)}.`) : null);

function leftOut({ plan, left_out }) {
  const reasons = Object.entries(left_out).sort((a, b) => b[1] - a[1]);
  const all = reasons.map(([why, count]) => `${name(why)} ${number(count)}`).join(", ");
  return all ? `${number(plan.left_out)}: ${all}` : "none";
}

function leftTable(place) {
  return new Table(place, {
    caption: "Jobs that the plan left out, and why",
    empty: "None.",
    key: (left) => left.job_id,
    columns: [
      { name: "Job", text: (left) => left.job_id, node: (left) => jobLink(left.job_id) },
      { name: "Why", text: (left) => name(left.reason) },
      { name: "In words", kind: "wide", text: (left) => left.detail || "–" },
      { name: "Lost to", kind: "wide", text: (left) => left.held_by.slice(0, 3).join(", ") || "–" },
    ],
  });
}

function placedTable(place) {
  return new Table(place, {
    caption: "Jobs that the plan places",
    empty: "None.",
    key: (placement) => placement.placement_id,
    columns: [
      { name: "Job", text: (placement) => placement.job_id, node: (placement) => jobLink(placement.job_id) },
      { name: "On", kind: "wide", text: (placement) => gang(placement.gang) },
      { name: "Samples/s", kind: "number", text: (placement) => number(placement.throughput) },
      { name: "Known by", text: (placement) => placement.layer },
    ],
  });
}
