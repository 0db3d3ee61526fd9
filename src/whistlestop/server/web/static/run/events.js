// What happened, by whom, in both scopes. The newest first; older ones when asked for.
import { withTimes } from "../actions/words.js";
import { api } from "../api.js";
import { html, useEffect, useMemo, useState } from "../lib.js";
import { clock, day } from "../format.js";
import { Button, Empty, Field, ProblemBox } from "../ui/index.js";
import { count } from "./words.js";

const PAGE = 200;  // rows drawn at first, and each time more are asked for
const FOUND = 500;  // events in one answer to a filter
const TYPING = 250;  // milliseconds without a letter before a search begins
// All that the server writes by itself, so that one can ask for what is not on the page.
const KINDS = [
  "attached", "budget_80", "budget_forced", "cancel_requested", "checkpoint", "checkpoint_damaged", "checkpoint_fetched",
  "checkpoint_pinned", "checkpoint_removed", "checkpoint_restored", "checkpoint_set_aside", "checkpoint_too_old", "checkpoint_unpinned",
  "checkpoint_verified", "checkpoints_removed", "dropped", "ended", "epoch", "escalated", "evaluation", "extend_requested", "finding",
  "finding_over", "going_again", "guard", "host_excluded", "kill_requested", "leftovers", "node_ready", "note", "notice", "notice_fits",
  "notice_source", "notice_too_short", "order_seen", "params", "pause_requested", "phase_completed", "phase_failed", "phase_killed",
  "phase_pending", "phase_running", "phase_skipped", "placed", "pool_left", "preempt_requested", "preparing", "program", "program_started",
  "rehearsal", "rehearsal_requested", "resume_requested", "run_completed", "run_failed", "run_killed", "run_queued", "run_running",
  "run_starting", "run_waiting", "rung", "save_failed", "save_requested", "set_requested", "stacks", "stacks_requested", "steered",
  "steering_missed", "steering_refused", "stop_requested", "storage_ready", "straggler", "stuck", "submitted", "summary", "training",
];
const SAVES = ["checkpoint", "checkpoints_removed"];  // of a run that saves often, most of all
const SCOPES = [["", "both scopes"], ["run", "run"], ["instance", "instance"]];

export function Events({ state }) {
  const { events, older, loadOlder } = state;
  const [scope, setScope] = useState("");
  const [kind, setKind] = useState("");
  const [search, setSearch] = useState("");
  const [saves, setSaves] = useState(true);
  const [shown, setShown] = useState(PAGE);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const words = search.trim().toLowerCase();
  const hides = !saves && !SAVES.includes(kind);  // whoever asks for that kind means it
  const filtered = Boolean(words || scope || kind || hides);
  const earlier = useEarlier(state, { search: search.trim() || undefined, scope: scope || undefined, kind: kind || undefined,
    without: hides ? SAVES : undefined }, filtered);
  const { found } = earlier;
  const deeper = filtered ? earlier.more : older;  // the server has more of what is wanted
  const kinds = useMemo(() => [...new Set([...KINDS, ...events.map((event) => event.kind)])].sort(), [events]);
  const rows = useMemo(() => {
    const first = events[0]?.seq ?? Infinity;
    const all = filtered ? [...found.filter((event) => event.seq < first), ...events] : events;
    const fits = (event) => (!scope || event.scope === scope) && (!kind || event.kind === kind)
      && !(hides && SAVES.includes(event.kind))
      && (!words || `${event.text} ${event.kind} ${event.actor}`.toLowerCase().includes(words));
    return all.filter(fits).reverse();
  }, [events, found, scope, kind, words, hides]);
  // The same object as before where nothing has changed: a progress message leaves the table alone.
  const body = useMemo(
    () => html`<tbody>${rows.slice(0, shown).map((event) => html`<${Row} key=${event.seq} event=${event} />`)}</tbody>`, [rows, shown],
  );
  const more = async () => {
    if (rows.length > shown) return setShown(shown + PAGE);
    setBusy(true);
    try {
      await (filtered ? earlier.load() : loadOlder());
      setShown(shown + PAGE);
      setProblem(null);
    } catch (error) {
      setProblem(error);
    } finally {
      setBusy(false);
    }
    return undefined;
  };
  const select = (set) => (event) => {
    set(event.target.value);
    setShown(PAGE);
  };
  return html`<section aria-labelledby="events-title" class="events">
    <h2 id="events-title" class="visually-hidden">Events</h2>
    <form class="event-filter" role="search" onSubmit=${(event) => event.preventDefault()}>
      <${Field} label="Search"><input type="search" value=${search} placeholder="text, kind or actor" onInput=${select(setSearch)} /><//>
      <${Field} label="Scope"><select value=${scope} onChange=${select(setScope)}>${SCOPES.map(([id, label]) => html`<option
        key=${id} value=${id}>${label}</option>`)}</select><//>
      <${Field} label="Kind"><select value=${kind} onChange=${select(setKind)}><option value="">every kind</option>${kinds.map(
        (one) => html`<option key=${one} value=${one}>${one.replaceAll("_", " ")}</option>`)}</select><//>
      <label class="row small"><input type="checkbox" checked=${!saves} onChange=${(event) => setSaves(!event.target.checked)} /> Without checkpoints</label>
      <p class="event-count muted small">${count(rows.length)}${deeper ? "+" : ""} ${rows.length === 1 ? "event" : "events"}</p>
    </form>
    <${ProblemBox} problem=${problem ?? earlier.problem} />
    ${rows.length === 0 ? html`<${Empty} title=${earlier.busy ? "Looking …" : "No such event"}>${earlier.busy ? "" : "Nothing matches the filter."}<//>`
      : html`<div class="scroll" tabindex="0" role="region" aria-label="Events, newest first"><table class="table event-table">
        <thead><tr><th scope="col">time</th><th scope="col">kind</th><th scope="col">what happened</th><th scope="col">by</th>
          <th scope="col">where</th></tr></thead>
        ${body}
      </table></div>`}
    ${(rows.length > shown || deeper) && html`<p class="more"><${Button} busy=${busy} onClick=${more}>${
      rows.length > shown ? `Show ${count(Math.min(PAGE, rows.length - shown))} more` : "Load older events"}<//></p>`}
  </section>`;
}

function Row({ event }) {
  return html`<tr class="event is-${event.scope}">
    <td class="number"><time datetime=${event.at} title=${event.at}><span class="faint">${day(event.at)}</span> ${clock(event.at)}</time></td>
    <td><span class="kind">${event.kind.replaceAll("_", " ")}</span></td>
    <td class="event-text">${withTimes(event.text)}</td>
    <td class="nowrap">${event.actor}</td>
    <td class="nowrap faint">${event.phase ?? event.scope}${event.attempt ? ` · attempt ${event.attempt}` : ""}</td></tr>`;
}

const NONE = { found: [], more: false, busy: false, problem: null };

/** A filter goes over all events, not only over those that the page has: the server is asked for what is before them. */
function useEarlier({ run, events, older }, query, filtered) {
  const [state, setState] = useState(NONE);
  const key = JSON.stringify([query, filtered && older]);
  const first = events[0]?.seq;
  const ask = async (before) => {
    const page = await api.get(`/runs/${encodeURIComponent(run.id)}/events`, { ...query, before, newest: true, limit: FOUND });
    return { page, more: page.length === FOUND };
  };
  useEffect(() => {
    let current = true;
    if (!filtered || !older) {
      setState(NONE);
      return undefined;
    }
    setState({ ...NONE, busy: true });
    const timer = setTimeout(() => ask(first).then(
      ({ page, more }) => current && setState({ ...NONE, found: page, more }),
      (problem) => current && setState({ ...NONE, problem }),
    ), query.search ? TYPING : 0);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [run.id, key]);
  const load = async () => {
    const { page, more } = await ask(state.found[0]?.seq ?? first);
    setState((before) => ({ ...before, found: [...page.filter((event) => event.seq < (before.found[0]?.seq ?? Infinity)), ...before.found], more }));
  };
  return { ...state, load };
}
