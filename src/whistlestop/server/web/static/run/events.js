// What happened, by whom, in both scopes. The newest first; older ones when asked for.
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { clock, day } from "../format.js";
import { Button, Empty, Field, ProblemBox } from "../ui/index.js";
import { count } from "./words.js";

const PAGE = 200;  // rows drawn at first, and each time more are asked for
const SCOPES = [["", "both scopes"], ["run", "run"], ["instance", "instance"]];

export function Events({ state }) {
  const { events, older, loadOlder } = state;
  const [scope, setScope] = useState("");
  const [kind, setKind] = useState("");
  const [search, setSearch] = useState("");
  const [shown, setShown] = useState(PAGE);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const found = useEarlier(search, scope, state);
  const words = search.trim().toLowerCase();
  const kinds = useMemo(() => [...new Set(events.map((event) => event.kind))].sort(), [events]);
  const rows = useMemo(() => {
    const first = events[0]?.seq ?? Infinity;
    const all = words ? [...found.filter((event) => event.seq < first), ...events] : events;
    const fits = (event) => (!scope || event.scope === scope) && (!kind || event.kind === kind)
      && (!words || `${event.text} ${event.kind} ${event.actor}`.toLowerCase().includes(words));
    return all.filter(fits).reverse();
  }, [events, found, scope, kind, words]);
  // The same object as before where nothing has changed: a progress message leaves the table alone.
  const body = useMemo(
    () => html`<tbody>${rows.slice(0, shown).map((event) => html`<${Row} key=${event.seq} event=${event} />`)}</tbody>`, [rows, shown],
  );
  const more = async () => {
    if (rows.length > shown) return setShown(shown + PAGE);
    setBusy(true);
    try {
      await loadOlder();
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
      <p class="event-count muted small">${count(rows.length)}${older && !words ? "+" : ""} ${rows.length === 1 ? "event" : "events"}</p>
    </form>
    <${ProblemBox} problem=${problem} />
    ${rows.length === 0 ? html`<${Empty} title="No such event">Nothing matches the filter.<//>`
      : html`<div class="scroll" tabindex="0" role="region" aria-label="Events, newest first"><table class="table event-table">
        <thead><tr><th scope="col">time</th><th scope="col">kind</th><th scope="col">what happened</th><th scope="col">by</th>
          <th scope="col">where</th></tr></thead>
        ${body}
      </table></div>`}
    ${(rows.length > shown || older) && html`<p class="more"><${Button} busy=${busy} onClick=${more}>${
      rows.length > shown ? `Show ${count(Math.min(PAGE, rows.length - shown))} more` : "Load older events"}<//></p>`}
  </section>`;
}

function Row({ event }) {
  return html`<tr class="event is-${event.scope}">
    <td class="number"><time datetime=${event.at} title=${event.at}><span class="faint">${day(event.at)}</span> ${clock(event.at)}</time></td>
    <td><span class="kind">${event.kind.replaceAll("_", " ")}</span></td>
    <td class="event-text">${event.text}</td>
    <td class="nowrap">${event.actor}</td>
    <td class="nowrap faint">${event.phase ?? event.scope}${event.attempt ? ` · attempt ${event.attempt}` : ""}</td></tr>`;
}

/** A search goes over all events, not only over those that the page has. */
function useEarlier(search, scope, { older, loadOlder }) {
  const [found, setFound] = useState([]);
  const asked = useRef(0);
  useEffect(() => {
    const words = search.trim();
    setFound([]);
    if (!words || !older) return undefined;
    const mine = (asked.current += 1);
    const timer = setTimeout(() => {
      loadOlder(words, scope).then((events) => mine === asked.current && setFound(events), () => {});
    }, 250);
    return () => clearTimeout(timer);
  }, [search, scope, older]);
  return found;
}
