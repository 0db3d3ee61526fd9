// Which code a new run takes: that of another run, said plainly, or none.
import { html, useEffect, useState } from "../lib.js";
import { api, now } from "../api.js";
import { ago } from "../format.js";
import { Link } from "../route.js";
import { Field, Icon } from "../ui/index.js";

/** "commit 3f2a91c, with uncommitted changes" */
export function codeWords(code) {
  if (code?.in_place) return `runs in place in ${code.in_place}`;
  const bundle = code?.bundle ? `bundle ${code.bundle.slice(0, 10)}` : null;
  if (code?.commit) return `commit ${code.commit.slice(0, 10)}${code.dirty ? ", with uncommitted changes" : ""}`;
  return bundle ?? "no code of its own";
}

const FILE = /(?:^|[\s"'=])((?:[\w.-]*\/)*[\w-][\w.-]*\.(?:py|ipynb|sh|jl|lua|[rR]|js|ya?ml|toml|json|cfg|ini|txt)|\.\/[\w./-]+)(?=$|[\s"';&|)])/g;

/** The files that the commands name; those with a path from the root are there without any code. */
export function filesOf(fields) {
  const commands = fields.filter((field) => /(^|\.)command$/.test(field.path)).flatMap((field) => field.value ?? []);
  const found = commands.flatMap((command) => [...String(command).matchAll(FILE)].map((match) => match[1]));
  return [...new Set(found)].filter((file) => !file.startsWith("/"));
}

/** The runs whose code could be taken: the one that is named, the newest of the workflow, then the newest of all. */
export function useCodes({ from, workflow, project }) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    let current = true;
    const name = workflow?.split("@")[0];
    Promise.all([
      from ? api.get(`/runs/${encodeURIComponent(from)}`).then((run) => [run], () => []) : [],
      name ? api.get("/runs", { workflow: name, limit: 1 }).then((page) => page.runs, () => []) : [],
      api.get("/runs", { project: project || undefined, limit: 20 }).then((page) => page.runs, () => []),
    ]).then(([named, made, recent]) => {
      const all = [...named, ...made, ...recent];
      const known = all.filter((run, at) => all.findIndex((other) => other.id === run.id) === at);
      const first = named[0] ?? made[0] ?? null;  // never that of a run which nobody has named
      if (current) setFound({ runs: known, first: first?.id ?? "" });
    });
    return () => { current = false; };
  }, [from, workflow, project]);
  return found;
}

export function CodeField({ codes, value, onInput, names }) {
  const run = codes?.runs.find((one) => one.id === value);
  return html`<div class="card code-card">
    <${Field} label="Code version">
      <select value=${value} disabled=${!codes} onChange=${(event) => onInput(event.target.value)}>
        ${(codes?.runs ?? []).map((one) => html`<option key=${one.id} value=${one.id}>#${one.number} ${one.name}: ${codeWords(one.code)}, ${ago(one.created_at, now())}</option>`)}
        <option value="">No code: an empty directory</option>
      </select>
    <//>
    ${run ? html`<p class="small" data-code=${run.number}>It uses the code and environment of <${Link} href=${`/runs/${run.id}`}>#${run.number} ${run.name}<//>: <strong>${codeWords(run.code)}</strong>.</p>`
      : codes && html`${names.length > 0 && html`<p class="small is-hurt" role="status"><${Icon} name="alert" /> The command names <strong>${names.join(", ")}</strong>,
          and without code there is no such file.</p>`}
        <p class="small muted">No code: the command runs in an empty directory. Choose a run to take the code that it had, or submit from
          the directory of your code: <code>whistle submit</code>.</p>`}
  </div>`;
}
