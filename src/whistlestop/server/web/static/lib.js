// The vendored libraries, in one place: nobody else imports vendor/ (but run/chart.js, which takes uPlot).
// Preact 11: a number in a style is not made into pixels; write `style=${{ width: `${x}px` }}`.
import { h, render, cloneElement, toChildArray } from "./vendor/preact.js";
import {
  useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useReducer, useId, useErrorBoundary,
} from "./vendor/preact-hooks.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export {
  render, cloneElement, toChildArray,
  useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useReducer, useId, useErrorBoundary,
};

/** A value that lives outside of components: `get()`, `set(value)`, `listen(listener)`, and `use()` inside of one. */
export function cell(first) {
  let value = first;
  const listeners = new Set();
  const get = () => value;
  const set = (next) => {
    if (Object.is(next, value)) return;
    value = next;
    for (const listener of [...listeners]) listener(value);
  };
  const listen = (listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  };
  const use = () => {
    const [, show] = useState(value);
    useLayoutEffect(() => {
      const listener = (next) => show(() => next);
      const leave = listen(listener);
      listener(value);  // it may have changed between render and effect
      return leave;
    }, []);
    return value;
  };
  return { get, set, listen, use };
}
