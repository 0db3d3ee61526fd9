// One screen for the question "what ended it, who, with which last words" (and: what does a paused run wait for).
import { useAnswer } from "../answer.js";
import { html } from "../lib.js";
import { clock, credits } from "../format.js";
import { Link } from "../route.js";
import { StatusMark } from "../ui/index.js";
import { isEnded } from "./reduce.js";
import { allAttempts, count, lastRequest, moment, stopWords } from "./words.js";

const LINES = 12;

/** How many checkpoints an ended run has kept; null while nobody knows. */
export function useKept(run) {
  const [all] = useAnswer(run && isEnded(run) ? `/runs/${encodeURIComponent(run.id)}/checkpoints` : null);
  return all?.length ?? null;
}

const TITLES = { completed: "Completed", failed: "Failed", killed: "Killed", waiting: "Waiting" };

export function Ending({ run, events, kept }) {
  if (!TITLES[run.status]) return null;
  const attempts = allAttempts(run);
  const culprit = decisive(run, attempts);
  return html`<section class="card ending is-${run.status}" aria-labelledby="ending-title">
    <h2 id="ending-title"><${StatusMark} status=${run.status} /> ${TITLES[run.status]}${headline(run, culprit)}</h2>
    <dl class="facts">${rows(run, culprit, events, kept).map(([name, said]) => html`<dt key=${name}>${name}</dt><dd>${said}</dd>`)}</dl>
    ${culprit && run.status !== "completed" && html`<${LastLines} run=${run} attempt=${culprit} />`}
  </section>`;
}

/** The attempt that tells: of a failed run the last failed one, else the last one. */
function decisive(run, attempts) {
  const failed = run.status === "failed" ? attempts.filter((attempt) => attempt.status === "failed" || attempt.status === "lost") : [];
  const among = failed.length > 0 ? failed : attempts;
  return among[among.length - 1] ?? null;
}

function headline(run, culprit) {
  const step = culprit?.kind === "train" && culprit.last_step ? ` at step ${count(culprit.last_step)}` : "";
  if (run.status === "completed") return "";
  return `${step}${run.phases.length > 1 && culprit ? ` of ${culprit.phase}` : ""}`;
}

function rows(run, attempt, events, kept) {
  const found = [];
  const who = asker(run, events);
  if (who) found.push(["who", html`<strong>${who.actor}</strong>, asked at ${moment(who.at)}${who.data?.note ? `: ${who.data.note}` : ""}`]);
  if (run.status === "completed") {
    for (const phase of run.phases.filter((one) => one.stop_reasons.length > 0)) {
      const first = phase.stop_reasons.find((reason) => reason.decisive) ?? phase.stop_reasons[0];
      const { word, text } = stopWords(first);
      found.push([phase.name, `${word}${text ? `: ${text}` : ""}`]);
    }
    if (found.length === 0) found.push(["result", "every phase has come to its end"]);
    return [...found, ["ended", html`<time datetime=${run.ended_at}>${moment(run.ended_at)}</time>`]];
  }
  if (attempt) {
    found.push(["what ended it", attempt.text ?? run.reason ?? "nobody knows"]);
    const code = attempt.exit_code;
    if (attempt.signal) found.push(["signal", html`<code>${attempt.signal}</code>`]);
    if (code !== null && code !== undefined) found.push(["exit code", html`<code>${code}</code>`]);
    if (attempt.last_step !== null && attempt.last_step !== undefined && attempt.kind === "train") found.push(["last step", count(attempt.last_step)]);
    found.push(["attempt", html`${attempt.number} of ${attempt.phase}, ${attempt.pool}${attempt.host ? ` on ${attempt.host}` : ""}`]);
  }
  if (run.ended_at) found.push(["ended", html`<time datetime=${run.ended_at}>${moment(run.ended_at)}</time>`]);
  if (run.status === "killed") {
    const discarded = who?.kind === "cancel_requested";
    const goes = kept === 0 ? "it had no checkpoint, so a new run would begin at step 0" : "its checkpoints are no result, and a new run can continue from them";
    found.push(["kept", `progress, charts, logs and configuration; ${discarded ? "its checkpoints were discarded" : goes}`]);
    if (run.credits.saved !== null && run.credits.saved !== undefined) found.push(["credits", `${credits(run.credits.used)} used, ${credits(run.credits.saved)} saved`]);
  }
  if (run.status === "waiting") found.push(["next", "it holds no slots and costs nothing; Resume brings it back into the queue"]);
  return found;
}

function asker(run, events) {
  if (run.status === "killed") {
    const asked = lastRequest(events, ["kill_requested", "cancel_requested"]);
    if (asked) return asked;
    const done = lastRequest(events, ["run_killed"]);
    return done?.data?.requested_by ? { actor: done.data.requested_by, at: done.data.requested_at } : null;
  }
  return run.status === "waiting" ? lastRequest(events, ["pause_requested"]) : null;
}

function LastLines({ run, attempt }) {
  const path = `/runs/${encodeURIComponent(run.id)}/logs`;
  const [page, problem] = useAnswer(path, { tail: LINES, attempt: attempt.number }, `${run.status} ${attempt.status}`);
  const lines = page?.lines ?? null;
  const href = `/runs/${encodeURIComponent(run.id)}?tab=logs&attempt=${attempt.number}`;
  return html`<div class="tail-box">
    <p class="tail-head"><span>The last lines</span><${Link} href=${href}>All logs of attempt ${attempt.number}<//></p>
    ${problem ? html`<p class="small muted">They can't be read: ${problem.detail} ${problem.hint}</p>`
      : lines !== null && lines.length === 0 ? html`<p class="small muted">It has printed nothing.</p>`
      : html`<pre class="tail" tabindex="0" aria-label="The last log lines">${(lines ?? []).map((line) => html`<span
        key=${line.line} class="tail-row is-${line.level}"><time>${clock(line.at)}</time> ${line.text}${"\n"}</span>`)}</pre>`}
  </div>`;
}
