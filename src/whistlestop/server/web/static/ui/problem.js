// What went wrong, and what to do: a Problem of the API, or any other error.
import { html } from "../lib.js";
import { Icon } from "./icon.js";

export function ProblemBox({ problem }) {
  if (!problem) return null;
  const items = problem.problems ?? [];
  return html`<div class="problem" role="alert">
    <${Icon} name="alert" />
    <div>
      <p class="problem-text">${problem.detail ?? problem.message ?? String(problem)}</p>
      ${problem.hint && html`<p class="problem-hint">${problem.hint}</p>`}
      ${items.length > 0 && html`<ul class="problem-items">${items.map((item) => html`<li>
        ${item.line ? html`<span class="problem-place">line ${item.line}</span> ` : null}
        ${item.path ? html`<code>${item.path}</code> ` : null}${item.text}${item.hint ? ` (${item.hint})` : null}
      </li>`)}</ul>`}
    </div>
  </div>`;
}
