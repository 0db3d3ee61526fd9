// What a page lists, kept live: asked again whenever a run has changed, and now and then for what changes without one.
import { api } from "../api.js";
import { hopeful, useAsking } from "../asking.js";
import { useEffect, useState } from "../lib.js";
import { useStream } from "../live.js";

/** `[found, problem, again]` of `question()`, asked anew when any run has changed, at most once in `pace` milliseconds; with `every` also
 * after so many, while somebody looks. */
export function useListed(question, pace, every = null) {
  const [state, setState] = useState({ found: null, problem: null, cursor: null });
  const show = (change) => setState((before) => ({ ...before, ...change }));
  const [ask, again] = useAsking(async (wanted) => {
    try {
      if (state.cursor === null) show({ cursor: (await api.get("/runs", { limit: 1 })).cursor });  // first: all that changes from now on is told
      const found = await question();
      if (wanted()) show({ found, problem: null });
    } catch (problem) {
      if (wanted()) show({ problem: hopeful(problem) });
      throw problem;
    }
  }, pace);
  useEffect(() => { ask(); }, []);
  useStream(state.cursor === null ? null : "/rows/stream", { last_event_id: state.cursor ?? undefined }, { run: again, gone: again });
  useEffect(() => {
    if (!every) return undefined;
    const timer = setInterval(() => { if (!document.hidden) again(); }, every);
    return () => clearInterval(timer);
  }, [every]);
  return [state.found, state.problem, again];
}
