// The page of runs that the address asks for, kept live: rows change in place, and where their order or number may
// have changed the page is asked for again, at most once a second.
import { useCallback, useEffect, useMemo, useRef, useState } from "../lib.js";
import { api } from "../api.js";
import { hopeful, useAsking } from "../asking.js";
import { useStream } from "../live.js";

export const PAGE = 100;
const AGAIN = 1000;  // milliseconds between two questions for the page, however much happens
const LINES = 10_000;  // milliseconds between two looks at the losses
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
  const gone = useRef(new Set()).current;  // deleted, whatever an answer says that was read before

  const [load, again] = useAsking(async (wanted) => {
    const from = performance.now();
    try {
      const found = await api.get("/runs", { ...filter, sort, limit: PAGE, after: page > 1 ? (page - 1) * PAGE : undefined });
      if (!wanted()) return;
      const there = found.runs.filter((run) => !gone.has(run.id));
      setState((before) => ({
        runs: newer(before.runs, there, from), total: found.total - (found.runs.length - there.length),
        cursor: before.cursor ?? found.cursor, problem: null, asked, shown: page,
      }));
    } catch (problem) {
      if (wanted()) setState((before) => ({ ...before, problem: hopeful(problem) }));
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
      gone.add(run);
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

/** The rows of an answer that was asked for at `from`, but those of which something was told since: it may be older than that. */
function newer(before, found, from) {
  const since = new Map((before ?? []).filter((run) => run.told > from).map((run) => [run.id, run]));
  const told = performance.now();
  return found.map((run) => since.get(run.id) ?? { ...run, told });
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
  const known = useRef(new Map()).current;  // run -> its status when its line was drawn; one that failed is asked for again
  useEffect(() => {
    const ask = async () => {
      const wanted = (now.current ?? []).filter((run) => run.status === "running" || known.get(run.id) !== run.status);
      if (!wanted.length) return;
      try {
        const found = await api.get("/sparklines", { run: wanted.map((run) => run.id), width: 40 });
        for (const run of wanted) known.set(run.id, run.status);
        setLines((before) => ({ ...before, ...found.sparklines }));
      } catch {
        // The next one, then: a list without its lines is still a list.
      }
    };
    ask();
    const timer = setInterval(() => { if (!document.hidden) ask(); }, LINES);
    return () => clearInterval(timer);
  }, [ids]);
  return lines;
}
