// What the run costs: slot time of its attempts times the price, counted on by itself between two messages.
import { useAnswer } from "../answer.js";
import { now } from "../api.js";
import { html, useEffect, useState } from "../lib.js";
import { credits, length } from "../format.js";
import { KINDS, kindWord } from "../usage/words.js";
import { allAttempts, isAlive, secondsOf } from "./words.js";

const LEAST = 0.005;  // credits; less is not worth a word
const AGAIN = 30;  // seconds between two looks at what it was spent on

/** Credits a second of all that runs now, as far as the server has told. */
function rate(run, told) {
  const then = now() - (performance.now() - told);
  return allAttempts(run).filter(isAlive).reduce((sum, attempt) => {
    const seconds = secondsOf(attempt, then);
    return seconds > 1 ? sum + attempt.credits / seconds : sum;
  }, 0);
}

export function Spent({ run, told }) {
  const going = allAttempts(run).some(isAlive);
  const [, tick] = useState(0);
  useEffect(() => {
    if (!going) return undefined;
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, [going]);
  const more = going ? (rate(run, told) * (performance.now() - told)) / 1000 : 0;
  return html`<span class="spent">${credits(run.credits.used + more)}</span>`;
}

export function Credits({ run, told }) {
  const attempts = allAttempts(run);
  const alive = attempts.filter(isAlive);
  const slots = alive.reduce((sum, attempt) => sum + attempt.slots.length, 0);
  const hourly = rate(run, told) * 3600;
  const { estimated, saved } = run.credits;
  return html`<section class="card" aria-labelledby="credits-title">
    <h2 id="credits-title">Credits</h2>
    <dl class="facts">
      <dt>used</dt><dd><${Spent} run=${run} told=${told} /></dd>
      ${known(estimated) && !known(saved) && alive.length > 0 && html`<dt>estimated in all</dt><dd>${credits(estimated)}${between(run.credits)}</dd>`}
      ${known(estimated) && known(saved) && html`<dt>would have cost</dt><dd>${credits(estimated)}</dd>`}
      ${known(saved) && html`<dt>saved by the kill</dt><dd class="saved">${credits(saved)}</dd>`}
      ${alive.length > 0 && html`<dt>now</dt><dd>${slots === 1 ? "1 slot" : `${slots} slots`}, ${credits(hourly)} an hour</dd>`}
      ${attempts.length > 0 && html`<dt>slot time</dt><dd>${length(attempts.reduce((sum, attempt) => sum + secondsOf(attempt, now()) * attempt.slots.length, 0))}</dd>`}
      <${SpentOn} run=${run} alive=${alive.length > 0} />
    </dl>
    <p class="small muted">${alive.length > 0 ? "The meter stops when every process is proven gone."
      : attempts.length > 0 ? "Nothing of it runs: the meter stands still." : "Time in the queue is free."}</p>
  </section>`;
}

const known = (x) => x !== null && x !== undefined;

/** " (9.60 to 10.50)": in eight of ten cases the whole lies there. */
function between({ low, high }) {
  const [from, to] = [credits(low), credits(high)];
  return known(low) && known(high) && from !== to ? html` <span class="muted nowrap">(${from} to ${to})</span>` : "";
}

/** By kind of time, the dearest first. The stream does not tell it: it is asked for when an attempt begins or ends, and now and then. */
function SpentOn({ run, alive }) {
  const [stamp, setStamp] = useState(0);
  useEffect(() => {
    if (!alive) return undefined;
    const timer = setInterval(() => setStamp((n) => n + 1), AGAIN * 1000);
    return () => clearInterval(timer);
  }, [alive]);
  const attempts = allAttempts(run);
  const [answer] = useAnswer(attempts.length ? `/runs/${encodeURIComponent(run.id)}` : null, undefined, `${attempts.map((one) => one.status)} ${stamp}`);
  const kinds = answer?.credits.kinds ?? {};
  const rows = KINDS.map(([kind]) => [kind, kinds[kind] ?? 0]).filter(([, value]) => value >= LEAST).sort(([, one], [, other]) => other - one);
  if (!rows.length) return null;
  return html`<dt>spent on</dt><dd><ul class="plain-list spent-on">${rows.map(([kind, value]) => html`<li key=${kind} data-kind=${kind}>${credits(value)} ${kindWord(kind)}</li>`)}</ul></dd>`;
}
