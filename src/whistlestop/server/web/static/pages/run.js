// One run: its head, its tabs, and what the chosen tab shows. The state is in run/state.js, everything else gets props.
import { html } from "../lib.js";
import { useMe } from "../me.js";
import { useModule } from "../modules.js";
import { Link } from "../route.js";
import { useTitle } from "../title.js";
import { Empty, ProblemBox, Spinner, Tabs } from "../ui/index.js";
import { useActions } from "../run/actions.js";
import { Alerts } from "../run/alerts.js";
import { Attempts } from "../run/attempts.js";
import { Configuration } from "../run/configuration.js";
import { Events } from "../run/events.js";
import { useKept } from "../run/ending.js";
import { Header } from "../run/header.js";
import { Overview } from "../run/overview.js";
import { useRun } from "../run/state.js";
import { allAttempts } from "../run/words.js";

const TABS = [
  ["overview", "Overview"], ["charts", "Charts"], ["logs", "Logs"], ["events", "Events"], ["checkpoints", "Checkpoints"],
  ["attempts", "Attempts"], ["configuration", "Configuration"],
];

export default function Page({ params, query }) {
  const current = TABS.some(([id]) => id === query.tab) ? query.tab : "overview";
  const state = useRun(params.id, current === "charts" ? ["series"] : []);
  const me = useMe();
  const actions = useActions();
  const { run } = state;
  const kept = useKept(run);
  useTitle(run && `#${run.number} ${run.name}`);
  if (!run) {
    if (!state.problem) return html`<h1 class="visually-hidden">Run</h1><${Spinner} label="The run is being read" />`;
    const absent = state.problem.status === 404 || state.problem.status === 409;
    return html`<h1>${absent ? "No such run" : "The run can't be shown"}</h1><${ProblemBox} problem=${state.problem} /><p><${Link} href="/">To the projects<//></p>`;
  }
  if (state.deleted) {
    return html`<h1>Run #${run.number} ${run.name}</h1><${Empty} title="This run was deleted">
      Nothing of it is left on the server. <${Link} href="/projects/${encodeURIComponent(run.project)}">To the runs of ${run.project}<//>.<//>`;
  }
  const base = `/runs/${encodeURIComponent(params.id)}`;
  const tabs = TABS.map(([id, label]) => ({
    id, label, href: id === "overview" ? base : `${base}?tab=${id}`,
    count: id === "attempts" ? allAttempts(run).length || undefined : undefined,
  }));
  return html`<div class="run-page">
    <${Header} run=${run} told=${state.told} kept=${kept} me=${me} actions=${actions} />
    <${Alerts} run=${run} events=${state.events} />
    <${Tabs} label="Parts of run #${run.number}" tabs=${tabs} current=${current} />
    <${Tab} current=${current} state=${state} kept=${kept} me=${me} actions=${actions} query=${query} />
  </div>`;
}

function Tab({ current, state, kept, me, actions, query }) {
  const { run } = state;
  switch (current) {
    case "charts":
      return html`<${Later} module="charts" name="Charts" run=${run} query=${query} series=${state.series} />`;
    case "logs":
      return html`<${Later} module="logs" name="Logs" run=${run} query=${query} hear=${state.hear} />`;
    case "events":
      return html`<${Events} state=${state} />`;
    case "checkpoints":
      return html`<${Later} module="checkpoints" name="Checkpoints" run=${run} told=${state.told} events=${state.events} me=${me} actions=${actions} />`;
    case "attempts":
      return html`<${Attempts} run=${run} told=${state.told} />`;
    case "configuration":
      return html`<${Configuration} run=${run} />`;
    default:
      return html`<${Overview} state=${state} kept=${kept} me=${me} actions=${actions} />`;
  }
}

/** Charts, logs and checkpoints are large, and most visits do not look at them. */
function Later({ module, name, ...props }) {
  const [loaded, failed] = useModule(`./run/${module}.js`);
  if (loaded) return html`<${loaded[name]} ...${props} />`;
  return failed ? html`<${ProblemBox} problem=${failed} />` : html`<${Spinner} label="Loading" />`;
}
