// The verbs, when they are there: loaded beside the page, which is complete without them.
import { useModule } from "../modules.js";

export function useActions() {
  return useModule("./actions/index.js")[0];  // without them the buttons stay disabled
}
