// The run page's state: loaded once, then moved by one stream. Everything below it gets props and keeps nothing.
import { api, isAway } from "../api.js";
import { AWAY, hopeful } from "../asking.js";
import { useCallback, useEffect, useReducer, useRef, useState } from "../lib.js";
import { useStream } from "../live.js";
import { begin, isEnded, reduce } from "./reduce.js";

const FIRST_EVENTS = 200;
const MORE_EVENTS = 500;
const LOOK_AGAIN = 15_000;  // what no message tells: a runner that has fallen silent, a run that was deleted
const GATHER = 100;  // ms: a burst of messages is one update of the page
const RETELLS = new Set([  // events after which the timeline has something new
  "placed", "preparing", "program_started", "training", "ended", "resume_requested", "steered", "phase_running",
  "phase_pending", "run_queued",
]);

/** `{run, timeline, events, …}` of reduce.js, with `loadOlder()`, `took(run)` for answers of our own requests, and `hear(log)`,
 * which tells a LogStore what is printed. `more`: topics that the tab needs beside those of the page. */
export function useRun(id, more = []) {
  const [state, dispatch] = useReducer(reduce, id, begin);
  const path = `/runs/${encodeURIComponent(id)}`;

  const heard = useRef(0);  // runs that the stream has told
  const look = async () => {
    const before = heard.current;
    try {
      const run = await api.get(path);
      if (heard.current === before) dispatch({ kind: "run", run, now: performance.now() });  // else it may be older
    } catch (problem) {
      dispatch({ kind: "problem", problem });
    }
  };
  const planned = useRef({ timer: null, at: Infinity });
  /** Soon, and once for all who ask meanwhile. */
  const timeline = (after = 250) => {
    const at = performance.now() + after;
    if (planned.current.at <= at) return;
    clearTimeout(planned.current.timer);
    const timer = setTimeout(async () => {
      planned.current = { timer: null, at: Infinity };
      try {
        dispatch({ kind: "timeline", timeline: await api.get(`${path}/timeline`) });
      } catch {
        // The page is complete without its marks; the next change asks again.
      }
    }, after);
    planned.current = { timer, at };
  };

  useEffect(() => {
    let gone = false;
    let again = null;
    dispatch({ kind: "begin", id });
    const load = async () => {
      try {
        const [run, events] = await Promise.all([
          api.get(path), api.get(`${path}/events`, { newest: true, limit: FIRST_EVENTS }),
        ]);
        if (gone) return;
        dispatch({ kind: "loaded", run, events, most: FIRST_EVENTS, now: performance.now() });
        timeline(0);
      } catch (problem) {
        if (gone) return;
        dispatch({ kind: "problem", problem: hopeful(problem) });
        if (isAway(problem)) again = setTimeout(load, AWAY);
      }
    };
    load();
    return () => {
      gone = true;
      clearTimeout(again);
      clearTimeout(planned.current.timer);
      planned.current = { timer: null, at: Infinity };
    };
  }, [id]);

  const gathered = useRef([]);
  const flush = useRef(null);
  const gather = (message) => {
    gathered.current.push(message);
    flush.current ??= setTimeout(() => {
      flush.current = null;
      dispatch({ kind: "several", actions: gathered.current.splice(0) });
    }, GATHER);
  };
  const [log, setLog] = useState(null);
  const hear = useCallback((store) => {
    setLog(store);
    return () => setLog((now) => (now === store ? null : now));
  }, []);
  const topics = ["run", "progress", "events", ...more, ...(log ? ["logs"] : [])];
  useStream(state.from === null ? null : `${path}/stream`,
    { topics: topics.join(","), last_event_id: state.from ?? undefined },
    {
      run: (run) => {
        heard.current += 1;
        gather({ kind: "run", run, now: performance.now() });
      },
      progress: (said) => gather({ kind: "progress", said, now: performance.now() }),
      event: (event) => {
        gather({ kind: "event", event });
        if (RETELLS.has(event.kind)) timeline();
        else if (event.kind === "epoch") timeline(2000);  // a program that reports them may do so often
      },
      series: (said) => dispatch({ kind: "series", said }),
      log: (line) => log?.grow(line),
      end: () => {
        look();
        timeline();
        log?.measure().catch(() => {});  // it says so itself
      },
    },
    // Lines are told from here on: those that were missed, a night's maybe, are counted, and fetched where they are looked at.
    async (place) => (log ? place.replace(/;l[^;]*/, `;l${await log.measure()}`) : place));
  useEffect(() => () => clearTimeout(flush.current), []);

  // Where the marks lie depends on these two, and a program may tell them late, or change its mind.
  const lengths = state.run?.phases.map(({ progress }) => `${progress.total}/${progress.batches}`).join();
  useEffect(() => {
    if (lengths) timeline();
  }, [lengths]);

  const open = state.run !== null && !state.deleted;
  useEffect(() => {
    if (!open) return undefined;
    const again = () => document.hidden || look();
    const timer = setInterval(again, LOOK_AGAIN);
    addEventListener("focus", again);
    return () => {
      clearInterval(timer);
      removeEventListener("focus", again);
    };
  }, [id, open]);

  const loadOlder = async () => {
    const events = await api.get(`${path}/events`, { before: state.events[0]?.seq, newest: true, limit: MORE_EVENTS });
    dispatch({ kind: "older", events, most: MORE_EVENTS });
  };
  const took = (run) => dispatch({ kind: "run", run, now: performance.now() });
  return { ...state, ended: state.run !== null && isEnded(state.run), loadOlder, took, hear };
}
