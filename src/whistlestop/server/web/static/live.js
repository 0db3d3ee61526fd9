// Server-sent events that survive everything: a restart of the server, a cut line, a laptop's sleep.
// By fetch instead of EventSource, which hides the HTTP status, the keep-alive comments and the Last-Event-ID header.
import { onUnreachable, readProblem, signIn } from "./api.js";
import { cell, useEffect, useRef } from "./lib.js";
import { queryText } from "./route.js";

const SILENCE = 40_000;  // the server says something every 15 s
const HIDDEN = 30_000;  // a browser has six connections to a server, for all tabs: those that nobody sees give theirs back
const LATER = [300, 700, 1500, 3000, 5000];
const LOST_AFTER = 2;  // failures in a row

const states = new Map();
const worst = cell("live");
const streams = new Set();

function tell(key, state) {
  if (state === null) states.delete(key);
  else states.set(key, state);
  const all = new Set(states.values());
  worst.set(all.has("lost") ? "lost" : all.has("connecting") ? "connecting" : "live");
}

export function useConnection() {
  return worst.use();
}

/** Follows one stream until `close()`, or until the server says "end". `on`: {kind: (data, id) => …}. */
export function follow(path, { query, on, onState } = {}) {
  const stream = { path, query, on: on ?? {}, onState, lastId: "", failures: 0, closed: false, controller: null };
  streams.add(stream);
  run(stream);
  return () => close(stream);
}

/** The same as a hook: opened anew when path, query or `deps` change. The newest `on` is the one that is called. */
export function useStream(path, query, on, deps = []) {
  const newest = useRef(on);
  newest.current = on;
  useEffect(() => {
    if (!path) return undefined;
    const heard = Object.fromEntries(
      Object.keys(newest.current ?? {}).map((kind) => [kind, (...said) => newest.current[kind]?.(...said)]),
    );
    return follow(path, { query, on: heard });
  }, [path, queryText(query), ...deps]);
}

function close(stream) {
  stream.closed = true;
  streams.delete(stream);
  tell(stream, null);
  stream.controller?.abort();
  stream.wake?.();
}

async function run(stream) {
  show(stream, "connecting");
  while (!stream.closed) {
    if (asleep) {
      await awake();
      continue;
    }
    try {
      await listen(stream);
    } catch (error) {
      if (stream.closed) return;
      if (error?.status === 401) signIn();
      if (error?.status >= 400 && error.status < 500 && error.status !== 408 && error.status !== 429) {
        stream.on.end?.(null, stream.lastId);  // deleted, or not ours to see: asking again would not help
        close(stream);
        return;
      }
    }
    if (stream.closed || asleep) continue;
    stream.failures += 1;
    show(stream, stream.failures >= LOST_AFTER ? "lost" : "connecting");
    const pause = LATER[Math.min(stream.failures, LATER.length) - 1];
    await sleep(stream, pause * (0.75 + Math.random() / 2));
  }
}

function show(stream, state) {
  if (stream.closed) return;
  tell(stream, state);
  stream.onState?.(state);
}

async function listen(stream) {
  const controller = new AbortController();
  stream.controller = controller;
  let watch = setTimeout(() => controller.abort(), SILENCE);
  try {
    const headers = { Accept: "text/event-stream" };
    if (stream.lastId) headers["Last-Event-ID"] = stream.lastId;
    const answer = await fetch(`/api/v1${stream.path}${queryText(stream.query)}`, {
      headers, signal: controller.signal, credentials: "same-origin", cache: "no-store",
    });
    if (!answer.ok) throw await readProblem(answer);
    show(stream, "live");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = parser((message) => deliver(stream, message));
    for (;;) {
      const { value, done } = await reader.read();
      if (done || stream.closed) return;
      stream.failures = 0;
      clearTimeout(watch);
      watch = setTimeout(() => controller.abort(), SILENCE);
      parse(value);
    }
  } finally {
    clearTimeout(watch);
    controller.abort();
  }
}

function deliver(stream, { kind, data, id }) {
  if (stream.closed) return;
  if (id !== undefined) stream.lastId = id;
  try {
    stream.on[kind]?.(data === "" ? null : JSON.parse(data), stream.lastId);
  } catch (error) {
    console.error(`a "${kind}" message could not be shown`, error);  // one bad message must not end the stream
  }
  if (kind === "end") close(stream);
}

/** Text in pieces of any size → whole messages. */
export function parser(emit) {
  let rest = "";
  let kind = "message";
  let id;
  let data = [];
  return (text) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (data.length) emit({ kind, id, data: data.join("\n") });
        kind = "message";
        data = [];
        continue;
      }
      const at = line.indexOf(":");
      if (at === 0) continue;  // a comment: it has already shown that the server is there
      const field = at < 0 ? line : line.slice(0, at);
      const value = at < 0 ? "" : line.slice(line[at + 1] === " " ? at + 2 : at + 1);
      if (field === "event") kind = value;
      else if (field === "data") data.push(value);
      else if (field === "id") id = value;
    }
  };
}

function sleep(stream, milliseconds) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    stream.wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}

// --- tabs that nobody sees ---------------------------------------------------------------------------------------

let asleep = false;
let hiding = null;
let wakers = [];

const awake = () => new Promise((resolve) => wakers.push(resolve));

document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) {
    hiding = setTimeout(() => {
      asleep = true;
      for (const stream of streams) stream.controller?.abort();
    }, HIDDEN);
  } else {
    asleep = false;
    for (const waker of wakers.splice(0)) waker();
    for (const stream of streams) stream.wake?.();
  }
});
addEventListener("online", () => {
  for (const stream of streams) stream.wake?.();
});

// --- a request that did not get through --------------------------------------------------------------------------

const REQUESTS = "requests";

onUnreachable(async () => {
  if (states.has(REQUESTS)) return;
  tell(REQUESTS, "lost");
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 2000));
    try {
      if ((await fetch("/healthz", { cache: "no-store" })).ok) break;
    } catch {
      // Still away.
    }
  }
  tell(REQUESTS, null);
  for (const stream of streams) stream.wake?.();
});
