// What can be changed on the way, what was, and saves that were asked for. One phase.
import { html } from "../lib.js";
import { mayAct } from "../me.js";
import { Button, Icon } from "../ui/index.js";
import { changeName, count, moment, value } from "./words.js";

export function Steering({ phase, run, me, actions }) {
  const names = Object.keys(phase.params);
  const open = phase.status === "pending" || phase.status === "running";
  if (names.length === 0 && phase.steering.length === 0 && phase.saves.requested === 0) return null;
  const may = mayAct(me) && open && actions !== null;
  return html`<div class="steering">
    ${names.length > 0 && html`<${Params} phase=${phase} run=${run} may=${may} actions=${actions} names=${names} />`}
    ${phase.saves.requested > 0 && html`<p class="small muted"><${Icon} name="save" size=${13} /> ${saves(phase)}</p>`}
    ${phase.steering.length > 0 && html`<details class="changes" open=${phase.steering.length <= 3}>
      <summary>${phase.steering.length === 1 ? "1 change" : `${phase.steering.length} changes`} on the way</summary>
      <ul>${[...phase.steering].reverse().map((change) => html`<li key=${change.seq} class=${change.refused ? "is-refused" : ""}>
        <code>${changeName(change)} = ${value(change.value)}</code>
        <span>${change.refused ? `not taken: ${change.refused}` : change.step === null || change.step === undefined
          ? "not applied yet" : `from step ${count(change.step)} on`}</span>
        <span class="small muted">${change.actor}, ${moment(change.at)}</span></li>`)}</ul>
    </details>`}
  </div>`;
}

function Params({ phase, run, may, actions, names }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Parameters of ${phase.name}"><table class="params">
    <caption>Parameters</caption>
    <thead><tr><th scope="col">name</th><th scope="col">value</th><th scope="col">default</th><th scope="col">allowed</th>
      <th scope="col"><span class="visually-hidden">change</span></th></tr></thead>
    <tbody>${names.map((name) => {
      const param = phase.params[name];
      const changed = param.value !== param.default;
      return html`<tr key=${name}><th scope="row"><code>${name}</code></th>
        <td class=${changed ? "is-changed" : ""}>${value(param.value)}</td><td>${value(param.default)}</td>
        <td>${range(param)}</td>
        <td>${may && html`<${Button} kind="quiet" aria-label="Change ${name}"
          onClick=${() => actions.openAction("set", [run], { phase: phase.name, param: name })}><${Icon} name="edit" /><span class="button-word">Change</span><//>`}</td></tr>`;
    })}</tbody></table></div>`;
}

function range({ low, high }) {
  if (low === null && high === null) return "any";
  return `${low === null ? "…" : low} to ${high === null ? "…" : high}`;
}

function saves(phase) {
  const { requested, done, step } = phase.saves;
  if (done < requested) return `a save was asked for${done > 0 ? `; the one before was made at step ${count(step)}` : ""}`;
  return requested === 1 ? `the save that was asked for was made at step ${count(step)}`
    : `all ${requested} saves that were asked for were made, the last at step ${count(step)}`;
}
