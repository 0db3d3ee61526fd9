// Which charts there are, and where they stand: what everybody looks at first, then by prefix, the machine last.

const VALIDATION = /(^|[/_.-])(val|valid|validation|eval|evaluation|test|dev)([/_.-]|$)/i;
const LEADING = [
  { id: "loss", test: (name) => /loss/i.test(name) && !VALIDATION.test(name) },
  { id: "validation", test: (name) => /loss/i.test(name) && VALIDATION.test(name) },
  { id: "rate", test: (name) => /(^|[/_.-])(lr|learning[_-]?rate)([/_.-]|\d*$)/i.test(name) },
  { id: "norm", test: (name) => /grad(ient)?s?[/_.-]?norm/i.test(name) },
];

export const keyOf = (phase, name) => JSON.stringify([phase, name]);

/** Sections in order: {id, title, folded, series: [summary]}. */
export function sectionsOf(series, { phase, search }) {
  const words = (search ?? "").trim().toLowerCase().split(/\s+/).filter(Boolean);
  const shown = series.filter((one) => (!phase || one.phase === phase)
    && words.every((word) => one.name.toLowerCase().includes(word)));
  const sections = new Map();
  const put = (id, title, one, rank = 0, folded = false) => {
    if (!sections.has(id)) sections.set(id, { id, title, folded, series: [] });
    sections.get(id).series.push({ ...one, rank });
  };
  put("leading", "Training", null);
  sections.get("leading").series = [];
  for (const one of shown) {
    if (one.kind === "system") put("system", "System", one, 0, true);
    else if (one.kind === "rank") put("ranks", "Other ranks", one, 0, true);
    else {
      const rank = LEADING.findIndex((lead) => lead.test(one.name));
      const prefix = one.name.includes("/") ? one.name.slice(0, one.name.indexOf("/")) : null;
      if (rank >= 0) put("leading", "Training", one, rank);
      else if (prefix) put(`prefix ${prefix}`, prefix, one);
      else put("logged", "Also logged", one);
    }
  }
  const place = ({ id }) => ({ leading: 0, logged: 1, ranks: 3, system: 4 })[id] ?? 2;
  const found = [...sections.values()].filter((section) => section.series.length);
  for (const section of found) {
    section.series.sort((a, b) => a.rank - b.rank || a.name.localeCompare(b.name) || a.phase.localeCompare(b.phase));
  }
  return found.sort((a, b) => place(a) - place(b) || a.title.localeCompare(b.title));
}

/** The phases that have logged something, in the run's own order. */
export function phasesOf(run, series) {
  const logged = new Set(series.map((one) => one.phase));
  const known = run.phases.map((phase) => phase.name).filter((name) => logged.has(name));
  return [...known, ...[...logged].filter((name) => !known.includes(name))];
}

/** Steps in an epoch of this phase, if its loop has said so. */
export function perEpoch(run, phase) {
  return run.phases.find((one) => one.name === phase)?.progress?.batches || null;
}
