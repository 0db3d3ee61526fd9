// A question to the server that is asked until it is answered.
import { isAway } from "./api.js";
import { useCallback, useEffect, useRef } from "./lib.js";

export const AWAY = 2000;  // milliseconds before a server that is away is asked again
const SOON = 30;

/** `[ask, askSoon]`: now, or when `pace` has passed since the last time, any number of calls in between being one. `act` asks
 * and shows what it got; if it throws because the server is away, it is called again until the component is gone. */
export function useAsking(act, pace = 0) {
  const newest = useRef(act);
  newest.current = act;
  const state = useRef({ last: -Infinity, timer: null, gone: false }).current;
  const later = (milliseconds) => {
    if (!state.gone) state.timer ??= setTimeout(ask, milliseconds);
  };
  const ask = useCallback(async () => {
    clearTimeout(state.timer);
    state.timer = null;
    state.last = performance.now();
    try {
      await newest.current();
    } catch (problem) {
      if (isAway(problem)) later(AWAY);
      else if (problem.status === undefined) throw problem;  // no refusal, but a mistake of ours
    }
  }, []);
  const askSoon = useCallback(() => later(Math.max(SOON, state.last + pace - performance.now())), []);
  useEffect(() => {
    state.gone = false;
    return () => {
      state.gone = true;
      clearTimeout(state.timer);
    };
  }, []);
  return [ask, askSoon];
}
