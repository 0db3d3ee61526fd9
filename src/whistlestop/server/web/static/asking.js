// A question to the server that is asked until it is answered.
import { isAway } from "./api.js";
import { useCallback, useEffect, useRef } from "./lib.js";

export const AWAY = 2000;  // milliseconds before a server that is away is asked again
const SOON = 30;

/** `[ask, askSoon]`: now, or when `pace` has passed since the last time, any number of calls in between being one. `act` asks
 * and shows what it got; if it throws because the server is away, it is called again until the component is gone. `askSoon`
 * waits for an answer that is on its way. `ask` does not: the older answer is then nobody's, as `act`'s `wanted()` tells. */
export function useAsking(act, pace = 0) {
  const newest = useRef(act);
  newest.current = act;
  const state = useRef({ last: -Infinity, timer: null, gone: false, turn: 0, busy: false, again: false }).current;
  const later = (milliseconds) => {
    if (!state.gone) state.timer ??= setTimeout(ask, milliseconds);
  };
  const soon = () => later(Math.max(SOON, state.last + pace - performance.now()));
  const ask = useCallback(async () => {
    clearTimeout(state.timer);
    Object.assign(state, { timer: null, last: performance.now(), busy: true, again: false });
    const turn = ++state.turn;
    const wanted = () => turn === state.turn && !state.gone;
    let failed = null;
    try {
      await newest.current(wanted);
    } catch (problem) {
      failed = problem;
    }
    if (turn === state.turn) {
      state.busy = false;
      if (failed && isAway(failed)) later(AWAY);
      else if (state.again) soon();
    }
    if (failed && failed.status === undefined) throw failed;  // no refusal, but a mistake of ours
  }, []);
  const askSoon = useCallback(() => {
    if (state.busy) state.again = true;
    else soon();
  }, []);
  useEffect(() => {
    state.gone = false;
    return () => {
      state.gone = true;
      clearTimeout(state.timer);
    };
  }, []);
  return [ask, askSoon];
}

/** The problem, in the words of one who asks again. */
export function hopeful(problem) {
  if (isAway(problem) && !(problem.ours && problem.hint)) problem.hint = "It is asked again until it answers. Runs go on meanwhile.";
  return problem;
}
