// Who or what has used it: the dearest first.
import { html } from "../lib.js";
import { credits } from "../format.js";
import { Link, queryText } from "../route.js";
import { marketWord } from "../capacity/words.js";
import { KINDS, hours, kindWord, share } from "./words.js";

const HEADS = { project: "Project", workflow: "Workflow", run: "Run", pool: "Pool", market: "Market", kind: "Kind of time" };

export function Groups({ usage, by, query }) {
  const whole = usage.total.credits || 1;
  const counted = usage.groups.some((group) => group.attempts !== null);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`Usage by ${HEADS[by].toLowerCase()}`}><table class="table usage-groups">
    <thead><tr><th scope="col">${HEADS[by]}</th><th scope="col" class="is-number">Credits</th><th scope="col" class="is-number">Share</th><th scope="col">How it was used</th>
      <th scope="col" class="is-number">Slot time</th>${counted && html`<th scope="col" class="is-number">Attempts</th>`}<th scope="col" class="is-number">Wasted</th></tr></thead>
    <tbody>${usage.groups.map((group) => html`<tr key=${group.key} data-group=${group.key}><th scope="row"><${Name} group=${group} by=${by} query=${query} /></th>
      <td class="is-number">${credits(group.credits)}</td><td class="is-number">${share(group.credits / whole)}</td>
      <td><${Stack} group=${group} /></td><td class="is-number">${hours(group.slot_hours)}</td>
      ${counted && html`<td class="is-number">${group.attempts === null ? "–" : group.attempts.toLocaleString("en-US")}</td>`}<td class="is-number">${share(group.wasted)}</td></tr>`)}</tbody>
  </table></div>${usage.left_off > 0 && html`<p class="muted small">and ${usage.left_off.toLocaleString("en-US")} more, which the sums above contain</p>`}`;
}

function Name({ group, by, query }) {
  if (by === "run") {
    const words = html`${group.number ? `#${group.number} ` : ""}${group.name || group.key}`;
    return html`<${Link} href=${`/runs/${encodeURIComponent(group.key)}`}>${words}<//>`;
  }
  if (by === "project") return html`<${Link} href=${`/usage${queryText({ ...query, project: group.key, by: "run" })}`}>${group.key}<//>`;
  if (by === "pool") return html`${group.key}${group.market && html` <span class="tag is-${group.market}">${marketWord(group.market)}</span>`}`;
  if (by === "market") return marketWord(group.key);
  if (by === "kind") return kindWord(group.key);
  return group.key || html`<span class="faint">no workflow</span>`;
}

function Stack({ group }) {
  const parts = KINDS.map(([kind]) => [kind, group.kinds[kind] ?? 0]).filter(([, value]) => value > 0);
  if (!parts.length || !group.credits) return html`<span class="faint">–</span>`;
  const words = parts.map(([kind, value]) => `${kindWord(kind)} ${share(value / group.credits)}`).join(", ");
  return html`<span class="usage-stack" role="img" aria-label=${words} title=${words}>${parts.map(([kind, value]) => html`<span key=${kind} class="is-kind-${kind}"
    style=${{ width: `${(value / group.credits) * 100}%` }}></span>`)}</span>`;
}
