// Usage: what was spent, on what, by whom and when; what may still be spent; and what it would have cost elsewhere.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { credits } from "../format.js";
import { mayAdmin, useMe } from "../me.js";
import { queryText, setQuery } from "../route.js";
import { Button, Empty, ProblemBox, Spinner, Tabs } from "../ui/index.js";
import { useListed } from "../lists/listed.js";
import { Budgets } from "../usage/budgets.js";
import { BudgetDialog } from "../usage/dialogs.js";
import { Comparison } from "../usage/comparison.js";
import { Days } from "../usage/days.js";
import { Groups } from "../usage/groups.js";
import { hours, share } from "../usage/words.js";

const AGAIN = 3000;
const EVERY = 15_000;  // what runs is paid for all the time
const SPANS = [["1d", "Day"], ["7d", "Week"], ["30d", "30 days"], ["90d", "90 days"], ["365d", "Year"]];
const BY = [["project", "Projects"], ["workflow", "Workflows"], ["run", "Runs"], ["pool", "Pools"], ["market", "Markets"], ["kind", "Kinds of time"]];

export default function Page({ query }) {
  const span = SPANS.some(([id]) => id === query.since) ? query.since : "30d";
  const by = BY.some(([id]) => id === query.by) ? query.by : "project";
  return html`<${Usage} key=${`${span} ${by} ${query.project ?? ""}`} span=${span} by=${by} project=${query.project || undefined} query=${query} />`;
}

function Usage({ span, by, project, query }) {
  const me = useMe();
  const [usage, problem, again] = useListed(() => api.get("/usage", { by, since: span, project, limit: 200 }), AGAIN, EVERY);
  const [budget, setBudget] = useState(null);
  const tabs = BY.map(([id, label]) => ({ id, label, href: `/usage${queryText({ ...query, by: id })}` }));
  return html`
    <div class="page-head"><div><h1>Usage</h1><p>${project ? html`Of project <strong>${project}</strong>. <a href=${`/usage${queryText({ ...query, project: undefined })}`}
        onClick=${(event) => { event.preventDefault(); setQuery({ project: null }); }}>All projects</a>` : "Slots times hours times price, from the start of an attempt to its proven end. Waiting is free."}</p></div>
      <fieldset class="segments"><legend class="visually-hidden">Time</legend>${SPANS.map(([id, label]) => html`<label key=${id}><input type="radio" name="span" value=${id}
        checked=${id === span} onChange=${() => setQuery({ since: id })} /><span>${label}</span></label>`)}</fieldset></div>
    <${ProblemBox} problem=${problem} />
    ${!usage ? !problem && html`<${Spinner} label="Loading the usage" />` : html`<div class="stack is-wide">
      ${!usage.total.attempts && usage.total.credits === 0 ? html`<${Nothing} />` : html`
        <${Totals} total=${usage.total} />
        <section class="stack is-tight"><h2>By day</h2><${Days} days=${usage.days} /></section>`}
      <section class="stack is-tight"><div class="row"><h2>Budgets</h2>${mayAdmin(me) && html`<${Button} class="is-small push"
        onClick=${() => setBudget({ project: project ?? "" })}>Set a budget…<//>`}</div>
        <${Budgets} budgets=${usage.budgets} admin=${mayAdmin(me)} change=${setBudget} /></section>
      ${usage.total.credits > 0 && html`<section class="stack is-tight"><h2>Spot, on demand, and the mix so far</h2><${Comparison} comparison=${usage.comparison} /></section>
        <section><${Tabs} label="Usage by" tabs=${tabs} current=${by} /><${Groups} usage=${usage} by=${by} query=${query} /></section>`}
    </div>`}
    ${budget && html`<${BudgetDialog} budget=${budget} close=${() => setBudget(null)} after=${again} />`}`;
}

function Totals({ total }) {
  const tiles = [
    ["Credits", credits(total.credits)], ["Slot time", hours(total.slot_hours)],
    ["Attempts", (total.attempts ?? 0).toLocaleString("en-US")], ["Done again", share(total.redone), "steps that had been made and were lost"],
    ["Wasted", share(total.wasted), "done again, or stalled"],
  ];
  return html`<dl class="tiles usage-totals">${tiles.map(([name, value, more]) => html`<div key=${name} class="tile"><dt>${name}</dt><dd>${value}${
    more && html`<span class="tile-more">${more}</span>`}</dd></div>`)}</dl>`;
}

function Nothing() {
  return html`<${Empty} title="Nothing was spent in this time">
    <p>A run costs credits from the start of an attempt to its end: slots times hours times the price of its pool.</p>
    <pre class="command">whistle run -- python train.py</pre><//>`;
}
