// The lines of a run's log by number: fetched in pages around what is seen, kept in a bounded cache, grown by the stream.
import { api } from "../api.js";
import { follow } from "../live.js";

const PAGE = 500;  // lines
const PAGES = 60;  // in memory; a million lines are never all here
const AGAIN = 1000;  // milliseconds after which a page that could not be fetched is asked for again

export class LogStore {
  sizes = [];  // [{attempt, phase, lines, dropped}]
  ready = false;
  ranks = new Set();
  problem = null;
  #pages = new Map();  // "attempt:page" -> {lines, busy, failed}
  #run;
  #changed;
  #frame = 0;
  #closed = false;
  #close;

  constructor(run, changed) {
    this.#run = `/runs/${encodeURIComponent(run)}`;
    this.#changed = changed;
    this.#close = follow(`${this.#run}/stream`, {
      query: { topics: "logs", logs_from: "end" },
      on: { log: (line) => this.#grow(line), end: () => this.#measure() },
      // After the stream stands: what came before it is counted, what comes after it is told.
      onState: (state) => { if (state === "live") this.#measure(); },
    });
  }

  close() {
    this.#closed = true;
    this.#close();
    cancelAnimationFrame(this.#frame);
  }

  /** The line, or undefined while it is not here; then its page is on the way. */
  line(attempt, number) {
    const page = this.#page(attempt, Math.floor((number - 1) / PAGE));
    return page.lines[(number - 1) % PAGE];
  }

  #page(attempt, index) {
    const key = `${attempt}:${index}`;
    let page = this.#pages.get(key);
    if (page) this.#pages.delete(key);
    else page = { lines: [], busy: false, failed: 0 };
    this.#pages.set(key, page);  // newest last
    for (const old of this.#pages.keys()) {
      if (this.#pages.size <= PAGES) break;
      this.#pages.delete(old);
    }
    const size = this.sizes.find((one) => one.attempt === attempt)?.lines ?? 0;
    const due = Math.min(PAGE, size - index * PAGE);
    if (page.lines.length < due && !page.busy && performance.now() - page.failed > AGAIN) this.#fetch(attempt, index, page);
    return page;
  }

  async #fetch(attempt, index, page) {
    page.busy = true;
    const from = index * PAGE + page.lines.length;
    try {
      const query = { attempt, limit: PAGE - page.lines.length, after: from ? `${attempt}:${from}` : undefined };
      const { lines } = await api.get(`${this.#run}/logs`, query);
      for (const line of lines) this.#put(page, index, line);
      this.problem = null;
    } catch (problem) {
      page.failed = performance.now();
      this.problem = problem;
      setTimeout(() => this.#tell(), AGAIN + 50);
    }
    page.busy = false;
    this.#tell();
  }

  #put(page, index, line) {
    if (line.line - 1 - index * PAGE === page.lines.length) page.lines.push(line);
    if (line.rank) this.ranks.add(line.rank);
  }

  #grow(line) {
    const size = this.#size(line.attempt, line.phase);
    if (line.line > size.lines) size.lines = line.line;
    const index = Math.floor((line.line - 1) / PAGE);
    const key = `${line.attempt}:${index}`;
    if (!this.#pages.has(key) && (line.line - 1) % PAGE === 0) this.#pages.set(key, { lines: [], busy: false, failed: 0 });
    const page = this.#pages.get(key);
    if (page && !page.busy) this.#put(page, index, line);
    this.#tell();
  }

  #size(attempt, phase) {
    let size = this.sizes.find((one) => one.attempt === attempt);
    if (!size) {
      size = { attempt, phase, lines: 0, dropped: 0 };
      this.sizes = [...this.sizes, size].sort((a, b) => a.attempt - b.attempt);
    }
    return size;
  }

  async #measure() {
    try {
      for (const told of await api.get(`${this.#run}/logs/size`)) {
        const size = this.#size(told.attempt, told.phase);
        size.lines = Math.max(size.lines, told.lines);
        size.dropped = told.dropped;
      }
      this.ready = true;
      this.problem = null;
    } catch (problem) {
      this.problem = problem;
    }
    this.#tell();
  }

  /** Once a frame at most, however many lines come. */
  #tell() {
    if (this.#closed || this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#changed();
    });
  }
}
