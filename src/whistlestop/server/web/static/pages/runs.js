// A project: its runs, live. The tab beside it has its workflows.
import { html, useEffect } from "../lib.js";
import { useMe, mayAct } from "../me.js";
import { Link, setQuery } from "../route.js";
import { Empty, ProblemBox, Spinner } from "../ui/index.js";
import { Filters, Pager, SelectionBar } from "../lists/filters.js";
import { ProjectHead } from "../lists/head.js";
import { useSelection } from "../lists/selection.js";
import { useRuns, useSparklines } from "../lists/state.js";
import { RunTable } from "../lists/table.js";

export default function Page({ params, query }) {
  const me = useMe();
  const list = useRuns(params.name, query);
  const lines = useSparklines(list.runs);
  const selection = useSelection(list.runs, JSON.stringify(list.filter));
  const filtered = Boolean(query.q || query.status || query.workflow);
  useEffect(() => {  // the last page has become empty: back to one that has runs
    if (list.runs && !list.loading && !list.runs.length && list.page > 1) setQuery({ page: list.pages > 1 ? list.pages : null });
  }, [list.runs, list.loading]);
  return html`
    <${ProjectHead} name=${params.name} current="runs" count=${filtered ? null : list.runs && list.total} act=${mayAct(me)} />
    <${Filters} query=${query} />
    <${SelectionBar} selection=${selection} list=${list} me=${me} />
    <${ProblemBox} problem=${list.problem} />
    ${!list.runs ? !list.problem && html`<${Spinner} label="Loading the runs" />`
      : list.runs.length
        ? html`<div class=${list.loading ? "is-loading" : ""}><${RunTable} runs=${list.runs} me=${me} sort=${list.sort} selection=${selection} lines=${lines} /></div>`
        : html`<${Nothing} filtered=${filtered} project=${params.name} act=${mayAct(me)} />`}
    ${list.runs && html`<${Pager} list=${list} />`}`;
}

function Nothing({ filtered, project, act }) {
  if (filtered) {
    return html`<${Empty} title="No run matches"><button type="button" class="button is-plain"
      onClick=${() => setQuery({ status: null, q: null, workflow: null, page: null })}>Show all runs</button><//>`;
  }
  return html`<${Empty} title="No runs in this project yet">
    <p>Submit one from the directory with your code:</p>
    <pre class="command">whistle run --project ${project} -- python train.py</pre>
    <p>or with a <code>whistle.yaml</code>: <code>whistle submit</code>.
      ${act && html` Or write one here: <${Link} href=${`/new?project=${encodeURIComponent(project)}`}>New run<//>.`}</p><//>`;
}
