// The text is the truth; the form is a view of it. Either may be typed in: the server applies the one to the other and
// judges the whole, a moment after the last letter.
import { useCallback, useEffect, useRef, useState } from "../lib.js";
import { api, isAway } from "../api.js";
import { AWAY } from "../asking.js";
import { change } from "./fields.js";

const SETTLED = 250;  // milliseconds without a letter

export function useSpec(first) {
  const [state, setState] = useState({ text: "", fields: [], problems: [], ok: false, checking: true, values: {}, trouble: null });
  const now = useRef({ text: "", sets: new Map(), asked: 0, timer: null, origin: null, onlySets: true, made: new Map() });

  const check = useCallback(async () => {
    const here = now.current;
    const number = (here.asked += 1);
    const [text, sets] = [here.text, [...here.sets.values()]];
    try {
      const answer = await api.post("/check", { spec: text, set: sets });
      if (number !== now.current.asked) return;
      here.text = answer.spec ?? text;
      // What could not be put into the text stays where it was typed, with its mistake.
      const bad = (path) => answer.fields.some((field) => field.path === path && field.problem);
      const left = answer.spec === text ? [...here.sets].filter(([path]) => bad(path)) : [];
      here.sets = new Map(left);
      setState((before) => ({
        text: here.text, ok: answer.ok, problems: answer.problems, checking: false, trouble: null,
        values: Object.fromEntries(left.map(([path]) => [path, before.values[path]])),
        readable: answer.fields.length > 0, fields: answer.fields.length ? answer.fields : before.fields,
      }));
    } catch (trouble) {
      if (number !== now.current.asked) return;
      if (isAway(trouble)) {  // nobody should have to type a letter for it
        trouble.hint = "It is checked again until the server answers.";
        clearTimeout(here.timer);
        here.timer = setTimeout(check, AWAY);
      }
      setState((before) => ({ ...before, checking: false, ok: false, trouble }));
    }
  }, []);

  const later = useCallback(() => {
    const here = now.current;
    here.asked += 1;  // an answer that is on its way is too old
    clearTimeout(here.timer);
    here.timer = setTimeout(check, SETTLED);
  }, []);

  useEffect(() => {
    if (first === null) return undefined;
    Object.assign(now.current, { text: first, origin: first, onlySets: true });
    now.current.made.clear();
    now.current.sets.clear();
    setState((before) => ({ ...before, text: first, checking: true }));
    check();
    return () => {
      clearTimeout(now.current.timer);
      now.current.asked += 1;  // who has left wants no answer
    };
  }, [first]);

  const write = useCallback((text) => {
    Object.assign(now.current, { text, onlySets: text === now.current.origin });
    now.current.sets.clear();
    if (text === now.current.origin) now.current.made.clear();
    setState((before) => ({ ...before, text, checking: true, values: {} }));
    later();
  }, []);

  const put = useCallback((field, value) => {
    const said = change(field, value);
    now.current.sets.set(field.path, said);
    now.current.made.set(field.path, said);
    setState((before) => ({ ...before, checking: true, values: { ...before.values, [field.path]: value } }));
    later();
  }, []);

  /** The changes to the text that was loaded, if they all came from the form; null if the text was written in. */
  const sets = () => (now.current.onlySets ? [...now.current.made.values()] : null);
  return { ...state, write, put, sets };
}
