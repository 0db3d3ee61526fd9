// What each project may spend, and how long that lasts.
import { html } from "../lib.js";
import { credits, day, length } from "../format.js";
import { Bar, Button, Empty } from "../ui/index.js";

export function Budgets({ budgets, admin, change }) {
  if (!budgets.length) {
    return html`<${Empty} title="No budgets"><p>A project without one may spend what it likes. ${admin ? "Set one here, or by" : "An admin sets one by"}
      <code> whistle usage budget</code>; a run has its own under <code>budget</code> in its spec.</p><//>`;
  }
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Budgets"><table class="table budget-table">
    <thead><tr><th scope="col">Project</th><th scope="col" class="is-number">Budget</th><th scope="col" class="is-number">Spent</th><th scope="col" class="is-number">Left</th>
      <th scope="col"><span class="visually-hidden">Share that is spent</span></th><th scope="col">Lasts</th><th scope="col">Since</th>${admin && html`<td></td>`}</tr></thead>
    <tbody>${budgets.map((one) => html`<tr key=${one.project} data-budget=${one.project}><th scope="row">${one.project}</th>
      <td class="is-number">${credits(one.credits)}</td><td class="is-number">${credits(one.spent + one.running)}</td>
      <td class="is-number ${one.balance <= 0 ? "is-hurt" : ""}">${credits(one.balance)}</td>
      <td class="budget-bar"><${Bar} value=${one.credits ? (one.spent + one.running) / one.credits : 1} label=${`Spent of the budget of ${one.project}`}
        tone=${tone(one)} /></td>
      <td class="nowrap">${one.balance <= 0 ? html`<span class="is-hurt">exhausted</span>` : one.lasts_s === null ? html`<span class="faint">nothing runs</span>` : length(one.lasts_s)}</td>
      <td class="nowrap muted">${day(one.since)}${one.by ? ` by ${one.by}` : ""}</td>
      ${admin && html`<td class="cell-menu"><${Button} class="is-small" onClick=${() => change(one)} aria-label=${`Change the budget of ${one.project}`}>Change…<//></td>`}</tr>`)}</tbody>
  </table></div>`;
}

function tone({ balance, credits: whole }) {
  if (balance <= 0) return "failed";
  return balance < 0.2 * whole ? "waiting" : "accent";
}
