// The same again, from step 0, as it was or with changes.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { Link, navigate } from "../route.js";
import { Dialog, Field, ProblemBox } from "../ui/index.js";
import { useKeyed } from "./keys.js";
import { Footer, NoteField, pathOf, useAsking } from "./state.js";

export function changesOf(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean);
}

export function SetField({ value, onInput }) {
  return html`<${Field} label="Changes (optional)" hint="One per line: phases.0.env.LR=0.01">
    <textarea rows="2" class="mono" spellcheck=${false} value=${value} onInput=${(event) => onInput(event.target.value)}></textarea><//>`;
}

export function RerunDialog({ run, close }) {
  const [note, setNote] = useState("");
  const [set, setSet] = useState("");
  const keyed = useKeyed();
  const { busy, problem, act } = useAsking(close);
  const go = () => act(async () => {
    const made = await api.post(`${pathOf(run)}/rerun`, keyed({ note, set: changesOf(set) }));
    return { ...made, text: `run #${made.number} is #${run.number} again` };
  }, (made) => navigate(`/runs/${made.id}`));
  return html`<${Dialog} title=${`Run #${run.number} ${run.name} again`} onClose=${close}
    footer=${html`<${Footer} close=${close} confirm="Run again" busy=${busy} onConfirm=${go} />`}>
    <p>A new run with the same code and configuration, from step 0. To change more than a value, open it in the
      <${Link} href=${`/new?from=${run.id}`} onClick=${close}> editor<//>.</p>
    <${ProblemBox} problem=${problem} />
    <${SetField} value=${set} onInput=${setSet} />
    <${NoteField} value=${note} onInput=${setNote} />
  <//>`;
}
