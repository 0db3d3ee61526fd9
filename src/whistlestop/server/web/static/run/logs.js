// The log of a run: live at its end, searched as a whole, a million lines without a stutter.
import { isAway } from "../api.js";
import { clock, day } from "../format.js";
import { html, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "../lib.js";
import { setQuery } from "../route.js";
import { Empty, ProblemBox, Spinner } from "../ui/index.js";
import { copy } from "./copying.js";
import { ROW, VirtualList } from "./logs-list.js";
import { LogScan } from "./logs-scan.js";
import { LogStore } from "./logs-store.js";
import { marked, plain } from "./logs-text.js";
import { LogTools } from "./logs-tools.js";

const LETTER = 7.3;  // pixels
const BESIDE = 190;  // pixels that number, time and level take; what does not fit beside them can be opened
const CUT = 2000;  // letters of a line that are put into its row
const GROWN = 700;  // milliseconds between two looks at what has grown

/** `hear` of run/state.js tells the store what is printed. */
export function Logs({ run, query, hear }) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  const store = useMemo(() => new LogStore(run.id, redraw), [run.id]);
  useEffect(() => {
    const leave = hear(store);
    return () => {
      leave();
      store.close();
    };
  }, [store]);
  const attempt = Number(query.attempt) || null;
  const search = typeof query.find === "string" ? query.find : "";
  const level = ["info", "warning", "error"].includes(query.level) ? query.level : null;
  const only = query.only === "1" && Boolean(search);
  const [times, setTimes] = useTimes();
  const [follow, setFollow] = useState(true);
  const [opened, setOpened] = useState(null);
  const [chosen, setChosen] = useState(null);  // the line of the match that was jumped to
  const wish = useRef(null);  // a jump that was asked for before there was a match
  const list = useRef(null);
  const frame = useRef(null);

  const sizes = store.sizes.filter((size) => !attempt || size.attempt === attempt);
  const total = sizes.reduce((sum, size) => sum + size.lines, 0);
  const scan = useScan(run.id, { grep: search || undefined, level: level ?? undefined, attempt: attempt ?? undefined }, total);
  const filtered = Boolean(level || only);
  const hits = search && scan ? scan.lines : [];
  const current = chosen ? hits.indexOf(chosen) : -1;
  const count = filtered ? scan?.lines.length ?? 0 : total;
  const lineAt = (index) => (filtered ? scan.lines[index] : numbered(store, sizes, index));
  const placeOf = (hit) => (filtered ? hit : indexOf(sizes, hits[hit]));  // the row in which a match is shown

  /** To the next match, or as soon as there is one: `text` may be searched for only now. */
  const step = (direction, text = search) => {
    const ready = text === search && scan;
    const beyond = ready && current === 0 && direction < 0 && scan.full;  // there are older ones: they are looked for
    if (!ready || !hits.length || beyond) {
      wish.current = { direction, text };
      if (beyond) scan.before();
      return;
    }
    wish.current = null;
    const next = current < 0 ? nearestHit(hits.length, placeOf, list.current?.top() ?? 0, direction)
      : (current + direction + hits.length) % hits.length;
    setChosen(hits[next]);
    setFollow(false);
    list.current?.to(placeOf(next));
  };
  useEffect(() => setChosen(null), [search, level, attempt]);
  useEffect(() => {
    const { direction, text } = wish.current ?? {};
    if (text && text === search && hits.length && !(current === 0 && direction < 0 && scan.full)) step(direction);
  }, [search, scan, hits.length]);
  const placed = useRef({ scan: null, older: 0 });
  useLayoutEffect(() => {  // older ones came in above: what is in sight stays where it is
    const added = placed.current.scan === scan ? (scan?.older ?? 0) - placed.current.older : 0;
    placed.current = { scan, older: scan?.older ?? 0 };
    if (!filtered || follow || added <= 0 || !list.current) return;
    const seen = (frame.current?.querySelector(".log-box")?.clientHeight ?? 0) / ROW;
    list.current.to(list.current.top() + added + (seen - 1) / 2);
  });

  const several = sizes.length > 1;
  const hit = hits[current];
  const row = (index, width) => html`<${Row} line=${lineAt(index)} fits=${(width - BESIDE) / LETTER} number=${filtered ? null : index} times=${times} several=${several}
    ranks=${store.ranks.size > 0} search=${search} onOpen=${setOpened}
    current=${hit !== undefined && same(lineAt(index), hit)} />`;
  const dropped = sizes.reduce((sum, size) => sum + size.dropped, 0);

  return html`<section class="logs" aria-labelledby="logs-title">
    <h2 id="logs-title" class="visually-hidden">Logs</h2>
    <${LogTools} run=${run} sizes=${store.sizes} attempt=${attempt} search=${search} level=${level} only=${only}
      times=${times} setTimes=${setTimes} scan=${search || level ? scan : null} hits=${hits.length} current=${current} step=${step} />
    <${ProblemBox} problem=${store.problem ?? scan?.problem} />
    ${!store.ready && !store.problem && html`<${Spinner} label="Loading the log" />`}
    ${store.ready && !count && html`<${Nothing} filtered=${filtered} busy=${scan?.busy} run=${run} />`}
    ${count > 0 && html`<div class="log-frame" ref=${frame}>
      <${VirtualList} count=${count} row=${row} follow=${follow} onFollow=${setFollow} handle=${list}
        label="Log of run #${run.number}, ${count.toLocaleString("en-US")} lines" />
      ${!follow && html`<button type="button" class="button is-primary log-newest"
        onClick=${() => { setFollow(true); list.current?.end(); }}>Jump to newest</button>`}
    </div>`}
    ${opened && html`<${Opened} line=${opened} search=${search} onClose=${() => setOpened(null)} />`}
    <p class="log-foot"><span class="number">${count.toLocaleString("en-US")} lines</span>
      ${follow && running(run) && html`<span>following the end</span>`}
      ${scan && !scan.busy && scan.full && html`<span>the newest ${scan.lines.length.toLocaleString("en-US")} that match</span>
        <button type="button" class="link-button" onClick=${() => scan.before()}>Look for older ones</button>`}
      ${scan?.busy && html`<span>looking …</span>`}
      ${dropped > 0 && html`<span>${dropped.toLocaleString("en-US")} lines were cut by the log limit</span>`}</p>
  </section>`;
}

const running = (run) => ["starting", "running"].includes(run.status);

function Row({ line, fits, number, times, several, ranks, search, onOpen, current }) {
  if (!line) return html`<div class="log-row is-missing"><span class="log-number">${number === null ? "" : "·"}</span></div>`;
  const text = line.text.length > CUT ? line.text.slice(0, CUT) : line.text;
  const mark = { warning: "W", error: "E" }[line.level] ?? "";
  return html`<div class="log-row is-${line.level} ${line.stream === "sys" ? "is-sys" : ""} ${current ? "is-current" : ""}">
    <span class="log-number">${several && html`<span class="log-attempt" title="attempt ${line.attempt}">${line.attempt}·</span>`}${line.line}</span>
    ${times && html`<time class="log-time" dateTime=${line.at} title="${day(line.at)} ${clock(line.at)}">${clock(line.at)}</time>`}
    ${ranks && html`<span class="log-rank" title="rank ${line.rank}">r${line.rank}</span>`}
    <span class="log-level" title=${line.level}>${mark}${mark && html`<span class="visually-hidden"> ${line.level}: </span>`}</span>
    <span class="log-text"><${Text} text=${text} search=${search} /></span>
    ${line.text.length > fits && html`<button type="button" class="log-open" onClick=${() => onOpen(line)}
      aria-label="Show all of line ${line.line}">show all</button>`}
  </div>`;
}

function Text({ text, search }) {
  return marked(text, search).map((piece, at) => (piece.hit
    ? html`<mark key=${at} class=${piece.look}>${piece.text}</mark>`
    : html`<span key=${at} class=${piece.look}>${piece.text}</span>`));
}

function Opened({ line, search, onClose }) {
  return html`<div class="log-opened card">
    <div class="card-head"><h3>Line ${line.line} of attempt ${line.attempt}</h3>
      <span class="muted small">${line.text.length.toLocaleString("en-US")} letters</span>
      <span class="push row">
        <button type="button" class="button is-plain is-small" onClick=${() => copy(plain(line.text), `Line ${line.line} is copied.`)}>Copy</button>
        <button type="button" class="button is-plain is-small" onClick=${onClose}>Close</button></span></div>
    <pre tabindex="0"><${Text} text=${line.text} search=${search} /></pre>
  </div>`;
}

function Nothing({ filtered, busy, run }) {
  if (filtered) return html`<${Empty} title=${busy ? "Looking …" : "No line matches"}>${busy ? "" : "Try other words, or a lower level."}<//>`;
  const text = running(run) ? "What the program prints appears here as it comes." : "The program has printed nothing.";
  return html`<${Empty} title="No lines yet">${text}<//>`;
}

/** A search through the whole log, begun anew when its words change, and continued when the log grows. */
function useScan(run, query, total) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  const scan = useRef(null);
  const key = JSON.stringify([run, query]);
  const wanted = Boolean(query.grep || query.level);
  useEffect(() => {
    const mine = wanted ? new LogScan(run, query, redraw) : null;
    scan.current = { key, scan: mine };
    redraw();
    return () => mine?.close();
  }, [key]);
  const grown = useRef(total);
  grown.current = total;
  useEffect(() => {
    if (!wanted) return undefined;
    let looked = grown.current;
    const timer = setInterval(() => {
      const cut = scan.current?.scan?.problem;
      if ((grown.current !== looked || (cut && isAway(cut))) && scan.current?.scan?.more()) looked = grown.current;
    }, GROWN);
    return () => clearInterval(timer);
  }, [key]);
  return wanted && scan.current?.key === key ? scan.current.scan : null;  // not that of other words
}

function useTimes() {
  const [times, set] = useState(() => {
    try {
      return localStorage.getItem("whistle.logs.times") !== "no";
    } catch {
      return true;
    }
  });
  return [times, (on) => {
    set(on);
    try {
      localStorage.setItem("whistle.logs.times", on ? "yes" : "no");
    } catch {
      // Private windows may refuse: then it holds until the page is left.
    }
  }];
}

/** Attempts one after the other: the row's number → the line. */
function numbered(store, sizes, index) {
  let rest = index;
  for (const size of sizes) {
    if (rest < size.lines) return store.line(size.attempt, rest + 1);
    rest -= size.lines;
  }
  return undefined;
}

function indexOf(sizes, line) {
  let before = 0;
  for (const size of sizes) {
    if (size.attempt === line.attempt) return before + line.line - 1;
    before += size.lines;
  }
  return 0;
}

/** The first match below the top of what is seen, or the last one above it; the nearest where there is none. */
function nearestHit(count, placeOf, top, direction) {
  let after = 0;
  while (after < count && placeOf(after) < top) after++;
  return direction > 0 ? Math.min(after, count - 1) : (after - 1 + count) % count;
}

const same = (one, other) => one && one.attempt === other.attempt && one.line === other.line;
