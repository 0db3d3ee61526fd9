// The stages of a start: queued → allocating → preparing → starting → training, and how long each took.
import { now } from "../api.js";
import { html } from "../lib.js";
import { Ticking } from "../ui/index.js";
import { STAGES, STAGE_SAYS, brief } from "./words.js";

/** Of one phase: open while it starts, folded away with its sum afterwards. */
export function Stages({ stages, kind, going, later }) {
  const starts = byAttempt(stages ?? []);
  if (starts.length === 0) return null;
  const newest = starts[starts.length - 1];
  const last = newest.stages[newest.stages.length - 1];
  if (going && last.seconds === null && last.stage !== "training") {
    return html`<div class="stages-box"><p class="small muted">${later && last.stage === "queued" ? "waits for its next try" : STAGE_SAYS[last.stage]}…</p>
      <${Chain} start=${newest} kind=${kind} /></div>`;
  }
  return html`<details class="stages-box">
    <summary>Startup ${brief(tookToStart(newest))}${starts.length > 1 ? ` (attempt ${newest.attempt}, of ${starts.length} starts)` : ""}</summary>
    ${starts.slice().reverse().map((start) => html`<div key=${start.attempt ?? 0}>
      ${starts.length > 1 && html`<p class="small muted">${start.attempt === null ? "next attempt" : `attempt ${start.attempt}`}</p>`}
      <${Chain} start=${start} kind=${kind} /></div>`)}
  </details>`;
}

function Chain({ start, kind }) {
  const wanted = kind === "task" ? STAGES.filter((stage) => stage !== "starting") : STAGES;
  const found = Object.fromEntries(start.stages.map((stage) => [stage.stage, stage]));
  return html`<ol class="stages">${wanted.map((name) => {
    const stage = found[name];
    const here = stage && stage.seconds === null;
    const word = kind === "task" && name === "training" ? "running" : name;
    return html`<li key=${name} class=${here ? "is-here" : stage ? "is-past" : "is-ahead"} title=${STAGE_SAYS[name]}
      aria-current=${here ? "step" : undefined}>
      <span class="stage-name">${word}</span>
      <span class="stage-took">${here ? html`<${Ticking} seconds=${since(stage.at)} since=${performance.now()} going=${true} />`
        : stage ? brief(stage.seconds) : "–"}</span></li>`;
  })}</ol>`;
}

function byAttempt(stages) {
  const starts = [];
  for (const stage of stages) {
    const last = starts[starts.length - 1];
    if (last && last.attempt === stage.attempt) last.stages.push(stage);
    else starts.push({ attempt: stage.attempt ?? null, stages: [stage] });
  }
  return starts;
}

const tookToStart = (start) => start.stages.filter((stage) => stage.stage !== "training")
  .reduce((sum, stage) => sum + (stage.seconds ?? 0), 0);

const since = (iso) => Math.max(0, (now() - Date.parse(iso)) / 1000);
