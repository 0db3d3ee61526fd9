// Should I kill it? The verdict, why, the evidence, what each choice costs. It is asked when the page opens, when something happens
// that may change it, and now and then: never fast, and it does nothing by itself.
import { useAnswer } from "../answer.js";
import { html, useEffect, useState } from "../lib.js";
import { Icon } from "../ui/index.js";
import { AdviceCurve } from "./advice-curve.js";
import { CHOICES, VERDICTS, price, saves, speaks, time } from "./advice-words.js";
import { count, isAlive, allAttempts, moment } from "./words.js";

const AGAIN = 60;  // seconds between two looks at a run that lives
const PARTS = 20;  // of its steps: it is asked anew after each
const EARLY = 0.02;  // of its steps: until then it is asked anew after each thousandth, so that the first word comes soon
const MATTERS = new Set(["finding", "finding_over", "stuck", "going_again", "straggler", "save_failed", "ended", "training", "steered"]);
const LINES = 12;  // of evidence that are seen at once

export function Advice({ run, events }) {
  const stamp = useStamp(run, events);
  const [advice] = useAnswer(`/runs/${encodeURIComponent(run.id)}/advice`, { max_age: 2 }, stamp);
  if (!advice || !speaks(advice)) return null;
  const [title, tone, icon] = VERDICTS[advice.verdict];
  return html`<section class="card advice is-${tone}" aria-labelledby="advice-title" data-verdict=${advice.verdict}>
    <h2 id="advice-title"><${Icon} name=${icon} /> <span class="advice-word">Advice:</span> ${title}${advice.sure ? "" : html` <span class="muted">(not sure)</span>`}</h2>
    <p>${advice.reason}</p>
    ${advice.do && html`<p class="muted">${advice.do}</p>`}
    ${advice.findings.map((found, at) => html`<${Found} key=${`${found.cause} ${at}`} found=${found} said=${advice.do} />`)}
    ${advice.choices.length > 0 && html`<${Choices} choices=${advice.choices} />`}
    ${advice.gain && html`<${AdviceCurve} gain=${advice.gain} />`}
    <p class="small muted">As of ${moment(advice.at)}. In eight of ten runs the truth lies inside of what stands in brackets. Nothing is done by itself.</p>
  </section>`;
}

/** It changes whenever the answer may have. */
function useStamp(run, events) {
  const alive = allAttempts(run).some(isAlive);
  const [again, setAgain] = useState(0);
  useEffect(() => {
    if (!alive) return undefined;
    const timer = setInterval(() => document.hidden || setAgain((n) => n + 1), AGAIN * 1000);
    return () => clearInterval(timer);
  }, [alive]);
  const last = events.findLast((event) => MATTERS.has(event.kind))?.seq ?? 0;
  const fraction = run.progress.fraction ?? 0;
  const part = Math.floor(fraction * (fraction < EARLY ? 1000 : PARTS));
  return [run.status, run.phase, run.requested, last, part, again].join(" ");
}

function Found({ found, said }) {
  const lines = found.evidence.flatMap((said) => said.split("\n"));
  const where = [found.rank !== null && `rank ${found.rank}`, found.host, found.step !== null && `step ${count(found.step)}`].filter(Boolean).join(", ");
  return html`<div class="found is-${found.weight}" data-cause=${found.cause}>
    <h3>${found.headline} <span class="muted">${Math.round(found.confidence * 100)} % sure${where ? `, ${where}` : ""}</span></h3>
    <p>${found.says}</p>
    ${lines.length > 0 && html`<pre class="tail ${lines.length > LINES ? "is-long" : ""}" tabindex="0" aria-label="Evidence: ${found.headline}">${lines.map((line, at) => html`<span
      key=${at} class="tail-row">${line}${"\n"}</span>`)}</pre>`}
    ${!said.startsWith(found.do) && html`<p class="found-do"><${Icon} name="arrow" size=${13} /> ${found.do}</p>`}
  </div>`;
}

function Choices({ choices }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="What each choice costs"><table class="table advice-choices">
    <thead><tr><th scope="col">Choice</th><th scope="col">Takes</th><th scope="col">Credits from now</th><th scope="col" class="is-number">Saves</th>
      <th scope="col">Loses</th><th scope="col">You get</th></tr></thead>
    <tbody>${choices.map((each) => html`<tr key=${each.verb} data-choice=${each.verb}><th scope="row">${CHOICES[each.verb]}</th><td><${Band} told=${time(each.seconds)} /></td>
      <td><${Band} told=${price(each.credits)} /></td><td class="is-number">${saves(each.saves)}</td>
      <td>${each.lost_steps ? `${count(each.lost_steps)} ${each.lost_steps === 1 ? "step" : "steps"}` : "nothing"}</td><td>${each.gets}</td></tr>`)}</tbody>
  </table></div>`;
}

/** What is likely, and below it between what that lies. */
function Band({ told }) {
  const [likely, between] = told.split(" (");
  return html`${likely}${between && html`<span class="advice-between">(${between}</span>`}`;
}

/** In a dialog that ends a run: the verdict, and what ending it now saves. */
export function ShortAdvice({ run }) {
  const [advice] = useAnswer(`/runs/${encodeURIComponent(run.id)}/advice`, { max_age: 5 });
  if (!advice || !speaks(advice)) return null;
  const [title, tone, icon] = VERDICTS[advice.verdict];
  const saved = advice.saves === null ? "" : ` Ending it now saves about ${price(advice.credits)} credits.`;
  return html`<p class="short-advice is-${tone}" data-verdict=${advice.verdict}><${Icon} name=${icon} /><span><strong>Advice: ${title}${
    advice.sure ? "." : " (not sure)."}</strong> ${advice.reason}${saved}</span></p>`;
}
