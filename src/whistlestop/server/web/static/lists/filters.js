// Status, search, and what is chosen: all of it in the address, so that a list can be shared.
import { html, useEffect, useRef, useState } from "../lib.js";
import { mayAct } from "../me.js";
import { setQuery } from "../route.js";
import { Button, Icon, StatusMark } from "../ui/index.js";
import { openAction } from "../actions/index.js";
import { PAGE } from "./state.js";

const STATUSES = ["running", "starting", "queued", "waiting", "completed", "failed", "killed"];
const SETTLED = 250;  // milliseconds without a letter

export function Filters({ query }) {
  const chosen = [].concat(query.status ?? []);
  const typing = useRef(null);  // the timer of a search that is not in the address yet
  const toggle = (status) => {
    const next = chosen.includes(status) ? chosen.filter((one) => one !== status) : [...chosen, status];
    setQuery({ status: next.length ? next : null, page: null });
  };
  const clear = () => {
    forget(typing);
    setQuery({ status: null, q: null, workflow: null, page: null });
  };
  return html`<div class="filters">
    <${Search} key=${location.pathname} value=${query.q ?? ""} timer=${typing} />
    <div class="chips" role="group" aria-label="Status">${STATUSES.map((status) => html`<button key=${status} type="button"
      class="chip is-${status}" aria-pressed=${chosen.includes(status) ? "true" : "false"} onClick=${() => toggle(status)}
      ><${StatusMark} status=${status} />${status}</button>`)}</div>
    ${(chosen.length > 0 || query.q || query.workflow) && html`<button type="button" class="button is-quiet is-small"
      onClick=${clear}>Clear</button>`}
    ${query.workflow && html`<span class="tag">workflow ${query.workflow}</span>`}
  </div>`;
}

function forget(timer) {
  clearTimeout(timer.current);
  timer.current = null;
}

function Search({ value, timer }) {
  const [text, setText] = useState(value);
  useEffect(() => () => forget(timer), []);  // or it would write into the next page's address
  // With every change of the address: also after Clear, when what was typed never got into it.
  useEffect(() => { if (timer.current === null && text.trim() !== value) setText(value); });  // "two " becomes "two words"
  const input = (event) => {
    setText(event.target.value);
    forget(timer);
    const path = location.pathname;
    timer.current = setTimeout(() => {
      timer.current = null;
      if (location.pathname !== path) return;  // this page is still here while the next one loads
      setQuery({ q: event.target.value.trim() || null, page: null });
    }, SETTLED);
  };
  return html`<label class="search"><span class="visually-hidden">Search in names and notes</span><${Icon} name="search" />
    <input type="search" placeholder="Search in names and notes" maxlength="200" value=${text} onInput=${input} /></label>`;
}

export function SelectionBar({ selection, list, me }) {
  const count = selection.everything ? list.total : selection.count;
  if (!count) return null;
  const act = (verb) => openAction(verb, {
    bulk: true, ...(selection.everything ? { filter: list.filter } : { runs: selection.ids }), total: count,
    onDone: () => { if (verb === "delete") selection.clear(); list.again(); },
  });
  const may = mayAct(me);
  const { hidden } = selection;
  const button = (verb, label, kind) => html`<${Button} class="is-small" kind=${kind} disabled=${!may}
    title=${may ? undefined : "Your role only looks"} onClick=${() => act(verb)}>${label}<//>`;
  const more = selection.page === "all" && !selection.everything && list.total > selection.count;
  return html`<div class="selection" role="region" aria-label="Selected runs">
    <span class="selection-count">${selection.everything ? `All ${count.toLocaleString("en-US")} that match`
      : `${count.toLocaleString("en-US")} selected${hidden ? `, ${hidden.toLocaleString("en-US")} not shown` : ""}`}</span>
    ${hidden > 0 && html`<button type="button" class="button is-quiet is-small" onClick=${selection.dropHidden}
      >Keep only what is shown</button>`}
    ${more && html`<button type="button" class="button is-quiet is-small" onClick=${selection.chooseEverything}
      >Select all ${list.total.toLocaleString("en-US")} that match</button>`}
    <span class="push row">${button("stop", "Stop…", "plain")}${button("pause", "Pause…", "plain")}${button("kill", "Kill…", "danger")}${button("delete", "Delete…", "danger")}
      <${Button} class="is-small" kind="quiet" onClick=${selection.clear}>Clear<//></span>
  </div>`;
}

export function Pager({ list }) {
  if (list.pages < 2) return null;
  const first = (list.shown - 1) * PAGE + 1;  // of what is there, not of what is on its way
  const last = Math.min(list.total, first + list.runs.length - 1);
  const to = (page) => {
    setQuery({ page: page > 1 ? page : null });
    scrollTo(0, 0);
  };
  return html`<nav class="pager" aria-label="Pages of runs">
    <span class="muted">${first.toLocaleString("en-US")}–${last.toLocaleString("en-US")} of ${list.total.toLocaleString("en-US")}</span>
    <span class="push row"><${Button} disabled=${list.page < 2} onClick=${() => to(list.page - 1)}>Previous<//>
      <${Button} disabled=${list.page >= list.pages} onClick=${() => to(list.page + 1)}>Next<//></span>
  </nav>`;
}
