// Advice in words, for the panel and for the dialogs.
import { credits, length } from "../format.js";

/** By verdict: what it says, the tone it is said in, and an icon. */
export const VERDICTS = {
  kill: ["Kill it", "failed", "square"],
  stop: ["Stop it now, and keep what there is", "waiting", "fast"],
  wait: ["Wait", "completed", "clock"],
  fix_and_continue: ["Fix, and continue from its checkpoint", "waiting", "redo"],
  rerun: ["Fix, and run it again", "waiting", "redo"],
  nothing: ["Nothing to do", "completed", "check"],
};
export const CHOICES = { wait: "Wait", stop: "Stop now", kill: "Kill", continue: "Fix and continue" };

const some = (x) => x !== null && x !== undefined;

/** "12 min (9 min to 20 min)"; in eight of ten runs the truth lies between. */
export function band(told, say) {
  if (!some(told)) return "can't be told";
  const [low, likely, high] = [told.low, told.likely, told.high].map(say);
  return low === high ? likely : `${likely} (${low} to ${high})`;
}

export const time = (told) => (told && !told.high ? "now" : band(told, length));
export const price = (told) => band(told, credits);
export const saves = (value) => (some(value) ? credits(value) : "–");

/** Whether there is anything to say: of a run that is done, or waits and costs nothing, there is not. */
export function speaks(advice) {
  return advice.findings.length > 0 || advice.choices.length > 0 || !["wait", "nothing"].includes(advice.verdict);
}
