// The head of the run page: what it is, where it stands, and what can be done about it.
import { now } from "../api.js";
import { html, useEffect, useState } from "../lib.js";
import { credits, length, percent } from "../format.js";
import { mayAct } from "../me.js";
import { Link } from "../route.js";
import { Bar, Button, Icon, Menu, Status, Ticking } from "../ui/index.js";
import { Spent } from "./credits.js";
import { count, isActive, moment, ordinal, stoppedEarly, withClocks } from "./words.js";

export function Header({ run, told, kept, me, actions }) {
  return html`<header class="run-head">
    <nav class="crumbs" aria-label="Breadcrumb"><ol>
      <li><${Link} href="/">Training<//></li>
      <li><${Link} href="/projects/${encodeURIComponent(run.project)}">${run.project}<//></li>
      <li aria-current="page">Run #${run.number}</li>
    </ol></nav>
    <div class="run-title">
      <h1><span class="run-number">#${run.number}</span> ${run.name}</h1>
      <${Status} status=${run.status} recovering=${run.recovering} requested=${run.requested} />
      <${Verbs} run=${run} kept=${kept} me=${me} actions=${actions} />
    </div>
    <${Why} run=${run} />
    <${Figures} run=${run} told=${told} />
  </header>`;
}

/** The reason in words, the place in the queue, and where the run comes from. */
function Why({ run }) {
  const lines = [];
  if (run.reason && run.status !== "completed" && !run.recovering) lines.push(html`<span class="head-reason">${run.reason}</span>`);
  if (run.queue) lines.push(html`<span>${ordinal(run.queue.position)} in the queue; waits for ${withClocks(run.queue.waits_for)}</span>`);
  if (run.parent) lines.push(html`<${Lineage} parent=${run.parent} />`);
  lines.push(html`<span>submitted by <strong>${run.created_by || "somebody"}</strong>, <time datetime=${run.created_at}
    >${moment(run.created_at)}</time></span>`);
  return html`<p class="run-why">${lines.map((line, at) => html`<span class="why-part" key=${at}>${line}</span>`)}</p>`;
}

function Lineage({ parent }) {
  const word = parent.relation === "continue" ? "continues" : "repeats";
  const step = parent.step === null || parent.step === undefined ? "" : ` at step ${count(parent.step)}`;
  return parent.number === null || parent.number === undefined
    ? html`<span>${word} a run that was deleted${step}</span>`
    : html`<span>${word} <${Link} href="/runs/${encodeURIComponent(parent.run)}">run #${parent.number}<//>${step}</span>`;
}

function Figures({ run, told }) {
  const going = run.phases.some(isActive);
  const done = run.phases.filter((phase) => phase.status === "completed").length;
  const fraction = run.status === "completed" ? 1 : run.progress.fraction;
  const several = run.phases.length > 1;
  const early = stoppedEarly(run);
  return html`<dl class="figures">
    <div><dt>Completion</dt><dd class="figure-bar">
      <span class="figure">${early ? "completed" : fraction === null || fraction === undefined ? "–" : percent(fraction)}</span>
      <${Bar} value=${fraction} label="Completion of ${run.phase ?? "the run"}" tone=${toneOf(run)} />
      <span class="figure-note">${early ? `${several ? `${early.phase}: ` : ""}${early.steps}, stopped early` : several ? `${run.phase && run.status !== "completed" ? `of ${run.phase}, ` : ""}${done} of ${run.phases.length} phases done`
        : run.progress.total ? `step ${count(run.progress.step)} of ${count(run.progress.total)}` : ""}</span>
    </dd></div>
    <div><dt>Elapsed</dt><dd><span class="figure">${run.started_at ? html`<${Ticking} seconds=${run.elapsed_s} since=${told} going=${going} />` : "–"}</span
      >${run.started_at && html`<span class="figure-note">since <time datetime=${run.started_at}
      >${moment(run.started_at)}</time></span>`}</dd></div>
    <div><dt>Time left</dt><dd><span class="figure">${leftOf(run)}</span><span class="figure-note">${leftNote(run)}</span></dd></div>
    <div><dt>Credits</dt><dd><span class="figure"><${Spent} run=${run} told=${told} /></span>
      <span class="figure-note">${run.credits.saved !== null && run.credits.saved !== undefined
        ? `used, ${credits(run.credits.saved)} saved`
        : run.credits.estimated !== null && run.credits.estimated !== undefined && going
          ? `used of about ${credits(run.credits.estimated)}` : "used"}</span></dd></div>
  </dl>`;
}

function toneOf(run) {
  return { failed: "failed", killed: "killed", completed: "completed", waiting: "waiting" }[run.status] ?? "accent";
}

const isStopping = (run) => run.requested !== null
  || run.phases.some((phase) => phase.name === run.phase && phase.status === "running" && (phase.stop_requested || phase.ladder));

function leftOf(run) {
  return run.eta_s === null || run.eta_s === undefined || isStopping(run) ? "–" : `about ${length(run.eta_s)}`;
}

function leftNote(run) {
  if (["completed", "failed", "killed"].includes(run.status)) return "it has ended";
  if (run.status === "waiting") return "it waits";
  if (isStopping(run)) return "it is being ended";
  if (run.eta_s === null || run.eta_s === undefined) return "not known yet";
  return run.phases.length > 1 ? `of ${run.phase}` : "by its own pace";
}

/** Pause or resume, kill, and the rest in ⋮. A viewer has none: the page is to be looked at. */
function Verbs(props) {
  return mayAct(props.me) ? html`<${Buttons} ...${props} />` : null;
}

function Buttons({ run, kept, me, actions }) {
  const ended = ["completed", "failed", "killed"].includes(run.status);
  const act = (verb) => () => actions.openAction(verb, [run]);
  const absent = actions === null;
  const killing = run.requested === "kill";
  return html`<div class="run-verbs" role="group" aria-label="Actions">
    ${!ended && (run.status === "waiting"
      ? html`<${Button} kind="primary" disabled=${absent} onClick=${act("resume")}><${Icon} name="play" />Resume<//>`
      : html`<${Button} disabled=${absent || run.requested !== null} onClick=${act("pause")}><${Icon} name="bars" />${
        run.requested === "pause" ? "Pausing…" : "Pause"}<//>`)}
    ${!ended && html`<${Button} kind="danger" disabled=${absent || killing} onClick=${act("kill")}><${Icon} name="square" />${
      killing ? "Killing…" : "Kill"}<//>`}
    ${ended && kept !== null && (kept > 0
      ? html`<${Button} disabled=${absent} onClick=${act("continue")}><${Icon} name="arrow" />Continue<//>`
      : html`<${Button} disabled=${absent} onClick=${act("rerun")}><${Icon} name="redo" />Run again<//>`)}
    ${absent ? html`<${Button} kind="quiet" class="is-icon" disabled aria-label="More actions"><${Icon} name="more" /><//>`
      : html`<${Menu} label="More actions for run #${run.number}" items=${actions.menuFor(run, me, { bare: kept === 0 })} kind="plain" />`}
  </div>`;
}

/** Seconds until `iso`, counted down twice a second; null when it has passed. */
export function useCountdown(iso) {
  const left = () => (iso ? Math.max(0, (Date.parse(iso) - now()) / 1000) : null);
  const [, tick] = useState(0);
  useEffect(() => {
    if (!iso) return undefined;
    const timer = setInterval(() => tick((n) => n + 1), 500);
    return () => clearInterval(timer);
  }, [iso]);
  return left();
}
