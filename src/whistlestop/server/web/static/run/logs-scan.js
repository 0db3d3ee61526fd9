// Looking through a whole log for a text or a level: on the server, page by page, until the end or until it is enough.
import { api } from "../api.js";

const MOST = 20_000;  // lines that are kept; a search that finds more is no search
const PAGE = 2000;

export class LogScan {
  lines = [];
  busy = true;
  full = false;
  problem = null;
  #cursor;
  #closed = false;
  #run;
  #query;
  #changed;

  /** `query`: {grep, level, attempt}; `changed` is called whenever there is more. */
  constructor(run, query, changed) {
    this.#run = run;
    this.#query = query;
    this.#changed = changed;
    this.#look();
  }

  close() {
    this.#closed = true;
  }

  /** The log has grown: go on where the last look ended. */
  more() {
    if (!this.busy && !this.full) this.#look();
  }

  async #look() {
    this.busy = true;
    this.problem = null;
    try {
      for (let more = true; more && !this.#closed; ) {
        const page = await api.get(`/runs/${encodeURIComponent(this.#run)}/logs`, {
          ...this.#query, limit: PAGE, after: this.#cursor || undefined,
        });
        if (this.#closed) return;
        this.#cursor = page.cursor;
        this.lines = page.lines.length ? this.lines.concat(page.lines) : this.lines;
        this.full = this.lines.length >= MOST;
        more = page.more && !this.full;
        if (more) this.#changed();
      }
    } catch (problem) {
      this.problem = problem;
    }
    this.busy = false;
    if (!this.#closed) this.#changed();
  }
}
