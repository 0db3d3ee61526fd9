// A project's budget.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { Button, Dialog, Field, ProblemBox } from "../ui/index.js";
import { Footer, useAsking } from "../actions/state.js";

export function BudgetDialog({ budget, close, after }) {
  const { busy, problem, act } = useAsking(close);
  const known = budget.credits !== undefined;
  const [project, setProject] = useState(budget.project);
  const [amount, setAmount] = useState(known ? String(budget.credits) : "");
  const [restart, setRestart] = useState(false);
  const wrong = amount && !/^\d+(\.\d+)?$/.test(amount.trim()) ? "a number of credits" : null;
  const send = () => act(async () => {
    await api.put(`/budgets/${encodeURIComponent(project.trim())}`, { credits: Number(amount), restart });
    return { text: `the budget of ${project.trim()} is ${Number(amount)} credits` };
  }, after);
  const remove = () => act(async () => {
    await api.delete(`/budgets/${encodeURIComponent(budget.project)}`);
    return { text: `project ${budget.project} has no budget any more` };
  }, after);
  return html`<${Dialog} title=${known ? `Budget of ${budget.project}` : "Set a budget"} onClose=${close} footer=${html`<${Footer} close=${close} confirm="Set"
    busy=${busy} disabled=${!project.trim() || !amount.trim() || Boolean(wrong)} onConfirm=${send} />`}>
    <p>Runs of the project are refused once it is spent, and those that run are stopped with a checkpoint before.</p>
    <${ProblemBox} problem=${problem} />
    ${!known && html`<${Field} label="Project"><input type="text" value=${project} maxlength="100" onInput=${(event) => setProject(event.target.value)} /><//>`}
    <${Field} label="Credits" error=${wrong}><input type="text" inputmode="decimal" value=${amount} onInput=${(event) => setAmount(event.target.value)} /><//>
    ${known && html`<label class="row"><input type="checkbox" checked=${restart} onChange=${(event) => setRestart(event.target.checked)} /> Count from now on</label>
      <div><${Button} kind="plain" disabled=${busy} onClick=${remove}>Take the budget away<//></div>`}
  <//>`;
}
