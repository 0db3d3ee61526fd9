// What needs to be known before anything else: a silent runner, a recovery, a request on its way. A screen reader is told the
// sentence that stays: with a countdown in it, it would read the whole anew every second.
import { html } from "../lib.js";
import { length } from "../format.js";
import { Icon } from "../ui/index.js";
import { useCountdown } from "./header.js";
import { Ladder } from "./ladder.js";
import { failedSave } from "./risk.js";
import { lastRequest, moment, unreachable } from "./words.js";

const ENDED = new Set(["completed", "failed", "killed"]);

export function Alerts({ run, events }) {
  const silent = unreachable(run);
  const unsaved = ENDED.has(run.status) ? null : failedSave(events);
  const ladder = run.phases.find((phase) => phase.ladder && phase.status === "running");
  return html`<div class="alerts">
    ${silent && html`<div class="alert is-failed" role="status"><${Icon} name="alert" /><div>
      <p><strong>UNREACHABLE</strong> since <time datetime=${silent.heard_at}>${moment(silent.heard_at ?? silent.started_at)}</time>:
      the runner of attempt ${silent.number}${silent.host ? ` on ${silent.host}` : ""} has not been heard of.</p>
      <p class="small muted">The training may well go on there. Its history comes when it is back; nothing is started twice.</p>
    </div></div>`}
    ${unsaved && html`<div class="alert is-failed" role="status"><${Icon} name="save" /><div>
      <p><strong>A save failed</strong> in ${unsaved.phase} at <time datetime=${unsaved.at}>${moment(unsaved.at)}</time>: ${unsaved.text}</p>
    </div></div>`}
    ${leaving(run).map((attempt) => html`<${Leaving} key=${attempt.id} attempt=${attempt} />`)}
    ${run.recovering && html`<${Recovering} run=${run} />`}
    ${run.requested && html`<${Requested} run=${run} events=${events} phase=${ladder} />`}
  </div>`;
}

function leaving(run) {
  return run.phases.flatMap((phase) => phase.attempts.map((attempt) => ({ ...attempt, saves: phase.kind === "train" })))
    .filter((attempt) => attempt.leaves_at && !attempt.ended_at);
}

function Leaving({ attempt }) {
  const left = useCountdown(attempt.leaves_at);
  return html`<div class="alert is-waiting"><${Icon} name="clock" /><div>
    <p><span role="status"><strong>Its capacity goes</strong> at ${moment(attempt.leaves_at)}${attempt.leaves_why ? `: ${attempt.leaves_why}` : ""}.</span>
    ${left ? ` In ${length(left)}.` : ""} It ${attempt.saves ? "saves, " : ""}leaves ${attempt.pool}${attempt.host ? `, ${attempt.host},` : ""} and ${
      attempt.saves ? "goes on elsewhere" : "starts again elsewhere"} by itself.</p>
  </div></div>`;
}

function Recovering({ run }) {
  const phase = run.phases.find((one) => one.name === run.phase);
  const last = phase?.attempts[phase.attempts.length - 1];
  const left = useCountdown(phase?.retry_at);
  return html`<div class="alert is-waiting"><${Icon} name="redo" /><div>
    <p><span role="status"><strong>Recovering</strong>${last?.text ? `: ${last.text}` : run.reason ? `: ${run.reason}` : ""}.</span>
    ${left ? ` Next try in ${length(left)}.` : " It goes on by itself as soon as there are slots."}</p>
  </div></div>`;
}

function Requested({ run, events, phase }) {
  const kinds = run.requested === "kill" ? ["kill_requested", "cancel_requested"] : ["pause_requested"];
  const asked = lastRequest(events, kinds);
  return html`<div class="alert is-${run.requested === "kill" ? "killed" : "waiting"}">
    <${Icon} name=${run.requested === "kill" ? "square" : "bars"} /><div>
    <p role="status"><strong>${run.requested === "kill" ? "Being killed" : "Pausing"}</strong>${asked ? `, asked by ${asked.actor} at ${moment(asked.at)}` : ""}.
      ${run.requested === "kill" ? " Shown as killed once every process is proven gone."
        : " Shown as waiting once it has saved and its slots are free."}</p>
    ${phase && html`<${Ladder} ladder=${phase.ladder} />`}
  </div></div>`;
}
