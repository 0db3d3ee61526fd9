// The lines of the charts in view: asked for together, at the width they are shown, and again when they have grown.
import { api } from "../api.js";
import { keyOf } from "./charts-names.js";

const PACE = 1000;  // milliseconds between two refreshes of what grows
const AT_ONCE = 24;  // names in one request
const KEPT = 200;  // charts whose lines are remembered while they are out of view

export class ChartStore {
  #view = { axis: "step", from: null, to: null };
  #runs = [];  // [{id, zero}], the page's own first
  #shown = new Map();  // key -> {phase, name, width, listener}
  #lines = new Map();  // key -> {view, runs: [{run, lines}], problem}
  #stale = new Set();
  #generation = 0;
  #timer = null;
  #asked = 0;  // when what grows was asked for last
  #busy = false;
  #closed = false;

  /** What is looked at. Lines that are there stay until better ones have come. */
  configure(view, runs) {
    if (JSON.stringify([view, runs]) === JSON.stringify([this.#view, this.#runs])) return;
    this.#view = view;
    this.#runs = runs;
    this.#generation += 1;
    this.#busy = false;
    for (const key of [...this.#lines.keys(), ...this.#shown.keys()]) this.#stale.add(key);
    this.#soon(0);
  }

  /** A chart has come into view. `listener` is called whenever its lines are new. */
  show(phase, name, width, listener) {
    const key = keyOf(phase, name);
    const before = this.#shown.get(key);
    this.#shown.set(key, { phase, name, width, listener });
    const known = this.#lines.get(key);
    if (known) listener(known);
    if (!known || (before ? before.width : known.width) < width) this.#stale.add(key);
    if (this.#stale.has(key)) this.#soon(0);
    return () => {
      if (this.#shown.get(key)?.listener === listener) this.#shown.delete(key);
      this.#forget();
    };
  }

  /** Another run than the page's own may have grown: which of its charts, nobody tells. */
  touchShown() {
    this.touch([...this.#shown.keys()]);
  }

  /** These have grown. */
  touch(keys) {
    let any = false;
    for (const key of keys) {
      this.#stale.add(key);
      any ||= this.#shown.has(key);
    }
    if (any) this.#soon(Math.max(0, this.#asked + PACE - performance.now()));
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer?.id);
  }

  #soon(milliseconds) {
    if (this.#closed || this.#busy) return;
    const at = performance.now() + milliseconds;
    if (this.#timer && this.#timer.at <= at) return;
    clearTimeout(this.#timer?.id);
    this.#timer = { at, id: setTimeout(() => this.#ask(), Math.max(20, milliseconds)) };
  }

  async #ask() {
    this.#timer = null;
    const wanted = [...this.#shown].filter(([key]) => this.#stale.has(key));
    if (!wanted.length || document.hidden) {
      if (wanted.length) this.#soon(PACE);
      return;
    }
    this.#busy = true;
    this.#asked = performance.now();
    const generation = this.#generation;
    const groups = new Map();
    for (const [key, one] of wanted) {
      this.#stale.delete(key);
      const group = groups.get(one.phase) ?? [];
      groups.set(one.phase, [...group, { key, ...one }]);
    }
    const pieces = [...groups].flatMap(([phase, all]) => chunks(all, AT_ONCE).map((some) => ({ phase, some })));
    await Promise.all(pieces.map(({ phase, some }) => this.#fetch(phase, some, generation)));
    if (generation !== this.#generation || this.#closed) return;
    this.#busy = false;
    if ([...this.#shown.keys()].some((key) => this.#stale.has(key))) {
      this.#soon(Math.max(0, this.#asked + PACE - performance.now()));
    }
  }

  async #fetch(phase, some, generation) {
    const { axis, from, to } = this.#view;
    const width = Math.max(...some.map((one) => one.width));
    const names = some.map((one) => one.name);
    const answers = await Promise.all(this.#runs.map(async (run, index) => {
      const zero = axis === "time" ? run.zero : 0;
      const query = {
        name: names, axis: axis === "time" ? "time" : "step", width, phase: index === 0 ? phase : undefined,
        max_age: 1,  // the same answer for all dashboards that ask within this second
        from: from === null ? undefined : whole(axis, from + zero, Math.floor),
        to: to === null ? undefined : whole(axis, to + zero, Math.ceil),
      };
      try {
        return { run, zero, charts: (await api.get(`/runs/${encodeURIComponent(run.id)}/charts`, query)).charts };
      } catch (problem) {
        return { run, zero, charts: [], problem };
      }
    }));
    if (generation !== this.#generation || this.#closed) return;
    for (const one of some) {
      const before = this.#lines.get(one.key);
      const kept = before?.view === this.#view ? before.runs : [];
      const runs = answers.map(({ run, zero, charts, problem }) => {
        // What can't be read now keeps what was read, and says so.
        if (problem && run !== this.#runs[0]) return { lines: [], ...kept.find((other) => other.run === run.id), run: run.id, problem };
        // Another run may call its phase differently: its only chart of that name will do.
        const mine = charts.filter((chart) => chart.name === one.name);
        const chart = mine.find((chart) => chart.phase === phase) ?? (run === this.#runs[0] ? null : mine[0]);
        return { run: run.id, lines: (chart?.lines ?? []).map((line) => shifted(line, zero)) };
      });
      const problem = answers[0].problem ?? null;
      if (answers.some((answer) => answer.problem && answer.problem.status !== 404)) this.#stale.add(one.key);
      const found = problem && before
        ? { ...before, problem } : { view: this.#view, runs, problem, width };
      this.#lines.delete(one.key);
      this.#lines.set(one.key, found);
      this.#shown.get(one.key)?.listener(found);
    }
  }

  #forget() {
    for (const key of this.#lines.keys()) {
      if (this.#lines.size <= KEPT) return;
      if (!this.#shown.has(key)) this.#lines.delete(key);
    }
  }
}

function shifted(line, zero) {
  if (!zero) return line;
  return { ...line, x: line.x.map((x) => x - zero), nonfinite: line.nonfinite.map(([x, kind]) => [x - zero, kind]) };
}

function whole(axis, value, round) {
  return axis === "time" ? value : round(value);
}

function chunks(list, size) {
  return Array.from({ length: Math.ceil(list.length / size) }, (_, at) => list.slice(at * size, (at + 1) * size));
}
