// Which dialog is open, and what every one of them does: ask once, show the refusal in words, close when it is done.
import { cell, html, useState } from "../lib.js";
import { useAnswer } from "../answer.js";
import { Button, Field, toast } from "../ui/index.js";

export const opened = cell(null);

export const pathOf = (run) => `/runs/${encodeURIComponent(run.id)}`;

/** `act(send)`: busy while it is asked, `problem` if it was refused. */
export function useAsking(close) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const act = async (send, then) => {
    setBusy(true);
    setProblem(null);
    try {
      const done = await send();
      toast(sentence(done?.text ?? "Done"));
      close();
      then?.(done);
    } catch (refused) {
      setProblem(refused);
      setBusy(false);
    }
  };
  return { busy, problem, act };
}

/** What the server says it would do: `[known, problem]`. */
export function useConsequences(run, verb, phase) {
  return useAnswer(`${pathOf(run)}/consequences`, { verb, phase: phase ?? undefined });
}

export function sentence(text) {
  const whole = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

export function NoteField({ value, onInput, hint = "Kept with the run, and found by the search." }) {
  return html`<${Field} label="Note (optional)" hint=${hint}>
    <textarea rows="2" maxlength="10000" value=${value} onInput=${(event) => onInput(event.target.value)}></textarea>
  <//>`;
}

export function Footer({ close, confirm, kind = "primary", busy, disabled, onConfirm }) {
  return html`<${Button} onClick=${close}>Back<//>
    <${Button} kind=${kind} busy=${busy} disabled=${disabled} onClick=${onConfirm}>${confirm}<//>`;
}

/** The train phases that a request could be about; a choice only where there are several. */
export function phasesOf(run, wanted) {
  const open = run.phases.filter((phase) => phase.kind === "train" && ["pending", "running"].includes(phase.status));
  const first = open.find((phase) => phase.name === wanted) ?? open.find((phase) => phase.status === "running") ?? open[0];
  return { open, first: first?.name ?? null };
}

export function PhaseField({ phases, value, onInput }) {
  if (phases.length < 2) return null;
  return html`<${Field} label="Phase">
    <select value=${value} onChange=${(event) => onInput(event.target.value)}>${phases.map((phase) => html`<option
      key=${phase.name} value=${phase.name}>${phase.name} (${phase.status})</option>`)}</select>
  <//>`;
}
