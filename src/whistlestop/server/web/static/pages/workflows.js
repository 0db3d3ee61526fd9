// The saved configurations of a project: who changed them when, the runs made from them, every version's text.
import { html } from "../lib.js";
import { useAnswer } from "../answer.js";
import { clock, day } from "../format.js";
import { mayAct, useMe } from "../me.js";
import { Link, setQuery } from "../route.js";
import { Ago, Button, Dialog, Empty, Field, Icon, ProblemBox, Spinner } from "../ui/index.js";
import { codeWords } from "../forms/code.js";
import { ProjectHead } from "../lists/head.js";

export default function Page({ params, query }) {
  const me = useMe();
  const [found, problem] = useAnswer(`/projects/${encodeURIComponent(params.name)}/workflows`);
  return html`
    <${ProjectHead} name=${params.name} current="workflows" count=${found?.length} act=${mayAct(me)} />
    <${ProblemBox} problem=${problem} />
    ${!found ? !problem && html`<${Spinner} label="Loading the workflows" />` : !found.length ? html`<${Nothing} project=${params.name} />`
      : html`<div class="scroll"><table class="table workflows"><caption class="visually-hidden">Workflows</caption>
        <thead><tr><th scope="col">Name</th><th scope="col" class="is-number">Version</th><th scope="col">Changed</th>
          <th scope="col">By</th><th scope="col" class="is-number">Runs</th><th scope="col">Code of the newest run</th><td></td></tr></thead>
        <tbody>${found.map((one) => html`<${Row} key=${one.name} flow=${one} project=${params.name} act=${mayAct(me)} />`)}</tbody>
      </table></div>`}
    ${query.show && html`<${Versions} name=${query.show} wanted=${query.version} project=${params.name} act=${mayAct(me)} />`}`;
}

function Row({ flow, project, act }) {
  const at = `/projects/${encodeURIComponent(project)}`;
  return html`<tr data-workflow=${flow.name}>
    <td><button type="button" class="link-button" onClick=${() => setQuery({ show: flow.name })}>${flow.name}</button>
      ${flow.note && html`<span class="cut note-line" title=${flow.note}>${flow.note}</span>`}</td>
    <td class="is-number">${flow.version}</td>
    <td title=${`${day(flow.created_at)} ${clock(flow.created_at)}`}><${Ago} at=${flow.created_at} /></td><td>${flow.created_by}</td>
    <td class="is-number">${flow.runs ? html`<${Link} href=${`${at}?workflow=${encodeURIComponent(flow.name)}`}>${flow.runs.toLocaleString("en-US")}<//>` : "0"}</td>
    <td class="muted small">${flow.newest ? html`<${Link} href=${`/runs/${flow.newest.run}`}>#${flow.newest.number}<//> ${codeWords(flow.newest.code)}` : "none yet"}</td>
    <td class="cell-menu row"><${Button} class="is-small" kind="quiet" onClick=${() => setQuery({ show: flow.name })}>YAML<//>
      ${act && html`<${Link} class="button is-plain is-small" href=${`/new?workflow=${encodeURIComponent(flow.name)}&project=${encodeURIComponent(project)}`}>New run<//>`}</td>
  </tr>`;
}

function Versions({ name, wanted, project, act }) {
  const [all, problem] = useAnswer(`/workflows/${encodeURIComponent(name)}/versions`);
  const close = () => setQuery({ show: null, version: null });
  const shown = all?.find((one) => String(one.version) === wanted) ?? all?.[0];
  const footer = html`<${Button} onClick=${close}>Close<//>${act && shown && html`<${Link} class="button is-primary"
    href=${`/new?workflow=${encodeURIComponent(`${name}@${shown.version}`)}&project=${encodeURIComponent(project)}`}><${Icon} name="plus" />New run<//>`}`;
  return html`<${Dialog} wide title=${`Workflow ${name}`} onClose=${close} footer=${footer}>
    <${ProblemBox} problem=${problem} />
    ${!all && !problem && html`<${Spinner} label="Loading its versions" />`}
    ${shown && html`<${Field} label="Version">
        <select value=${String(shown.version)} onChange=${(event) => setQuery({ version: event.target.value })}>${all.map((one) => html`<option
          key=${one.version} value=${String(one.version)}>${one.version}: ${day(one.created_at)} ${clock(one.created_at)}, ${one.created_by}${one.note ? ` (${one.note})` : ""}</option>`)}</select>
      <//><pre class="yaml-view" tabindex="0" aria-label=${`Text of version ${shown.version}`}>${shown.spec}</pre>`}
  <//>`;
}

function Nothing({ project }) {
  return html`<${Empty} title="No workflows yet">
    <p>A workflow is a configuration that is kept, with all its versions. Save one from its file:</p>
    <pre class="command">whistle workflow save NAME whistle.yaml</pre>
    <p>Specs with <code>project: ${project}</code> are listed here, and so is every workflow that was used in it.</p><//>`;
}
