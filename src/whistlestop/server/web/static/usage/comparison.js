// What the work has cost, beside what the same productive time would cost on one market alone.
import { html } from "../lib.js";
import { credits } from "../format.js";
import { hours, share } from "./words.js";

export function Comparison({ comparison: told }) {
  const rows = [
    ["The mix so far", told.cost, "mix", `with all that was done again, saved and waited for; ${share(told.spot_share)} of the productive time on spot`],
    ["On demand alone", told.on_demand, "on_demand", "the productive time only, at today's prices"],
    ["Spot alone", told.spot, "spot", "if nothing were ever taken back, which spot does not promise"],
  ];
  const most = Math.max(...rows.map(([, value]) => value ?? 0), 1e-9);
  const saved = told.on_demand === null ? null : told.on_demand - told.cost;
  return html`<div class="comparison"><dl>${rows.map(([name, value, id, words]) => html`<div key=${id} class="comparison-row"><dt>${name}</dt>
    <dd>${value === null || value === undefined ? html`<span class="muted">can't be told: not every class that was used has such a pool</span>` : html`<span class="comparison-track"><span class="comparison-bar is-${id}"
      style=${{ width: `${(value / most) * 100}%` }}></span></span><span class="number comparison-value">${credits(value)}</span>`}
      ${value !== null && value !== undefined && html`<span class="faint small comparison-words">${words}</span>`}</dd></div>`)}</dl>
    <p class="muted">${hours(told.hours)} of productive slot time.${saved !== null && told.hours > 0 ? (saved >= 0 ? ` ${credits(saved)} less than on demand alone.`
      : ` ${credits(-saved)} more than on demand alone.`) : ""}${told.unpriced_hours > 0 ? ` ${hours(told.unpriced_hours)} on pools that are gone are left out.` : ""}</p></div>`;
}
