// Server-sent events that survive everything: a restart of the server, a cut line, a laptop's sleep.
// By fetch instead of EventSource, which hides the HTTP status, the keep-alive comments and the Last-Event-ID header.
import { isAway, onUnreachable, readProblem, signIn } from "./api.js";
import { cell, useEffect, useRef } from "./lib.js";
import { queryText } from "./route.js";
import { hasSlot, onSlot, wantSlot } from "./slots.js";

const SILENCE = 40_000;  // the server says something every 15 s
const HIDDEN = 30_000;  // a browser has six connections to a server, for all tabs: those that nobody sees give theirs back
const GLANCE = 2000;  // without a slot of its own a stream is opened for this long at most
const SEEN = 200;  // and for this long after its first message
const BETWEEN = 4000;  // two glances
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

/** Follows one stream until `close()`, or until the server says "end". `on`: {kind: (data, id) => …}. `place.id` is the last
 * id that was heard. `prepare(id)` is asked before every connection and may say another one to go on from. */
export function follow(path, { query, on, prepare, place = { id: "" } } = {}) {
  const stream = { path, query, on: on ?? {}, prepare, place, failures: 0, closed: false, left: false, controller: null };
  streams.add(stream);
  wantSlot(!asleep);
  run(stream);
  return () => close(stream);
}

/** The same as a hook: opened anew when path or query change; on the same path it goes on where it was. The newest `on` and
 * `prepare` are those that are called. */
export function useStream(path, query, on, prepare) {
  const newest = useRef(null);
  newest.current = { on, prepare };
  const last = useRef({ path: null, place: null });
  useEffect(() => {
    if (!path) return undefined;
    if (last.current.path !== path) last.current = { path, place: { id: "" } };
    const heard = Object.fromEntries(
      Object.keys(newest.current.on ?? {}).map((kind) => [kind, (...said) => newest.current.on[kind]?.(...said)]),
    );
    return follow(path, { query, on: heard, place: last.current.place, prepare: (id) => newest.current.prepare?.(id) ?? id });
  }, [path, queryText(query)]);
}

function close(stream) {
  stream.closed = true;
  streams.delete(stream);
  if (streams.size === 0) wantSlot(false);
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
      if (error?.status === 401) {
        close(stream);
        signIn();
        return;
      }
      // Deleted, or not ours to see: asking again would not help. Anything else, a proxy's own 404 say, passes, and where
      // nobody hears of the end it has to show as lost.
      if (error?.ours && !isAway(error) && stream.on.end) {
        stream.on.end(null, stream.place.id);
        close(stream);
        return;
      }
    }
    if (stream.closed || asleep) continue;
    if (stream.left) {
      if (!hasSlot()) await sleep(stream, BETWEEN);
      continue;
    }
    stream.failures += 1;
    show(stream, stream.failures >= LOST_AFTER ? "lost" : "connecting");
    const pause = LATER[Math.min(stream.failures, LATER.length) - 1];
    await sleep(stream, pause * (0.75 + Math.random() / 2));
  }
}

function show(stream, state) {
  if (stream.closed) return;
  tell(stream, state);
}

async function listen(stream) {
  const controller = new AbortController();
  stream.controller = controller;
  stream.left = false;
  const brief = !hasSlot();
  const leave = () => {
    stream.left = brief;
    controller.abort();
  };
  let watch = setTimeout(() => controller.abort(), SILENCE);
  let glanced = null;
  try {
    const headers = { Accept: "text/event-stream" };
    const { place, query } = stream;
    if (stream.prepare) {
      const id = await Promise.race([stream.prepare(place.id || (query?.last_event_id ?? "")), aborted(controller.signal)]);
      if (stream.closed) return;  // the place may be another stream's by now
      place.id = id;
    }
    if (place.id) headers["Last-Event-ID"] = place.id;
    const answer = await fetch(`/api/v1${stream.path}${queryText(stream.query)}`, {
      headers, signal: controller.signal, credentials: "same-origin", cache: "no-store",
    });
    if (!answer.ok) throw await readProblem(answer);
    show(stream, "live");
    clearTimeout(watch);
    watch = setTimeout(leave, brief ? GLANCE : SILENCE);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = parser((message) => {
      if (brief) glanced ??= setTimeout(leave, SEEN);
      deliver(stream, message);
    });
    for (;;) {
      const { value, done } = await reader.read();
      if (done || stream.closed) return;
      stream.failures = 0;
      if (!brief) {
        clearTimeout(watch);
        watch = setTimeout(leave, SILENCE);
      }
      parse(value);
    }
  } finally {
    clearTimeout(watch);
    clearTimeout(glanced);
    controller.abort();
  }
}

function aborted(signal) {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}

function deliver(stream, { kind, data, id }) {
  if (stream.closed) return;
  if (id !== undefined) stream.place.id = id;
  try {
    stream.on[kind]?.(data === "" ? null : JSON.parse(data), stream.place.id);
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

function seen() {
  clearTimeout(hiding);
  if (document.hidden) {
    hiding = setTimeout(() => {
      asleep = true;
      wantSlot(false);
      for (const stream of streams) stream.controller?.abort();
    }, HIDDEN);
  } else {
    asleep = false;
    wantSlot(streams.size > 0);
    for (const waker of wakers.splice(0)) waker();
    for (const stream of streams) stream.wake?.();
  }
}

document.addEventListener("visibilitychange", seen);
seen();  // a tab that is opened in the background is hidden from the start, and nothing tells so
onSlot((had) => {
  for (const stream of streams) {
    if (had) {
      stream.wake?.();
    } else {
      stream.left = true;
      stream.controller?.abort();
    }
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
