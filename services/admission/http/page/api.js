// The way to the API: relative to this page, so that it works behind any prefix; with the token, if one is asked for.

import { hear } from "./text.js";

const KEY = `hopyard-token:${location.pathname}`;
const LATE_MS = 15000;

export class Unauthorized extends Error {}
/** An answer that stays the same if it is asked for again, with the reason as its text. */
export class Refused extends Error {
  constructor(text, status) {
    super(text);
    this.status = status;
  }
}

export const keepToken = (token) => sessionStorage.setItem(KEY, token);
export const dropToken = () => sessionStorage.removeItem(KEY);
export const hasToken = () => sessionStorage.getItem(KEY) !== null;

function headers() {
  const token = sessionStorage.getItem(KEY);
  if (token !== null && /[^\x20-\x7e]/.test(token)) throw new Unauthorized(); // no header can carry it
  return token === null ? {} : { Authorization: `Bearer ${token}` };
}

async function call(path, signal) {
  const answer = await fetch(path, { headers: headers(), signal, cache: "no-store" });
  if (answer.status === 401) {
    await answer.body?.cancel(); // an answer that is not read holds one of the browser's few connections
    throw new Unauthorized();
  }
  if (answer.status >= 400 && answer.status < 500 && answer.status !== 429) throw new Refused(await reason(answer), answer.status);
  if (!answer.ok) throw new Error(await reason(answer));
  hear(answer.headers.get("Hopyard-Clock"));
  return answer;
}

async function reason(answer) {
  try {
    return (await answer.json()).detail || `${answer.status}`;
  } catch {
    return `${answer.status} ${answer.statusText}`;
  }
}

/** The answer of a reading call, as JSON. Throws Unauthorized, Refused, Error. */
export async function get(path) {
  return (await call(path, AbortSignal.timeout(LATE_MS))).json();
}

/** As lines of JSON. */
export async function lines(path) {
  const text = await (await call(path, AbortSignal.timeout(LATE_MS))).text();
  return text.split("\n").filter(Boolean).map(parsed);
}

/** A line. Throws Error for one that says why others are missing. */
function parsed(line) {
  const found = JSON.parse(line);
  if (found.problem && found.seq === undefined && !found.node) throw new Error(found.problem);
  return found;
}

/** Facts as they come, after `seq` or from now on. Ends when the connection does. */
export async function follow(seq, begun, each, signal) {
  const from = seq === null ? "newest=0" : `after=${seq}`;
  const answer = await call(`v1/events?follow=true&${from}`, signal);
  begun();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const line of parts) if (line) each(parsed(line));
  }
}
