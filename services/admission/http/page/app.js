// The page: which part is shown, when it is read again, and the link to the stream of facts.

import { Refused, Unauthorized, dropToken, follow, get, hasToken, keepToken } from "./api.js";
import { UseChart } from "./charts.js";
import { Cluster } from "./cluster.js";
import { JobPage } from "./job.js";
import { Jobs } from "./jobs.js";
import { Model } from "./model.js";
import { Plans } from "./plans.js";
import { byId, clock, say } from "./text.js";
import { Timeline } from "./timeline.js";

const EVERY_MS = 1000; // between two readings while facts come
const REST_MS = 5000; // while none come
const AFTER_MS = 2500; // how long after a fact it is read again: the monitor may learn of it later
const BACK_MS = [500, 1000, 2000, 5000];
const SHARE = 4; // a reading that took long is followed by a rest of so many times that
const REST_MOST_MS = 10000;
const MEASURES_KEPT = 200;

const model = new Model();
const cluster = new Cluster();
const use = new UseChart(model);
const timeline = new Timeline(model, (range, gutter) => use.show(range, gutter));
const job = new JobPage();
const jobs = new Jobs(() => refresh(true));
const plans = new Plans(fail);

const seen = { seq: null, factAt: 0, planAt: 1, plansRead: 0, readAt: 0, tookMs: 0 };
let reading = false;
let again = false;

// ---- reading

/** Reads everything that is shown. One reading at a time; a wish that comes meanwhile is kept. */
async function refresh(now = false) {
  if (reading) {
    again ||= now;
    return;
  }
  reading = true;
  const began = performance.now();
  try {
    await read();
    settle();
  } catch (error) {
    fail(error);
  } finally {
    reading = false;
    seen.readAt = performance.now();
    seen.tookMs = seen.readAt - began;
  }
  if (again) {
    again = false;
    await refresh();
  }
}

async function read() {
  if (job.id !== null) return job.read();
  const plansAt = seen.planAt;
  const [status] = await Promise.all([
    get("v1/status"),
    model.read(),
    jobs.read(),
    plansAt > seen.plansRead ? plans.read() : undefined,
  ]);
  seen.plansRead = plansAt;
  if (job.id !== null || !byId("ask").hidden) return undefined; // the reader has gone on meanwhile
  const began = performance.now();
  byId("cluster").hidden = false;
  cluster.status(status);
  cluster.time();
  timeline.draw();
  cluster.showNodes(model);
  return measured(began);
}

/** For who measures the page: how long each drawing took. */
function measured(began) {
  performance.measure("hopyard-update", { start: began, end: performance.now() });
  if (performance.getEntriesByName("hopyard-update").length > MEASURES_KEPT) performance.clearMeasures("hopyard-update");
}

function settle() {
  byId("problem").hidden = true;
  byId("ask").hidden = true;
  byId("main").dataset.read = "true";
}

function fail(error) {
  if (error instanceof Unauthorized) return askToken(error.message);
  const place = byId("problem");
  if (error instanceof Refused) say(place, error.message);
  else say(place, `The cluster does not answer (${error.message}). What is shown is of before; trying again.`);
  place.hidden = false;
  return undefined;
}

function tick() {
  if (document.hidden || !byId("ask").hidden) return;
  const now = performance.now();
  const busy = now - seen.factAt < AFTER_MS;
  const due = Math.max(busy ? EVERY_MS : REST_MS, Math.min(SHARE * seen.tookMs, REST_MOST_MS));
  if (now - seen.readAt >= due) refresh();
  else if (clock.known) cluster.time();
}

// ---- the stream of facts

function onFact(line) {
  const first = performance.now() - seen.factAt > AFTER_MS;
  seen.seq = line.seq;
  seen.factAt = performance.now();
  if (line.event.fact === "plan.published") seen.planAt = line.seq + 1;
  job.fact(line);
  if (first) setTimeout(refresh, 100);
}

// All tabs of a browser share its few connections, also those that nobody sees, and pages that were left, which it
// keeps for the way back. So these follow nothing.
let unseen = new AbortController();
const leave = () => unseen.abort();
const comeBack = () => {
  if (!unseen.signal.aborted) return;
  unseen = new AbortController();
  seen.seq = null;
};
addEventListener("pagehide", leave);
addEventListener("pageshow", comeBack);

async function link() {
  for (let tries = 0; ; tries++) {
    if (!byId("ask").hidden || document.hidden) {
      await new Promise((done) => setTimeout(done, EVERY_MS));
      tries = -1;
      continue;
    }
    try {
      await follow(seen.seq, () => {
        tries = 0;
        linked("live", "live");
        if (seen.seq === null) job.forgetFacts();
        seen.planAt += 1;
        refresh(true);
      }, onFact, unseen.signal);
      linked("wait", "connecting again");
    } catch (error) {
      if (error instanceof Unauthorized) askToken(error.message);
      else if (error.status === 422 && seen.seq !== null) beginAgain();
      else linked("wait", "connecting again");
    }
    await new Promise((done) => setTimeout(done, BACK_MS[Math.min(tries, BACK_MS.length - 1)]));
  }
}

/** What was read is of another log than there is now, as after the restore of an older backup. */
function beginAgain() {
  seen.seq = null;
  model.clear();
  route();
}

function linked(state, text) {
  byId("link").dataset.state = state;
  say(byId("link"), text);
}

// ---- the token

function askToken(reason) {
  if (!byId("ask").hidden) return;
  if (hasToken()) say(byId("ask-error"), reason);
  dropToken();
  linked("wait", "waiting for the token");
  for (const part of ["cluster", "problem", "job"]) byId(part).hidden = true;
  byId("ask").hidden = false;
  byId("token").focus();
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token").value);
  byId("token").value = "";
  say(byId("ask-error"), "");
  byId("ask").hidden = true;
  route();
});

// ---- which part is shown

const JOB_PATH = /^#\/jobs\/(.+)$/;

const TOKEN = /^#token=([\w-]+)$/;

/** A link that `hopyard page` prints has a token: it is kept, and does not stay in the address. */
function takeToken() {
  const found = TOKEN.exec(location.hash);
  if (!found) return;
  keepToken(found[1]);
  history.replaceState(null, "", location.pathname + location.search);
  byId("ask").hidden = true;
}

function route() {
  takeToken();
  if (!byId("ask").hidden) return undefined;
  const found = JOB_PATH.exec(location.hash);
  byId("problem").hidden = true;
  if (found) return openJob(found[1]);
  const was = job.id;
  job.close();
  document.title = "hopyard";
  if (was !== null) byId("cluster").hidden = false;
  refresh(true);
  if (/^#[a-z]+$/.test(location.hash)) byId(location.hash.slice(1))?.scrollIntoView();
  return undefined;
}

function openJob(encoded) {
  let id = encoded;
  try {
    id = decodeURIComponent(encoded);
  } catch {
    // it stays as it was written
  }
  byId("cluster").hidden = true;
  job.open(id).then(settle, fail);
}

addEventListener("hashchange", route);
byId("range").addEventListener("change", (event) => timeline.show(Number(event.target.value)));
byId("nearer").addEventListener("click", () => timeline.zoom(0.5));
byId("wider").addEventListener("click", () => timeline.zoom(2));
byId("now").addEventListener("click", () => timeline.show(timeline.span));
byId("nodes-fold").addEventListener("toggle", () => cluster.showNodes(model));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which part is shown, not where the reader is
  byId("main").focus();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return leave();
  comeBack();
  return refresh();
});

route();
link();
setInterval(tick, 250);
