// Delete: what is gone then, or why it can't be.
import { html } from "../lib.js";
import { api } from "../api.js";
import { credits } from "../format.js";
import { navigate } from "../route.js";
import { Button, Dialog, ProblemBox, Spinner } from "../ui/index.js";
import { Footer, opened, pathOf, useAsking, useConsequences } from "./state.js";

const ENDED = new Set(["completed", "failed", "killed"]);

export function DeleteDialog({ run, close }) {
  const [found, failed] = useConsequences(run, "delete");
  const { busy, problem, act } = useAsking(close);
  const active = !ENDED.has(run.status);
  const gone = () => {
    if (location.pathname.startsWith("/runs/")) navigate(`/projects/${encodeURIComponent(run.project)}`, { replace: true });
  };
  const footer = active && found?.refused
    ? html`<${Button} onClick=${close}>Back<//>
        <${Button} kind="danger" onClick=${() => opened.set({ verb: "kill", run, phase: null, key: {} })}>Kill it first…<//>`
    : html`<${Footer} close=${close} kind="danger" confirm="Delete" busy=${busy} disabled=${!found || Boolean(found.refused)}
        onConfirm=${() => act(() => api.delete(pathOf(run)), gone)} />`;
  return html`<${Dialog} title=${`Delete #${run.number} ${run.name}`} tone="danger" onClose=${close} footer=${footer}>
    ${!found && !failed && html`<${Spinner} label="Looking at what it would do" />`}
    <${ProblemBox} problem=${problem ?? failed ?? (found?.refused ? { detail: found.refused, hint: active ? null : found.hint } : null)} />
    ${found && !found.refused && html`<p class="question">This deletes ${run.name} for good. It can't be undone.</p>
      <dl class="facts"><dt>Lost</dt><dd><ul class="plain-list">${found.lost.map((text) => html`<li key=${text}>${text}</li>`)}</ul></dd>
        <dt>Kept</dt><dd>${found.kept.join(", ")}</dd>
        <dt>Credits used</dt><dd>${credits(found.credits.used)}: they stay spent</dd></dl>`}
  <//>`;
}
