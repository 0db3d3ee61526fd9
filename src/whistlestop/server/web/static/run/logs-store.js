// The lines of a run's log by number: fetched in pages around what is seen, kept in a bounded cache, grown by the run's stream.
import { api } from "../api.js";

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

  constructor(run, changed) {
    this.#run = `/runs/${encodeURIComponent(run)}`;
    this.#changed = changed;
  }

  close() {
    this.#closed = true;
    cancelAnimationFrame(this.#frame);
  }

  /** The line, or undefined while it is not here; then its page is on the way. */
  line(attempt, number) {
    const page = this.#page(attempt, Math.floor((number - 1) / PAGE));
    return page.lines[(number - 1) % PAGE];
  }

  #page(attempt, index) {
    const page = this.#kept(`${attempt}:${index}`);
    const size = this.sizes.find((one) => one.attempt === attempt)?.lines ?? 0;
    const due = Math.min(PAGE, size - index * PAGE);
    if (page.lines.length < due && !page.busy && performance.now() - page.failed > AGAIN) this.#fetch(attempt, index, page);
    return page;
  }

  /** The page of that name, from now on the last that is forgotten. */
  #kept(key) {
    const page = this.#pages.get(key) ?? { lines: [], busy: false, failed: 0 };
    this.#pages.delete(key);
    this.#pages.set(key, page);  // newest last
    for (const old of this.#pages.keys()) {
      if (this.#pages.size <= PAGES) break;
      this.#pages.delete(old);
    }
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

  /** A line that the program has just printed. */
  grow(line) {
    const size = this.#size(line.attempt, line.phase);
    if (line.line > size.lines) size.lines = line.line;
    const index = Math.floor((line.line - 1) / PAGE);
    const key = `${line.attempt}:${index}`;
    const page = (line.line - 1) % PAGE === 0 ? this.#kept(key) : this.#pages.get(key);
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

  /** Asks how long the log is now; returns that in the form of the stream's ids, 1:530.2:14. */
  async measure() {
    let all;
    try {
      all = await api.get(`${this.#run}/logs/size`);
      for (const told of all) {
        const size = this.#size(told.attempt, told.phase);
        size.lines = Math.max(size.lines, told.lines);
        size.dropped = told.dropped;
      }
      this.ready = true;
      this.problem = null;
    } catch (problem) {
      this.problem = problem;
      throw problem;
    } finally {
      this.#tell();
    }
    return all.map(({ attempt, lines }) => `${attempt}:${lines}`).join(".");
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
