// Modules that are loaded when they are first needed. A browser remembers for the life of a page that one could not be had,
// so it is imported only after the server has answered for it, and after a failure under another address.
import { readProblem } from "./api.js";
import { AWAY } from "./asking.js";
import { useEffect, useState } from "./lib.js";

const SHARED = "./actions/";  // pages import it, too: under another address it would be there twice
const found = new Map();  // path -> its module
const asked = new Map();  // path -> the try that is under way
const failures = new Map();

/** Whoever has it once has it for good, and two who ask at once share one try. `path` is as seen from here. */
function load(path) {
  if (!asked.has(path)) asked.set(path, attempt(path).finally(() => asked.delete(path)));
  return asked.get(path);
}

async function attempt(path) {
  if (found.has(path)) return;
  const address = new URL(path, import.meta.url).href;
  const answer = await fetch(address);  // kept by the browser: the import takes it from there
  if (!answer.ok) throw await readProblem(answer);
  const failed = failures.get(path) ?? 0;
  failures.set(path, failed + 1);
  found.set(path, await import(failed && !path.startsWith(SHARED) ? `${address}?again=${failed}` : address));
  failures.set(path, failed);
}

/** `[module, problem]`, null until known. It is asked for until it comes: the server may be away for a moment. */
export function useModule(path) {
  const [state, setState] = useState({ path, problem: null });
  const module = found.get(path) ?? null;
  useEffect(() => {
    let gone = false;
    let timer = null;
    const ask = () => load(path).then(
      () => gone || setState({ path, problem: null }),
      (problem) => {
        if (gone) return;
        setState({ path, problem });
        timer = setTimeout(ask, AWAY);
      },
    );
    if (module === null) ask();  // as it was seen then: it may have come meanwhile, and nothing would show it
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [path]);
  return [module, state.path === path ? state.problem : null];
}

/** Before they are needed, when there is nothing else to do: then a server that is away is not missed. */
export function preload(paths) {
  const idle = globalThis.requestIdleCallback ?? ((act) => setTimeout(act, 1000));
  idle(async () => {
    for (const path of paths) await load(path).catch(() => {});
  });
}
