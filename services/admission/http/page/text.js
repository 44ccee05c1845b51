// How things are said: elements from text alone, numbers with their units, times of the cluster's clock.

/** An element. Children are elements or text; text is never read as markup. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Sets text only where it changed, so that nothing is read out or laid out in vain. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function jobLink(id) {
  return el("a", { href: jobPath(id) }, id);
}

export const jobPath = (id) => `#/jobs/${encodeURIComponent(id)}`;

const NOTHING = "–";

/** Between marks of a time axis. */
export const TIME_STEPS_S = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
];

export function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  if (Math.abs(value) >= 1000 || Number.isInteger(value)) return Math.round(value).toLocaleString("en").replace("-", "−");
  const text = Math.abs(value).toLocaleString("en", { maximumSignificantDigits: digits });
  return value < 0 ? `−${text}` : text;
}

/** A share; what is not the whole is not shown as 100 %. */
export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return NOTHING;
  if (share > 0.999 && share < 1 - 1e-9) return "99.9 %";
  if (share !== 0 && Math.abs(share) < 0.00005) return "< 0.01 %";
  return `${number(share * 100)} %`;
}

/** A length of time: two units at most. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NOTHING;
  const sign = seconds < 0 ? "−" : "";
  const s = Math.abs(seconds);
  if (s > 0 && s < 0.0995) return `${sign}${number(s * 1000, 2)} ms`;
  if (s < 10) return `${sign}${number(s, 2)} s`;
  if (s < 59.5) return `${sign}${Math.round(s)} s`;
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = units.findIndex(([size]) => s >= size - 0.5);
  const [size, name] = units[at];
  const [small, smaller] = units[Math.min(at + 1, units.length - 1)];
  let whole = Math.floor(s / size);
  let rest = Math.round((s - whole * size) / small);
  if (rest * small >= size) [whole, rest] = [whole + 1, 0];
  return rest ? `${sign}${whole} ${name} ${rest} ${smaller}` : `${sign}${whole} ${name}`;
}

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** The cluster's clock, as the API's answers carry it. */
export const clock = { now: 0, origin: 0, speed: 1, heard: 0, known: false };

export function hear(header) {
  if (!header) return;
  const { now, origin, speed } = JSON.parse(header);
  Object.assign(clock, { now, origin, speed, heard: performance.now(), known: true });
}

export function clusterNow() {
  return clock.now + ((performance.now() - clock.heard) / 1000) * clock.speed;
}

/** A moment: local time where the cluster's clock is the wall's, else time since its second 0. */
export function moment(at, short = false) {
  if (at === null || at === undefined) return NOTHING;
  if (clock.speed !== 1) return sinceZero(at, short);
  const date = new Date((clock.origin + at) * 1000);
  const today = new Date().toDateString() === date.toDateString();
  const time = date.toLocaleTimeString("en-GB", short ? { hour: "2-digit", minute: "2-digit" } : {});
  return today ? time : `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

function sinceZero(at, short) {
  const s = Math.max(Math.round(at), 0);
  const two = (value) => String(value).padStart(2, "0");
  const clockface = `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}`;
  return short ? clockface : `${clockface}:${two(s % 60)}`;
}

export function gang(of) {
  if (!of) return NOTHING;
  const gpus = of.members.reduce((sum, member) => sum + member.gpus, 0);
  const places = of.members.map((member) => `${member.node} ×${member.gpus}`);
  const shown = places.length > 4 ? [...places.slice(0, 3), `${places.length - 3} more`] : places;
  return `${plural(gpus, "GPU")}: ${shown.join(", ")}`;
}

const REASONS = {
  profiling: "waits to be measured",
  "not-planned": "waits for a plan",
  "no-estimate": "waits for an estimate",
  "outside-window": "too far back in the queue",
  "no-configuration": "no room on nodes it may use",
  outweighed: "other jobs come first",
  "on-hold": "on hold",
  refused: "its last placement could not start",
  starting: "starts",
  "no-nodes": "waits for a node",
};

/** Why a job waits; a reason without words of its own stands as it is. */
export const reason = (name) => REASONS[name] ?? words(name);

export const words = (name) => name.replaceAll("-", " ").replaceAll("_", " ");
