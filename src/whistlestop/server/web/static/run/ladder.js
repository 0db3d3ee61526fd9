// A request in progress: which rung it has come to, which one is next, and when.
import { html } from "../lib.js";
import { length } from "../format.js";
import { useCountdown } from "./header.js";
import { RUNGS, RUNG_DOES, RUNG_NEXT } from "./words.js";

export function Ladder({ ladder }) {
  const left = useCountdown(ladder.next_at);
  const at = RUNGS.indexOf(ladder.rung);
  const next = ladder.next_rung
    ? `${RUNG_NEXT[ladder.next_rung] ?? ladder.next_rung}${left === null ? "" : left > 0 ? ` in ${length(Math.ceil(left))}` : " now"}`
    : null;
  return html`<div class="ladder">
    <ol class="rungs" aria-label="How far the request has come">${RUNGS.map((rung, index) => html`<li key=${rung}
      class=${index < at ? "is-past" : index === at ? "is-here" : "is-ahead"} aria-current=${index === at ? "step" : undefined}
      >${rung}</li>`)}</ol>
    <p class="small muted">${RUNG_DOES[ladder.rung] ?? ladder.rung}${next ? html`; then <strong>${next}</strong>` : "; that is the last rung"}</p>
  </div>`;
}
