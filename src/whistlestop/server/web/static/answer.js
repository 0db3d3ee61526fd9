// One question to the server, and its answer as it is shown.
import { api, isAway } from "./api.js";
import { AWAY, hopeful } from "./asking.js";
import { useEffect, useState } from "./lib.js";

/** `[answer, problem]`, both null until one of them is known. A server that is away is asked until it answers. Of what was asked
 * before, another path or query, nothing stays; with another `stamp` the same is asked again. A path of null asks nothing. */
export function useAnswer(path, query, stamp = "") {
  const key = path === null ? null : JSON.stringify([path, query]);
  const [told, setTold] = useState({ key: null, answer: null, problem: null });
  useEffect(() => {
    let gone = false;
    let timer = null;
    const ask = async () => {
      try {
        const answer = await api.get(path, query);
        if (!gone) setTold({ key, answer, problem: null });
      } catch (problem) {
        if (gone) return;
        setTold({ key, answer: null, problem: hopeful(problem) });
        if (isAway(problem)) timer = setTimeout(ask, AWAY);
      }
    };
    if (key !== null) ask();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [key, stamp]);
  return told.key === key ? [told.answer, told.problem] : [null, null];
}
