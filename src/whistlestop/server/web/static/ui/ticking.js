// An elapsed time that goes on by itself between two messages of the server. One timer for all of them on the page.
import { html, useEffect, useState } from "../lib.js";
import { length } from "../format.js";

const shown = new Set();
let timer = null;

function join(listener) {
  shown.add(listener);
  timer ??= setInterval(() => shown.forEach((one) => one()), 500);
  return () => {
    shown.delete(listener);
    if (shown.size === 0) {
      clearInterval(timer);
      timer = null;
    }
  };
}

/** `seconds` as told at `since` (performance.now()); it goes on while `going`. */
export function Ticking({ seconds, since, going }) {
  const now = () => length(seconds + (going && since != null ? Math.max(0, performance.now() - since) / 1000 : 0));
  const [, show] = useState("");
  useEffect(() => (going ? join(() => show(now())) : undefined), [seconds, since, going]);
  return html`<span class="ticking">${now()}</span>`;
}
