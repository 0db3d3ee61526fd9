// The verbs, when they are there: loaded beside the page, which is complete without them.
import { useEffect, useState } from "../lib.js";

let found = null;

export function useActions() {
  const [actions, set] = useState(found);
  useEffect(() => {
    if (found) return undefined;
    let gone = false;
    import("../actions/index.js").then(
      (loaded) => {
        found = loaded;
        if (!gone) set(() => loaded);
      },
      () => {},  // without them the buttons stay disabled
    );
    return () => { gone = true; };
  }, []);
  return actions;
}
