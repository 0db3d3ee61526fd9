// Times that go on by themselves between two messages of the server. One timer for all of them on the page.
import { html, useEffect, useReducer, useState } from "../lib.js";
import { now } from "../api.js";
import { ago, length } from "../format.js";

/** `join(listener)`: called from now on, until what it returns is called. One timer for all. */
function pulse(milliseconds) {
  const shown = new Set();
  let timer = null;
  return (listener) => {
    shown.add(listener);
    timer ??= setInterval(() => shown.forEach((one) => one()), milliseconds);
    return () => {
      shown.delete(listener);
      if (shown.size === 0) {
        clearInterval(timer);
        timer = null;
      }
    };
  };
}

const join = pulse(500);
const joinSlow = pulse(30_000);

/** `seconds` as told at `since` (performance.now()); it goes on while `going`. */
export function Ticking({ seconds, since, going }) {
  const text = () => length(seconds + (going && since != null ? Math.max(0, performance.now() - since) / 1000 : 0));
  const [, show] = useState("");
  useEffect(() => (going ? join(() => show(text())) : undefined), [seconds, since, going]);
  return html`<span class="ticking">${text()}</span>`;
}

/** "3 minutes ago", which a page that is left open goes on telling. */
export function Ago({ at }) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  useEffect(() => joinSlow(redraw), []);
  return ago(at, now());
}
