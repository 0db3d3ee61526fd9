// The idempotency key of a request: the same for the same words, sent again after their answer was lost; another one for others,
// else the server would take them for the first and leave out what was changed.
import { useRef } from "../lib.js";

const newKey = () => Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16)).join("-");

/** `keyed(body)`: the body with its key. */
export function useKeyed() {
  const last = useRef({ text: null, key: null });
  return (body) => {
    const text = JSON.stringify(body);
    if (text !== last.current.text) last.current = { text, key: newKey() };
    return { ...body, key: last.current.key };
  };
}
