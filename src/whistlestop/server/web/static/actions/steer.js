// Requests to a run on its way: resume, save now, more steps, another value of a parameter, a note.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { number, steps as stepsOf } from "../format.js";
import { Dialog, Empty, Field, ProblemBox } from "../ui/index.js";
import { useKeyed } from "./keys.js";
import { Footer, NoteField, PhaseField, pathOf, phasesOf, useAsking } from "./state.js";

export function ResumeDialog({ run, close }) {
  const [note, setNote] = useState("");
  const [fromStart, setFromStart] = useState(false);
  const { busy, problem, act } = useAsking(close);
  const bare = problem?.code === "no_checkpoint" || fromStart;
  const footer = html`<${Footer} close=${close} confirm=${fromStart ? "Start at step 0" : "Resume"} busy=${busy}
    onConfirm=${() => act(() => api.post(`${pathOf(run)}/resume`, { note, from_start: fromStart }))} />`;
  return html`<${Dialog} title=${`Resume #${run.number} ${run.name}`} onClose=${close} footer=${footer}>
    <p>It goes back into the queue and continues from its newest checkpoint as soon as it has its slots.</p>
    ${run.reason && html`<p class="muted">${run.reason}</p>`}
    <${ProblemBox} problem=${problem} />
    ${bare && html`<label class="choice"><input type="checkbox" checked=${fromStart}
      onChange=${(event) => setFromStart(event.target.checked)} /><span><strong>Start at step 0</strong>
      <span class="choice-text">there is nothing to continue from</span></span></label>`}
    <${NoteField} value=${note} onInput=${setNote} />
  <//>`;
}

export function SaveDialog({ run, phase: wanted, close }) {
  const { open, first } = phasesOf(run, wanted);
  const [phase, setPhase] = useState(first);
  const [note, setNote] = useState("");
  const { busy, problem, act } = useAsking(close);
  const footer = html`<${Footer} close=${close} confirm="Save now" busy=${busy} disabled=${!phase}
    onConfirm=${() => act(() => api.post(`${pathOf(run)}/save`, { phase, note }))} />`;
  return html`<${Dialog} title=${`Save #${run.number} ${run.name}`} onClose=${close} footer=${footer}>
    <p>${phase ?? "The phase"} saves a checkpoint at its next step and goes on. ${stepsOf(run.progress) && `It is at ${stepsOf(run.progress)}.`}</p>
    <${ProblemBox} problem=${problem} />
    <${PhaseField} phases=${open} value=${phase} onInput=${setPhase} />
    <${NoteField} value=${note} onInput=${setNote} />
  <//>`;
}

export function ExtendDialog({ run, phase: wanted, close }) {
  const { open, first } = phasesOf(run, wanted);
  const [phase, setPhase] = useState(first);
  const keyed = useKeyed();
  const now = run.phases.find((each) => each.name === phase)?.progress ?? {};
  const [total, setTotal] = useState(now.total ? String(now.total) : "");
  const [note, setNote] = useState("");
  const { busy, problem, act } = useAsking(close);
  const wish = /^[0-9]{1,16}$/.test(total.trim()) ? Number(total) : null;
  const change = wish !== null && now.total ? wish - now.total : null;
  const wrong = total.trim() && (wish === null || wish < 1) ? "a whole number above zero" : null;
  const footer = html`<${Footer} close=${close} confirm="Change" busy=${busy} disabled=${!phase || !wish || change === 0}
    onConfirm=${() => act(() => api.post(`${pathOf(run)}/extend`, keyed({ phase, steps: wish, note })))} />`;
  return html`<${Dialog} title=${`Steps of #${run.number} ${run.name}`} onClose=${close} footer=${footer}>
    <p>The end moves at the next step; learning-rate schedules that ask for the total see the new one.</p>
    <${ProblemBox} problem=${problem} />
    ${!phase && html`<p class="muted">It has no train phase left.</p>`}
    <${PhaseField} phases=${open} value=${phase} onInput=${(name) => {
      setPhase(name);
      const next = run.phases.find((each) => each.name === name)?.progress.total;
      setTotal(next ? String(next) : "");
    }} />
    <${Field} label="Steps in all" error=${wrong}
      hint=${`${now.total ? `now ${now.total.toLocaleString("en-US")}` : "not known yet"}${now.step ? `, ${now.step.toLocaleString("en-US")} done` : ""}${change ? `: ${change > 0 ? "+" : ""}${change.toLocaleString("en-US")}` : ""}`}>
      <input type="text" inputmode="numeric" value=${total} onInput=${(event) => setTotal(event.target.value)} />
    <//>
    <${NoteField} value=${note} onInput=${setNote} />
  <//>`;
}

export function SetDialog({ run, phase: wanted, param, close }) {
  const declaring = run.phases.filter((phase) => Object.keys(phase.params ?? {}).length && ["pending", "running"].includes(phase.status));
  const { first } = phasesOf(run, wanted);
  const [phase, setPhase] = useState(declaring.find((each) => each.name === first)?.name ?? declaring[0]?.name ?? null);
  const [values, setValues] = useState({});
  const [note, setNote] = useState("");
  const keyed = useKeyed();
  const { busy, problem, act } = useAsking(close);
  const params = run.phases.find((each) => each.name === phase)?.params ?? {};
  const changes = Object.fromEntries(Object.entries(values)
    .filter(([name, text]) => name in params && text !== show(params[name].value))
    .map(([name, text]) => [name, read(text, params[name])]));
  const wrong = Object.values(changes).some((value) => value === undefined);
  const footer = html`<${Footer} close=${close} confirm="Set" busy=${busy} disabled=${wrong || !Object.keys(changes).length}
    onConfirm=${() => act(() => api.post(`${pathOf(run)}/params`, keyed({ phase, params: changes, note })))} />`;
  return html`<${Dialog} title=${`Parameters of #${run.number} ${run.name}`} onClose=${close} footer=${footer}>
    ${!phase && html`<${Empty} title="Its program has declared no parameter">Declare one where it is used:
      <code> lr = run.param("lr", 0.1)</code>. It can then be changed here while the run goes on.<//>`}
    <${ProblemBox} problem=${problem} />
    <${PhaseField} phases=${declaring} value=${phase} onInput=${setPhase} />
    ${Object.entries(params).map(([name, said]) => html`<${Field} key=${name} label=${name} hint=${range(said)}
      error=${name in changes && changes[name] === undefined ? "not a number" : null}>
      ${typeof (said.default ?? said.value) === "boolean"
        ? html`<select autofocus=${name === param} value=${values[name] ?? show(said.value)} onChange=${(event) => setValues({ ...values, [name]: event.target.value })}>
            <option value="true">true</option><option value="false">false</option></select>`
        : html`<input type="text" autofocus=${name === param} value=${values[name] ?? show(said.value)}
            onInput=${(event) => setValues({ ...values, [name]: event.target.value })} />`}
    <//>`)}
    ${phase && html`<p class="muted small">Applied at the next step, and again at the same step after a resume.</p>
      <${NoteField} value=${note} onInput=${setNote} />`}
  <//>`;
}

function show(value) {
  return value === null || value === undefined ? "" : String(value);
}

/** As the declared one: a number stays a number. undefined: it can't be read. */
function read(text, said) {
  const like = said.default ?? said.value;
  if (typeof like === "boolean") return text === "true";
  if (typeof like !== "number") return text;
  const value = Number(text);
  return text.trim() === "" || !Number.isFinite(value) ? undefined : value;
}

function range(said) {
  const bounds = [said.low != null && `from ${number(said.low)}`, said.high != null && `to ${number(said.high)}`].filter(Boolean);
  return [`now ${show(said.value)}`, ...bounds].join(" ");
}

export function NoteDialog({ run, close }) {
  const [note, setNote] = useState(run.note);
  const { busy, problem, act } = useAsking(close);
  const footer = html`<${Footer} close=${close} confirm="Save the note" busy=${busy} disabled=${note === run.note}
    onConfirm=${() => act(async () => { await api.patch(pathOf(run), { note }); return { text: "the note is saved" }; })} />`;
  return html`<${Dialog} title=${`Note of #${run.number} ${run.name}`} onClose=${close} footer=${footer}>
    <${ProblemBox} problem=${problem} />
    <${Field} label="Note" hint="Found by the search of the run list.">
      <textarea rows="6" maxlength="10000" value=${note} onInput=${(event) => setNote(event.target.value)}></textarea><//>
  <//>`;
}
