// The run as a train line: every phase a station, the rail filled as far as the run has come.
import { html } from "../lib.js";
import { length } from "../format.js";
import { mayAct } from "../me.js";
import { Button, Icon, Status, StatusMark, Ticking } from "../ui/index.js";
import { useCountdown } from "./header.js";
import { Ladder } from "./ladder.js";
import { BatchMonitor, StepMonitor } from "./monitor.js";
import { AtRisk } from "./risk.js";
import { Stages } from "./stages.js";
import { Steering } from "./steering.js";
import { count, isActive, plural, stopWords } from "./words.js";

export function Track({ run, told, timeline, me, actions }) {
  return html`<section class="track-box" aria-labelledby="track-title">
    <h2 id="track-title">Phases</h2>
    <ol class="track">${run.phases.map((phase) => html`<${Station} key=${phase.name} phase=${phase} run=${run} told=${told}
      marks=${timeline[phase.name]} me=${me} actions=${actions} />`)}</ol>
  </section>`;
}

function Station({ phase, run, told, marks, me, actions }) {
  const going = isActive(phase);
  const looks = going || phase.attempts.length > 0;
  const train = phase.kind === "train";
  const counts = phase.progress.step > 0 || phase.progress.total !== null;
  const status = stationStatus(phase, run);
  return html`<li class="station is-${status} ${going ? "is-going" : ""}" data-phase=${phase.name}>
    <span class="station-mark" aria-hidden="true"><${StatusMark} status=${status} /></span>
    <article class="station-card" aria-label="Phase ${phase.name}">
      <div class="station-head">
        <h3>${phase.name}</h3>
        <span class="kind-tag">${phase.kind}</span>
        <${Status} status=${status} />
        <${FastForward} phase=${phase} run=${run} me=${me} actions=${actions} />
      </div>
      <p class="station-facts">${facts(phase, run, told, going).map((fact, at) => html`<span class="why-part" key=${at}>${fact}</span>`)}</p>
      <${Notices} phase=${phase} run=${run} />
      ${counts && (train || going) && html`<div class="monitors">
        <${StepMonitor} progress=${phase.progress} marks=${marks} status=${status} />
        ${going && html`<${BatchMonitor} progress=${phase.progress} status=${status} />`}
      </div>`}
      <${AtRisk} phase=${phase} told=${told} />
      ${going && train && !counts && html`<p class="small muted">No step reported yet${
        phase.progress.stage === "training" ? ": the program runs, and says nothing of its progress." : "."}</p>`}
      <${Reasons} phase=${phase} />
      ${(looks || marks?.stages?.length > 0) && html`<${Stages} stages=${marks?.stages} kind=${phase.kind} going=${going || status === "queued"} later=${phase.retry_at !== null} />`}
      <${Steering} phase=${phase} run=${run} me=${me} actions=${actions} />
    </article>
  </li>`;
}

/** A phase that is next while the run waits or queues looks like the run. */
function stationStatus(phase, run) {
  if (phase.status === "running") {
    const stage = phase.progress.stage;
    return stage === "allocating" || stage === "preparing" || stage === "starting" ? "starting" : "running";
  }
  if (phase.status !== "pending" || phase.name !== run.phase) return phase.status;
  return run.status === "queued" || run.status === "waiting" ? run.status : "pending";
}

function facts(phase, run, told, going) {
  const found = [];
  if (phase.attempts.length > 0) {
    found.push(html`<span class="fact-time"><${Icon} name="clock" size=${13} /><${Ticking} seconds=${phase.elapsed_s} since=${told} going=${going} /></span>`);
    if (phase.kind === "train" && (phase.progress.batches || phase.epoch)) {
      const all = phase.progress.total && phase.progress.batches ? Math.max(1, Math.floor(phase.progress.total / phase.progress.batches)) : null;
      found.push(all ? `${count(phase.epoch)} of ${plural(all, "epoch")}` : plural(phase.epoch, "epoch"));
    }
    if (going && phase.progress.stage && phase.progress.stage !== "training") found.push(phase.progress.stage);
    if (phase.attempts.length > 1) found.push(plural(phase.attempts.length, "attempt"));
  }
  const open = phase.needs.filter((name) => run.phases.find((one) => one.name === name)?.status !== "completed");
  if (phase.status === "pending" && open.length > 0) found.push(`waits for ${open.join(" and ")}`);
  else if (phase.needs.length > 0) found.push(html`<span class="needs">needs ${phase.needs.join(", ")}</span>`);
  return found;
}

function Notices({ phase, run }) {
  const left = useCountdown(phase.retry_at);
  const told = phase.reason && run.reason?.includes(phase.reason);  // in the head of the page
  const pausing = run.requested !== null;  // then the page's alert shows the ladder
  return html`
    ${phase.stop_requested && phase.status === "pending" && html`<p class="notice is-stop"><${Icon} name="next" />
      will stop as soon as it begins</p>`}
    ${phase.stop_requested && phase.status === "running" && !pausing && html`<div class="notice is-stop"><${Icon} name="next" /><div>
      <p>Stopping: it ends at its next step and keeps its result.</p>
      ${phase.ladder && html`<${Ladder} ladder=${phase.ladder} />`}</div></div>`}
    ${!phase.stop_requested && !pausing && phase.ladder && html`<div class="notice is-stop"><${Icon} name="clock" /><div>
      <p>Ending by its own limit.</p><${Ladder} ladder=${phase.ladder} /></div></div>`}
    ${left !== null && left > 0 && html`<p class="notice"><${Icon} name="redo" />next try in ${length(Math.ceil(left))}</p>`}
    ${phase.reason && phase.status !== "completed" && !told && html`<p class="station-reason">${phase.reason}</p>`}`;
}

/** Several may hold at once; the decisive one comes first and says so. */
function Reasons({ phase }) {
  const ended = !["pending", "running"].includes(phase.status);
  if (phase.stop_reasons.length === 0) return null;
  const sorted = [...phase.stop_reasons].sort((one, other) => Number(other.decisive) - Number(one.decisive));
  return html`<div class="reasons"><p class="small muted">${ended ? "Training ended:" : "Reasons so far:"}</p>
    <ul>${sorted.map((reason, at) => html`<li key=${at} class="reason ${reason.decisive ? "is-decisive" : ""}">
      <strong>${stopWords(reason).word}</strong> ${stopWords(reason).text && html`<span>${stopWords(reason).text}</span>`}
      ${reason.decisive && sorted.length > 1 && html`<em class="kind-tag is-decisive">decisive</em>`}
    </li>`)}</ul></div>`;
}

/** S2: every train phase has its own, while it is pending and while it runs. Task phases have none. */
function FastForward({ phase, run, me, actions }) {
  const open = phase.status === "pending" || phase.status === "running";
  if (phase.kind !== "train" || !open || !mayAct(me) || ["completed", "failed", "killed"].includes(run.status)) return null;
  const asked = phase.stop_requested || run.requested === "kill";
  const says = phase.status === "pending" ? `Stop phase ${phase.name} as soon as it begins` : `Stop phase ${phase.name} now and keep its result`;
  return html`<${Button} class="fast-forward" disabled=${actions === null || asked} title=${says}
    aria-label=${asked && phase.stop_requested ? `${phase.name}: stop requested` : says}
    onClick=${() => actions.openAction("stop", [run], { phase: phase.name })}><${Icon} name="next" /><span
    class="fast-word">${phase.stop_requested ? "Stop requested" : html`Stop<span class="fast-more"> phase</span>`}</span><//>`;
}
