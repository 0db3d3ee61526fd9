// The runtime instances: every try of every phase, with what became of it.
import { now } from "../api.js";
import { html } from "../lib.js";
import { credits, length } from "../format.js";
import { Link } from "../route.js";
import { Empty, Status, Ticking } from "../ui/index.js";
import { allAttempts, count, isAlive, moment, secondsOf, withClocks } from "./words.js";

export function Attempts({ run, told }) {
  const attempts = allAttempts(run).reverse();
  if (attempts.length === 0) {
    return html`<h2 class="visually-hidden">Attempts</h2><${Empty} title="No attempt yet">
      ${run.queue ? `It waits for ${withClocks(run.queue.waits_for)}.` : "Nothing of it has been started."}<//>`;
  }
  const then = now() - (performance.now() - told);
  return html`<section aria-labelledby="attempts-title"><h2 id="attempts-title" class="visually-hidden">Attempts</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Attempts, newest first"><table class="table attempt-table">
      <thead><tr><th scope="col" class="is-number">#</th><th scope="col">phase</th><th scope="col">status</th><th scope="col">pool and slots</th>
        <th scope="col">started</th><th scope="col" class="is-number">elapsed</th><th scope="col" class="is-number">steps</th>
        <th scope="col">exit</th><th scope="col" class="is-number">credits</th><th scope="col"><span class="visually-hidden">logs</span></th></tr></thead>
      ${attempts.map((attempt) => html`<${One} key=${attempt.id} attempt=${attempt} run=${run} told=${told} then=${then} />`)}
    </table></div></section>`;
}

function One({ attempt, run, told, then }) {
  const alive = isAlive(attempt);
  const why = why_of(attempt);
  return html`<tbody class="attempt"><tr>
    <th scope="row" class="is-number">${attempt.number}</th>
    <td>${attempt.phase}</td>
    <td><${Status} status=${attempt.status} />${alive && attempt.stage && html` <span class="faint">${attempt.stage}</span>`}</td>
    <td>${attempt.pool}${attempt.host ? html` on <span class="nowrap">${attempt.host}</span>` : ""}
      <span class="faint"> ${attempt.slots.length === 1 ? `slot ${attempt.slots[0]}` : `slots ${attempt.slots.join(", ")}`}</span></td>
    <td class="number"><time datetime=${attempt.started_at}>${moment(attempt.started_at)}</time></td>
    <td class="is-number">${alive ? html`<${Ticking} seconds=${secondsOf(attempt, then)} since=${told} going=${true} />` : length(secondsOf(attempt))}</td>
    <td class="is-number">${steps(attempt)}</td>
    <td>${attempt.signal ? html`<code>${attempt.signal}</code>` : attempt.exit_code === null || attempt.exit_code === undefined
      ? html`<span class="faint">–</span>` : html`<code>${attempt.exit_code}</code>`}</td>
    <td class="is-number">${credits(attempt.credits)}</td>
    <td><${Link} href="/runs/${encodeURIComponent(run.id)}?tab=logs&attempt=${attempt.number}"
      aria-label="Logs of attempt ${attempt.number}">Logs<//></td>
  </tr>${alive && attempt.leaves_at && html`<tr class="attempt-why attempt-leaves"><td></td><td colspan="9"><span><strong class="tag is-waiting">has to leave</strong> by ${
    moment(attempt.leaves_at)}${attempt.leaves_why ? `: ${attempt.leaves_why}` : ""}</span></td></tr>`}
  ${attempt.why_here && html`<tr class="attempt-why attempt-here"><td></td><td colspan="9"><span>Why here: ${withClocks(attempt.why_here)}</span></td></tr>`}
  ${why && html`<tr class="attempt-why"><td></td><td colspan="9"><span>${why}</span></td></tr>`}</tbody>`;
}

function why_of(attempt) {
  if (isAlive(attempt) && !attempt.reachable) return `UNREACHABLE since ${moment(attempt.heard_at ?? attempt.started_at)}: its runner has not been heard of`;
  if (isAlive(attempt) && attempt.waits_for) return `Waits in ${attempt.pool}: ${attempt.waits_for}`;
  return attempt.text ?? attempt.reason;
}

function steps(attempt) {
  if (!attempt.last_step && (attempt.resumed_from === null || attempt.resumed_from === undefined)) return "–";
  return `${count(attempt.resumed_from ?? 0)} → ${count(attempt.last_step ?? 0)}`;
}
