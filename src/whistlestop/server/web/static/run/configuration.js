// What it runs with, exactly: the YAML, the workflow's version, the code, the names of its environment.
import { html, useMemo } from "../lib.js";
import { Link } from "../route.js";
import { Button, Icon, toast } from "../ui/index.js";

export function Configuration({ run }) {
  const spec = run.spec ?? "";
  const lines = useMemo(() => spec.replace(/\n$/, "").split("\n"), [spec]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(spec);
      toast("The configuration is copied.");
    } catch {
      toast("The browser does not allow it: select the text instead.", { kind: "problem" });
    }
  };
  return html`<div class="overview">
    <section class="overview-main card" aria-labelledby="spec-title">
      <div class="card-head"><h2 id="spec-title">whistle.yaml</h2>
        <${Button} class="push" onClick=${copy}><${Icon} name="copy" />Copy<//></div>
      <pre class="spec" tabindex="0" aria-label="The exact configuration"><code>${lines.map((line, at) => html`<span
        class="spec-line" key=${at} data-line=${at + 1}>${line}${"\n"}</span>`)}</code></pre>
    </section>
    <aside class="overview-side" aria-label="Origin and code">
      <section class="card" aria-labelledby="code-title"><h2 id="code-title">Code</h2>
        <dl class="facts">
          <dt>workflow</dt><dd>${run.workflow ?? "none: submitted as a file"}</dd>
          ${run.parent && html`<dt>from</dt><dd>${run.parent.number ? html`<${Link} href="/runs/${encodeURIComponent(run.parent.run)}"
            >run #${run.parent.number}<//>` : "a run that was deleted"}</dd>`}
          ${run.code.bundle && html`<dt>bundle</dt><dd><code class="hash">${run.code.bundle}</code></dd>`}
          ${run.code.in_place && html`<dt>in place</dt><dd><code>${run.code.in_place}</code></dd>`}
          <dt>commit</dt><dd>${run.code.commit ? html`<code class="hash">${run.code.commit}</code>` : "not known"}</dd>
          ${run.code.commit && html`<dt>changes</dt><dd>${run.code.dirty ? "there were uncommitted ones" : run.code.dirty === false ? "none" : "not known"}</dd>`}
        </dl>
        ${run.code.in_place && html`<p class="small muted">It runs in that directory itself: what changes there changes for the next attempt.</p>`}
      </section>
      <${Environment} run=${run} lines=${lines} />
    </aside>
  </div>`;
}

/** Names only, out of the spec: values may be secrets, and the YAML beside shows those that are not. */
function Environment({ run, lines }) {
  const names = useMemo(() => environmentNames(lines), [lines]);
  return html`<section class="card" aria-labelledby="env-title"><h2 id="env-title">Environment</h2>
    ${names.length === 0 ? html`<p class="small muted">The spec sets no variable.</p>`
      : html`<ul class="env-names">${names.map((name) => html`<li key=${name}><code>${name}</code></li>`)}</ul>`}
    <p class="small muted">Each phase gets its own, and ${run.phases.length > 1 ? "the directories of the phases before it." : "what was there at submit."}</p>
  </section>`;
}

export function environmentNames(lines) {
  const found = new Set();
  let depth = -1;  // of the `env:` we are in
  for (const line of lines) {
    const indent = line.search(/\S/);
    if (indent < 0 || line.trimStart().startsWith("#")) continue;
    const inline = line.match(/^(\s*(?:- )?)env:\s*\{(.*)\}/);
    if (inline) for (const part of inline[2].matchAll(/(?:^|,)\s*["']?([A-Za-z_]\w*)["']?\s*:/g)) found.add(part[1]);
    if (depth >= 0 && indent <= depth) depth = -1;
    if (depth >= 0) {
      const name = line.match(/^\s*["']?([A-Za-z_]\w*)["']?\s*:/);
      if (name && (depth.first ?? indent) === indent) found.add(name[1]);
    }
    const opens = line.match(/^(\s*(?:- )?)env:\s*(#.*)?$/);
    if (opens) depth = opens[1].length;
  }
  return [...found].sort();
}
