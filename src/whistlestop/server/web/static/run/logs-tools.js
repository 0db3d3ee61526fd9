// The log's settings: which attempt, which level, what is searched for. All but the time stamps are in the address.
import { html, useEffect, useRef, useState } from "../lib.js";
import { setQuery } from "../route.js";
import { Icon } from "../ui/index.js";

const TYPING = 250;  // milliseconds without a letter before a search begins

export function LogTools({ run, sizes, attempt, search, level, only, times, setTimes, scan, hits, current, step }) {
  const [text, setText] = useState(search);
  const timer = useRef(null);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {  // the address may change without the box: by the tab, or by going back
    if (timer.current === null) setText(search);
  }, [search]);
  const find = (value) => setQuery({ find: value || null, only: value && only ? "1" : null });
  const type = (event) => {
    const typed = event.target.value;
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      timer.current = null;
      find(typed);
    }, TYPING);
  };
  const key = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    clearTimeout(timer.current);
    timer.current = null;
    if (text !== search) find(text);
    if (text) step(event.shiftKey ? -1 : 1, text);
  };
  const raw = `/api/v1/runs/${encodeURIComponent(run.id)}/logs/raw${attempt ? `?attempt=${attempt}` : ""}`;
  return html`<div class="log-tools" role="group" aria-label="What is shown of the log">
    <div class="log-search">
      <input type="search" placeholder="Search the log" aria-label="Search the log: plain text, any case" value=${text}
        onInput=${type} onKeyDown=${key} />
      <button type="button" class="button is-plain is-icon" aria-label="Previous match" title="Previous match (Shift+Enter)"
        disabled=${!hits} onClick=${() => step(-1)}><${Icon} name="up" /></button>
      <button type="button" class="button is-plain is-icon" aria-label="Next match" title="Next match (Enter)"
        disabled=${!hits} onClick=${() => step(1)}><${Icon} name="down" /></button>
      <span class="log-hits number" role="status">${search && scan
        ? `${current >= 0 ? `${(current + 1).toLocaleString("en-US")} of ` : ""}${hits.toLocaleString("en-US")}${scan.full ? "+" : ""} ${hits === 1 ? "match" : "matches"}${scan.busy ? " …" : ""}` : ""}</span>
    </div>
    <label class="tool"><input type="checkbox" checked=${only} disabled=${!search}
      onChange=${(event) => setQuery({ only: event.target.checked ? "1" : null })} /> Only matches</label>
    <label class="tool">Level <select value=${level ?? ""} onChange=${(event) => setQuery({ level: event.target.value || null })}>
      <option value="">all</option><option value="info">info and above</option>
      <option value="warning">warnings and errors</option><option value="error">errors</option></select></label>
    ${(sizes.length > 1 || attempt) && html`<label class="tool">Attempt
      <select value=${attempt ? String(attempt) : ""} onChange=${(event) => setQuery({ attempt: event.target.value || null })}>
        <option value="">all</option>
        ${sizes.map((size) => html`<option key=${size.attempt} value=${String(size.attempt)}
          >${size.attempt}: ${size.phase}, ${size.lines.toLocaleString("en-US")} lines</option>`)}</select></label>`}
    <label class="tool"><input type="checkbox" checked=${times}
      onChange=${(event) => setTimes(event.target.checked)} /> Times</label>
    <a class="button is-quiet push" href=${raw} download><${Icon} name="download" />Download</a>
  </div>`;
}
