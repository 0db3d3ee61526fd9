// Stop, pause, kill, cancel: one dialog, because the first question is which of the four is meant.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { clock, credits, day, percent, steps } from "../format.js";
import { Dialog, ProblemBox, Spinner } from "../ui/index.js";
import { ShortAdvice } from "../run/advice.js";
import { Compare, FOUR } from "./compare.js";
import { Footer, NoteField, PhaseField, pathOf, phasesOf, useAsking, useConsequences } from "./state.js";
import { atMost, costs, frees, NAMES, newest, takes, withTimes } from "./words.js";

const TITLES = { stop: "Stop", pause: "Pause", kill: "Kill run", cancel: "Cancel run" };

export function EndDialog({ verb: asked, run, phase: wanted, close }) {
  const [verb, setVerb] = useState(asked);
  const { open, first } = phasesOf(run, wanted);
  const [phase, setPhase] = useState(wanted ?? first);
  const [note, setNote] = useState("");
  const [checkpoint, setCheckpoint] = useState("save");
  const [known, problems] = useAll(run, phase);
  const { busy, problem, act } = useAsking(close);
  const found = known[verb];
  const failed = problems[verb];
  const body = { note, ...(verb === "stop" ? { phase } : {}), ...(verb === "pause" ? { checkpoint } : {}) };
  const danger = verb === "kill" || verb === "cancel";
  const latest = latestOf(run, found);
  const lostLatest = verb === "pause" && checkpoint === "latest" && !latest;
  const footer = html`<${Footer} close=${close} kind=${danger ? "danger" : "primary"} busy=${busy}
    confirm=${verb === "stop" ? `Stop ${phase ?? "the phase"}` : verb === "pause" ? "Pause" : `Confirm ${verb}`}
    disabled=${!found || Boolean(found.refused) || lostLatest}
    onConfirm=${() => act(() => api.post(`${pathOf(run)}/${verb}`, body))} />`;
  return html`<${Dialog} wide title=${title(verb, run, phase)} tone=${danger ? "danger" : "plain"} onClose=${close} footer=${footer}>
    <p class="question">${question(verb, run, phase)}</p>
    <${ProblemBox} problem=${problem ?? failed ?? (found?.refused ? { detail: withTimes(found.refused), hint: found.hint } : null)} />
    ${verb === "stop" && html`<${PhaseField} phases=${open} value=${phase} onInput=${setPhase} />`}
    <${Tiles} run=${run} verb=${verb} found=${found} />
    ${verb !== "pause" && html`<${ShortAdvice} run=${run} />`}
    <${Compare} known=${known} verb=${verb} phase=${phase} later=${isLater(run, phase)} choose=${setVerb} />
    ${verb === "pause" && found && !found.refused && html`<${HowToPause} latest=${latest} value=${checkpoint} choose=${setCheckpoint} />`}
    ${!found ? !failed && html`<${Spinner} label="Looking at what it would do" />` : !found.refused && html`<${Facts} verb=${verb} found=${found} />`}
    <${NoteField} value=${note} onInput=${setNote} />
  <//>`;
}

/** The four together: which one is meant is seen by comparing them. What is known, and what could not be asked, by verb. */
function useAll(run, phase) {
  const all = FOUR.map((verb) => [verb, useConsequences(run, verb, verb === "stop" ? phase : null)]);
  return [0, 1].map((part) => Object.fromEntries(all.map(([verb, told]) => [verb, told[part]])));
}

function title(verb, run, phase) {
  return verb === "stop" ? `Stop ${phase ?? "a phase"} of #${run.number} ${run.name}` : `${TITLES[verb]} #${run.number} ${run.name}`;
}

function question(verb, run, phase) {
  if (verb === "kill") {
    return `This action will permanently kill ${run.name}. Are you sure you want to kill this training?`;
  }
  if (verb === "cancel") {
    return `This action will permanently cancel ${run.name} and discard its checkpoints. To keep the result, stop it instead.`;
  }
  if (verb === "pause") return `${run.name} saves, leaves its slots to others, and goes on where it was when you resume it.`;
  const begun = run.phases.some((each) => each.name === phase && each.attempts.length > 0);
  const when = isLater(run, phase) ? `as soon as it begins${begun ? " again" : ""}` : "at its next step";
  return `${phase ?? "The phase"} ends ${when} and its result counts. The rest of ${run.name} goes on.`;
}

/** The phase does not run now: a stop waits for it. */
function isLater(run, phase) {
  return run.phases.some((each) => each.name === phase && each.status === "pending");
}

/** The checkpoint that a pause without saving would come back to: one of another phase is none. */
function latestOf(run, found) {
  const trained = run.phases.filter((phase) => phase.kind === "train" && phase.status === "running").map((phase) => phase.name);
  const newest = found?.checkpoint ?? null;
  return newest && trained.length && !trained.includes(newest.phase) ? null : newest;
}

/** Which run it is, how far it has come, what it has cost: enough to notice that one is at the wrong one. */
function Tiles({ run, verb, found }) {
  const saved = found?.credits?.saved ?? run.credits.saved;
  const ends = verb === "kill" || verb === "cancel";
  const tiles = [
    ["Name", run.name, `#${run.number}`],
    ["Started", run.started_at ? clock(run.started_at) : "not yet", run.started_at ? day(run.started_at) : ""],
    ["Progress", percent(run.progress.fraction) || "–", steps(run.progress) || (run.phase ? `phase ${run.phase}` : "")],
    ["Credits used", credits(found?.credits?.used ?? run.credits.used), ""],
    ends && ["Credits saved", saved == null ? "–" : `≈ ${credits(saved)}`, saved == null ? "can't be told yet" : "if it ends now"],
  ].filter(Boolean);
  return html`<dl class="tiles">${tiles.map(([name, text, more]) => html`<div key=${name} class="tile"><dt>${name}</dt>
    <dd data-fact=${name}><span class="cut" title=${text}>${text}</span>${more && html`<span class="tile-more">${more}</span>`}</dd></div>`)}</dl>`;
}

function Facts({ verb, found }) {
  const rows = [
    ["Kept", list(found.kept)],
    ["Lost", list(found.lost)],
    found.goes_on.length && verb === "stop" && ["Goes on", list(found.goes_on)],
    ["Newest checkpoint", newest(found)],
    ["Frees", frees(found)],
    ["Costs from now", costs(found)],
    ["Takes", [takes(found, verb), found.frees?.slots ? atMost(found) : ""].filter(Boolean).join(", ")],
  ].filter(Boolean);
  return html`<dl class="facts consequences" data-verb=${NAMES[verb]}>${rows.map(([name, text]) => html`<dt key=${`t${name}`}>${name}</dt
    ><dd key=${`d${name}`} data-fact=${name}>${text}</dd>`)}</dl>`;
}

function list(texts) {
  return texts.length < 2 ? texts[0] ?? "nothing" : html`<ul class="plain-list">${texts.map((text) => html`<li key=${text}>${text}</li>`)}</ul>`;
}

function HowToPause({ latest, value, choose }) {
  const since = latest?.steps_since;
  const lost = since ? `${since.toLocaleString("en-US")} ${since === 1 ? "step is" : "steps are"} lost` : "nothing is lost";
  const loses = latest ? `goes on from step ${latest.step.toLocaleString("en-US")}; ${lost}`
    : "not possible: there is no checkpoint of this phase yet, all would be lost";
  const option = (id, label, text, disabled) => html`<label class="choice ${disabled ? "is-off" : ""}">
    <input type="radio" name="checkpoint" value=${id} checked=${value === id} disabled=${disabled} onChange=${() => choose(id)} />
    <span><strong>${label}</strong><span class="choice-text">${text}</span></span></label>`;
  return html`<fieldset class="choices"><legend class="label">Which state does it come back to?</legend>
    ${option("save", "Save first", "it saves at its next step and leaves; nothing is lost", false)}
    ${option("latest", "Leave at once, from the latest checkpoint", loses, !latest)}
  </fieldset>`;
}
