// Looking through a whole log for a text or a level, on the server, from its end backwards: what happened last is what one
// looks for. Older lines when they are asked for; what the log grows by, by itself.
import { api } from "../api.js";

const MOST = 20_000;  // lines that are found before somebody has to ask for more
const KEPT = 100_000;  // lines in memory of a log that grows and grows
const FIRST = 2000;  // lines of the log in the first look back
const WIDEST = 50_000;  // the server looks at no more for one answer
const PAGE = 10_000;  // lines in one answer

export class LogScan {
  lines = [];  // in the log's order
  older = 0;  // lines that were put before the others, ever: whoever shows them keeps its place
  busy = true;
  full = false;  // there may be older ones
  problem = null;
  #behind = null;  // [{attempt, line}]: up to there nothing was looked at; the newest attempt last
  #ends = new Map();  // attempt -> its last line that was looked at
  #wanted = MOST;
  #width = FIRST;
  #closed = false;
  #path;
  #query;
  #changed;

  /** `query`: {grep, level, attempt}; `changed` is called whenever there is more. */
  constructor(run, query, changed) {
    this.#path = `/runs/${encodeURIComponent(run)}/logs`;
    this.#query = query;
    this.#changed = changed;
    this.#look();
  }

  close() {
    this.#closed = true;
  }

  /** Further back. */
  before() {
    this.#wanted = this.lines.length + MOST;
    if (!this.busy) this.#look();
  }

  /** The log has grown: go on where the last look ended. False: it is looking already, ask again. */
  more() {
    if (this.busy) return false;
    this.#look();
    return true;
  }

  async #look() {
    this.busy = true;
    this.problem = null;
    try {
      if (this.#behind === null) await this.#measure();
      else await this.#forwards();
      await this.#backwards();
    } catch (problem) {
      this.problem = problem;
    }
    this.busy = false;
    this.#tell();
  }

  async #measure() {
    const sizes = (await api.get(`${this.#path}/size`)).filter(({ attempt }) => !this.#query.attempt || attempt === this.#query.attempt);
    this.#behind = sizes.filter(({ lines }) => lines > 0).map(({ attempt, lines }) => ({ attempt, line: lines }));
    this.#ends = new Map(this.#behind.map(({ attempt, line }) => [attempt, line]));
  }

  async #forwards() {
    for (let more = true; more && !this.#closed; ) {
      const page = await this.#ask({ after: cursorOf(this.#ends), limit: PAGE });
      this.#ends = new Map(page.cursor.split(".").filter(Boolean).map((part) => part.split(":").map(Number)));
      if (page.lines.length) this.lines = this.lines.concat(page.lines);
      if (this.lines.length > KEPT) this.#forget();
      more = page.more;
      if (more) this.#tell();
    }
  }

  async #backwards() {
    while (this.#behind.length && this.lines.length < this.#wanted && !this.#closed) {
      const place = this.#behind[this.#behind.length - 1];
      const from = Math.max(0, place.line - this.#width);
      const found = await this.#between(place.attempt, from, place.line);
      if (this.#closed) return;
      if (found.length) this.lines = found.concat(this.lines);
      this.older += found.length;
      // Where little matches, wider looks; where much does, small ones that are here at once.
      this.#width = found.length * 4 < this.#width ? Math.min(WIDEST, this.#width * 4) : Math.max(FIRST, Math.min(PAGE, this.#width));
      if (from > 0) place.line = from;
      else this.#behind.pop();
      this.full = this.#behind.length > 0;
      this.#tell();
    }
    this.full = this.#behind.length > 0;
  }

  /** What matches of the lines `from + 1` to `to` of an attempt. */
  async #between(attempt, from, to) {
    const found = [];
    for (let at = from; at < to && !this.#closed; ) {
      const page = await this.#ask({ attempt, after: at ? `${attempt}:${at}` : undefined, limit: Math.min(PAGE, to - at) });
      for (const line of page.lines) if (line.line <= to) found.push(line);
      at = page.more ? Number(page.cursor.split(":").pop()) : to;
    }
    return found;
  }

  /** The oldest go, and are behind again. */
  #forget() {
    this.lines = this.lines.slice(-KEPT / 2);
    const first = this.lines[0];
    this.#behind = [...this.#ends].filter(([attempt]) => attempt <= first.attempt).sort(([one], [other]) => one - other)
      .map(([attempt, line]) => ({ attempt, line: attempt === first.attempt ? first.line - 1 : line })).filter(({ line }) => line > 0);
    this.#wanted = 0;
    this.full = this.#behind.length > 0;
  }

  #ask(query) {
    return api.get(this.#path, { ...this.#query, ...query });
  }

  #tell() {
    if (!this.#closed) this.#changed();
  }
}

function cursorOf(ends) {
  return [...ends].map(([attempt, line]) => `${attempt}:${line}`).join(".") || undefined;
}
