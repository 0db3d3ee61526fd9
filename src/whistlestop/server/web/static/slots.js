// A browser has six connections to a server, for all its tabs together. Streams keep four of them at most, those of the
// tabs that were looked at last, so that there is always one for a request. The tabs tell each other by BroadcastChannel,
// which unlike locks is there without HTTPS, too.
import { cell } from "./lib.js";

const MOST = 4;
const SAY = 5000;  // how often a tab says that it is there
const FORGET = 3 * SAY;  // one that was closed in a hurry

const channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("whistlestop-streams");
const tab = Math.random().toString(36).slice(2);
const others = new Map();  // tab -> {at, heard}
const slot = cell(true);
let at = document.hidden ? 0 : Date.now();  // when it was last looked at
let wanted = false;

/** Whether a stream of this tab may stay open. */
export const hasSlot = () => slot.get();

/** Calls back when the slot is lost or had again. */
export const onSlot = slot.listen;

/** Whether this tab has streams that it wants to keep open now. */
export function wantSlot(wants) {
  if (wants === wanted) return;
  wanted = wants;
  say(wants ? "here" : "gone");
  judge();
}

function say(kind) {
  channel?.postMessage({ kind, tab, at });
}

/** Every tab judges for itself, by the same rule. */
function judge() {
  for (const [other, { heard }] of others) {
    if (performance.now() - heard > FORGET) others.delete(other);
  }
  const before = [...others].filter(([other, one]) => one.at > at || (one.at === at && other > tab));
  slot.set(before.length < MOST);
}

channel?.addEventListener("message", ({ data }) => {
  const known = others.has(data.tab);
  if (data.kind === "here") others.set(data.tab, { at: data.at, heard: performance.now() });
  else others.delete(data.tab);
  if (!known && data.kind === "here" && wanted) say("here");  // it has just come: it does not know of us
  judge();
});

function looked() {
  if (document.hidden) return;
  at = Date.now();
  if (wanted) say("here");
  judge();
}

addEventListener("focus", looked);
document.addEventListener("visibilitychange", looked);
addEventListener("pagehide", () => say("gone"));
addEventListener("pageshow", () => wanted && say("here"));
setInterval(() => {
  if (wanted) say("here");
  judge();
}, SAY);
