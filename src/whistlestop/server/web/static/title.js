// The document's title follows the page: what it is about, then who we are.
import { useLayoutEffect } from "./lib.js";

export function useTitle(text) {
  useLayoutEffect(() => {
    if (text) document.title = `${text} · Whistlestop`;
  }, [text]);
}
