// What it runs with, exactly: the YAML, the workflow's version, the code, the names of its environment.
import { html, useMemo } from "../lib.js";
import { Link } from "../route.js";
import { Button, Icon } from "../ui/index.js";
import { copy } from "./copying.js";

export function Configuration({ run }) {
  const spec = run.spec ?? "";
  const lines = useMemo(() => spec.replace(/\n$/, "").split("\n").map((line, at) => html`<span
    class="spec-line" key=${at} data-line=${at + 1}>${line}${"\n"}</span>`), [spec]);
  return html`<div class="overview">
    <section class="overview-main card" aria-labelledby="spec-title">
      <div class="card-head"><h2 id="spec-title">whistle.yaml</h2>
        <${Button} class="push" onClick=${() => copy(spec, "The configuration is copied.")}><${Icon} name="copy" />Copy<//></div>
      <pre class="spec" tabindex="0" aria-label="The exact configuration"><code>${lines}</code></pre>
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
      <${Environment} run=${run} />
    </aside>
  </div>`;
}

/** Names only: values may be secrets, and the YAML beside shows those that are not. */
function Environment({ run }) {
  const given = run.environment ?? {};
  const phases = Object.keys(given).filter((name) => name !== "");
  const Names = (names) => html`<ul class="env-names">${names.map((name) => html`<li key=${name}><code>${name}</code></li>`)}</ul>`;
  return html`<section class="card" aria-labelledby="env-title"><h2 id="env-title">Environment</h2>
    ${phases.map((name) => html`<div key=${name}><h3>${name}</h3>${Names(given[name])}</div>`)}
    ${phases.length === 0 && html`<p class="small muted">The spec sets no variable.</p>`}
    ${(given[""] ?? []).length > 0 && html`<div><h3>As it was at submit</h3>${Names(given[""])}</div>`}
  </section>`;
}
