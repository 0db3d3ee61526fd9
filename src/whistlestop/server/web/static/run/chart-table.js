// A chart in numbers: for those who can't see it, and for those who want to copy one.
import { html } from "../lib.js";
import { number } from "../format.js";
import { nearestOn } from "./chart-lines.js";

const MOST = 100;  // rows; zoom in for more

export function ChartTable({ curves, axis, runs, name }) {
  const shown = curves.filter((curve) => !curve.superseded);
  const own = shown[0];
  if (!own?.x.length) return html`<p class="chart-note">Nothing in this window.</p>`;
  const every = Math.ceil(own.x.length / MOST);
  const rows = own.x.map((_, at) => at).filter((at) => (own.x.length - 1 - at) % every === 0).reverse();
  const bounds = own.bounds;
  return html`<div class="chart-table" tabindex="0" role="region" aria-label="${name} as a table">
    <table class="table">
      <thead><tr>
        <th scope="col">${axis.title}</th>
        ${shown.map((curve) => html`<th scope="col" class="is-number">${runs.length > 1 ? runs[curve.at]?.title : "value"}</th>`)}
        ${bounds && html`<th scope="col" class="is-number">lowest</th><th scope="col" class="is-number">highest</th>`}
      </tr></thead>
      <tbody>${rows.map((at) => html`<tr key=${own.x[at]}>
        <th scope="row">${axis.label(own.x[at])}</th>
        ${shown.map((curve) => html`<td class="is-number">${curve === own ? said(curve.y[at]) : saidOn(curve, own.x[at])}</td>`)}
        ${bounds && html`<td class="is-number">${said(own.low[at])}</td><td class="is-number">${said(own.high[at])}</td>`}
      </tr>`)}</tbody>
    </table>
    ${every > 1 && html`<p class="chart-note">One row of ${every}: zoom in to see the others.</p>`}
  </div>`;
}

function saidOn(curve, x) {
  const at = nearestOn(curve.x, x);
  return at < 0 ? "–" : said(curve.y[at]);
}

const said = (value) => (value === null || value === undefined ? "not finite" : number(value));
