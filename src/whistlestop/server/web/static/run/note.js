// The note: shown as written, edited in place.
import { api } from "../api.js";
import { html, useEffect, useId, useRef, useState } from "../lib.js";
import { mayAct } from "../me.js";
import { Button, Icon, ProblemBox, toast } from "../ui/index.js";

export function Note({ run, me, took }) {
  const [draft, setDraft] = useState(null);  // null: not being edited
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const id = useId();
  const area = useRef(null);
  const opener = useRef(null);
  const editing = draft !== null;
  useEffect(() => {
    if (editing) area.current?.focus();
  }, [editing]);
  const close = () => {
    setDraft(null);
    setProblem(null);
    requestAnimationFrame(() => opener.current?.querySelector("button")?.focus());
  };
  const save = async () => {
    setBusy(true);
    try {
      took(await api.patch(`/runs/${encodeURIComponent(run.id)}`, { note: draft }));
      toast("The note is saved.");
      close();
    } catch (error) {
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  const key = (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
  };
  return html`<section class="card note-card" aria-labelledby="${id}-title">
    <div class="card-head" ref=${opener}><h2 id="${id}-title">Note</h2>
      ${!editing && mayAct(me) && html`<${Button} kind="quiet" onClick=${() => setDraft(run.note)}
        ><${Icon} name="edit" />${run.note ? "Edit" : "Add"}<//>`}</div>
    ${editing ? html`<div class="note-edit">
        <label class="visually-hidden" for=${id}>Note</label>
        <textarea id=${id} ref=${area} rows="5" maxlength="10000" value=${draft} onKeyDown=${key}
          onInput=${(event) => setDraft(event.target.value)}></textarea>
        <${ProblemBox} problem=${problem} />
        <div class="note-buttons"><${Button} kind="primary" busy=${busy} onClick=${save}>Save<//>
          <${Button} onClick=${close}>Cancel<//></div>
      </div>`
      : run.note ? html`<p class="note-text">${run.note}</p>`
        : html`<p class="small muted">Why this run, or why it was ended. Notes can be searched for.</p>`}
  </section>`;
}
