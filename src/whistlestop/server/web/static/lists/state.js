// The page of runs that the address asks for, kept live: rows change in place, and where their order or number may
// have changed the page is asked for again, at most once a second.
import { useCallback, useEffect, useMemo, useRef, useState } from "../lib.js";
import { api } from "../api.js";
import { useAsking } from "../asking.js";
import { useStream } from "../live.js";

export const PAGE = 100;
const AGAIN = 1000;  // milliseconds between two questions for the page, however much happens
const ACTIVE = new Set(["queued", "starting", "running", "waiting"]);

/** The filter that an address means. */
export function filterOf(project, query) {
  return {
    project,
    status: [].concat(query.status ?? []),
    search: query.q || undefined,
    workflow: query.workflow || undefined,
  };
}

export function useRuns(project, query) {
  const filter = filterOf(project, query);
  const page = Math.max(1, Number(query.page) || 1);
  const sort = query.sort || "-created";
  const asked = JSON.stringify([filter, sort, page]);
  const [state, setState] = useState({ runs: null, total: 0, cursor: null, problem: null, asked: null });
  const newest = useRef(asked);
  newest.current = asked;

  const [load, again] = useAsking(async () => {
    const wanted = newest.current;
    const [what, order, at] = JSON.parse(wanted);
    try {
      const found = await api.get("/runs", { ...what, sort: order, limit: PAGE, after: at > 1 ? (at - 1) * PAGE : undefined });
      if (newest.current !== wanted) return;
      const told = performance.now();
      setState((before) => ({
        runs: found.runs.map((run) => ({ ...run, told })), total: found.total,
        cursor: before.cursor ?? found.cursor, problem: null, asked: wanted, shown: at,
      }));
    } catch (problem) {
      if (newest.current !== wanted) return;
      setState((before) => ({ ...before, problem }));
      throw problem;
    }
  }, AGAIN);
  useEffect(() => { load(); }, [asked]);

  const shown = useRef(null);
  shown.current = state.runs;
  const change = useCallback((id, with_) => setState((before) => (before.runs?.some((run) => run.id === id)
    ? { ...before, runs: before.runs.map((run) => (run.id === id ? { ...run, ...with_ } : run)) } : before)), []);

  // From the first answer on: the stream goes on where it ended, and by itself after every break.
  useStream(state.cursor === null ? null : "/rows/stream", { last_event_id: state.cursor ?? undefined }, {
    run: (run) => {
      if (run.project !== project) return;
      const before = shown.current?.find((each) => each.id === run.id);
      if (before) change(run.id, { ...run, told: performance.now() });
      if (!before || moves(before, run, sort) || !fits(run, filter)) again();
    },
    gone: ({ run }) => {
      if (!shown.current?.some((each) => each.id === run)) return;
      setState((before) => ({ ...before, runs: before.runs.filter((each) => each.id !== run), total: before.total - 1 }));
      again();
    },
    progress: ({ runs }) => {
      const by = new Map(runs.map((one) => [one.run, one]));
      if (!shown.current?.some((run) => by.has(run.id))) return;
      setState((before) => ({
        ...before,
        runs: before.runs.map((run) => (by.has(run.id) && ACTIVE.has(run.status)
          ? { ...run, progress: by.get(run.id).progress, eta_s: by.get(run.id).eta_s } : run)),
      }));
    },
  });
  return { ...state, loading: state.asked !== asked, filter, page, sort, pages: Math.max(1, Math.ceil(state.total / PAGE)), again };
}

function fits(run, filter) {
  return !filter.status.length || filter.status.includes(run.status);
}

/** Whether the change can have moved the row. */
function moves(before, after, sort) {
  const key = { name: "name", status: "status", started: "started_at", ended: "ended_at", priority: "priority" }[sort.replace(/^-/, "")];
  return Boolean(key) && before[key] !== after[key];
}

/** The loss of the runs on this page, as small lines; asked anew for those that run. Nothing where there is none. */
export function useSparklines(runs) {
  const [lines, setLines] = useState({});
  const ids = useMemo(() => (runs ?? []).map((run) => run.id).sort().join(" "), [runs?.map((run) => run.id).sort().join(" ")]);
  const now = useRef(runs);
  now.current = runs;
  useEffect(() => {
    let current = true;
    const ask = (wanted) => {
      if (wanted.length && !document.hidden) {
        api.get("/sparklines", { run: wanted, width: 40 }).then(
          (found) => current && setLines((before) => ({ ...before, ...found.sparklines })), () => {},
        );
      }
    };
    ask(ids ? ids.split(" ") : []);
    const timer = setInterval(() => ask((now.current ?? []).filter((run) => run.status === "running").map((run) => run.id)), 10_000);
    return () => {
      current = false;
      clearInterval(timer);
    };
  }, [ids]);
  return lines;
}
