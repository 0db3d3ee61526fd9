// Training: the projects, what runs in each now, and what it has cost.
import { html } from "../lib.js";
import { api } from "../api.js";
import { credits, clock, day } from "../format.js";
import { mayAct, useMe } from "../me.js";
import { Link } from "../route.js";
import { useListed } from "../lists/listed.js";
import { Ago, Empty, Icon, ProblemBox, Spinner, StatusMark } from "../ui/index.js";

const AGAIN = 1500;

export default function Page() {
  const me = useMe();
  const [found, problem] = useListed(() => api.get("/projects"), AGAIN);
  const running = (found ?? []).reduce((sum, one) => sum + one.running, 0);
  return html`
    <div class="page-head"><div><h1>Training</h1>
        ${found && found.length > 0 && html`<p>${found.length} project${found.length === 1 ? "" : "s"}, ${running
          ? `${running.toLocaleString("en-US")} run${running === 1 ? "" : "s"} running now` : "nothing runs now"}</p>`}</div>
      ${mayAct(me) && html`<${Link} class="button is-primary" href="/new"><${Icon} name="plus" />New run<//>`}</div>
    <${ProblemBox} problem=${problem} />
    ${!found ? !problem && html`<${Spinner} label="Loading the projects" />`
      : found.length ? html`<ul class="projects">${found.map((one) => html`<${Project} key=${one.name} project=${one} />`)}</ul>`
        : html`<${First} act=${mayAct(me)} />`}`;
}

function Project({ project }) {
  const counts = [
    ["running", project.running], ["queued", project.queued], ["waiting", project.waiting], ["failed", project.failed],
  ].filter(([, count]) => count);
  return html`<li class="card project ${project.active ? "is-active" : ""}" data-project=${project.name}>
    <h2 class="project-name"><${Link} href=${`/projects/${encodeURIComponent(project.name)}`}>${project.name}<//></h2>
    <p class="project-counts">${counts.length ? counts.map(([status, count]) => html`<span key=${status} class="count is-${status}"
      ><${StatusMark} status=${status} /><span>${count.toLocaleString("en-US")} ${status}</span></span>`)
      : html`<span class="faint">${project.runs ? "nothing under way" : "no runs yet"}</span>`}</p>
    <dl class="project-facts">
      <div><dt>Runs</dt><dd>${project.runs.toLocaleString("en-US")}</dd></div>
      <div><dt>Credits</dt><dd>${credits(project.credits)}</dd></div>
      <div><dt>Last activity</dt><dd title=${project.last_at ? `${day(project.last_at)} ${clock(project.last_at)}` : undefined}
        >${project.last_at ? html`<${Ago} at=${project.last_at} />` : "–"}</dd></div>
    </dl>
  </li>`;
}

function First({ act }) {
  return html`<${Empty} title="No runs yet">
    <p>In the directory with your training code, on a machine that can reach this server:</p>
    <pre class="command">whistle run -- python train.py</pre>
    <p>The run appears here by itself. With a <code>whistle.yaml</code> it can have phases, a budget and stop rules: <code>whistle submit</code>.${act && html` You can also write one here: <${Link} href="/new">New run<//>.`}</p><//>`;
}
