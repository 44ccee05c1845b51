// The way to the API: relative to this page, so that it works behind any prefix; with the token, if one is asked for.

import { hear } from "./text.js";

const KEY = `hopyard-token:${location.pathname}`;
const LATE_MS = 15000;
const TOO_MANY = 429; // wrong tokens; or followers, if the page asked to follow

/** The token is not accepted, with the reason as its text. */
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
  if (token !== null && /[^\x20-\x7e]/.test(token)) throw new Unauthorized("This has characters that no header can carry.");
  return token === null ? {} : { Authorization: `Bearer ${token}` };
}

async function call(path, signal, follows = false) {
  const answer = await fetch(path, { headers: headers(), signal, cache: "no-store" });
  if (answer.status === 401 || (answer.status === TOO_MANY && !follows)) throw new Unauthorized(await reason(answer));
  if (answer.status >= 400 && answer.status < 500 && answer.status !== TOO_MANY) throw new Refused(await reason(answer), answer.status);
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
  const answer = await call(`v1/events?follow=true&${from}`, signal, true);
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
