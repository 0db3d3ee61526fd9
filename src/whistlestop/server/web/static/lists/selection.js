// Which runs are chosen: by click, by shift and click from the one before, all of the page, or all that match.
import { useRef, useState } from "../lib.js";

export function useSelection(runs, filterKey) {
  const [chosen, setChosen] = useState(new Set());
  const [everything, setEverything] = useState(null);  // the filter for which all that match are meant
  const anchor = useRef(null);
  const all = everything === filterKey;
  const present = (runs ?? []).map((run) => run.id);
  const toggle = (id, event) => {
    const next = new Set(all ? present : chosen);
    const on = !next.has(id);
    const from = present.indexOf(anchor.current);
    const to = present.indexOf(id);
    const range = event?.shiftKey && from >= 0 ? present.slice(Math.min(from, to), Math.max(from, to) + 1) : [id];
    for (const one of range) {
      if (on) next.add(one);
      else next.delete(one);
    }
    anchor.current = id;
    setEverything(null);
    setChosen(next);
  };
  const here = present.filter((id) => all || chosen.has(id));
  return {
    has: (id) => all || chosen.has(id),
    ids: all ? null : [...chosen],
    count: chosen.size,
    hidden: all ? 0 : chosen.size - present.filter((id) => chosen.has(id)).length,  // chosen, but not in sight
    everything: all,
    page: present.length > 0 && here.length === present.length ? "all" : here.length ? "some" : "none",
    toggle,
    togglePage: () => {
      setEverything(null);
      const next = new Set(chosen);
      const on = !(present.length && here.length === present.length);
      for (const id of present) {
        if (on) next.add(id);
        else next.delete(id);
      }
      setChosen(all ? new Set() : next);
    },
    chooseEverything: () => setEverything(filterKey),
    dropHidden: () => setChosen((before) => new Set(present.filter((id) => before.has(id)))),
    clear: () => {
      setEverything(null);
      setChosen(new Set());
    },
  };
}
