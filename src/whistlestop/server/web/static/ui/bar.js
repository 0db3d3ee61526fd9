// How much of something is done. `value` is a fraction; null: nobody knows.
import { html } from "../lib.js";
import { percent } from "../format.js";

export function Bar({ value, label, tone = "accent" }) {
  const known = value !== null && value !== undefined && Number.isFinite(value);
  const share = known ? Math.min(1, Math.max(0, value)) : 0;
  return html`<span class="bar is-${tone} ${known ? "" : "is-unknown"}" role="progressbar" aria-label=${label}
    aria-valuemin="0" aria-valuemax="100" aria-valuenow=${known ? Math.floor(share * 100 + 1e-9) : undefined}
    aria-valuetext=${known ? percent(share) : "unknown"}
  ><span class="bar-fill" style=${{ width: `${share * 100}%` }}></span></span>`;
}
