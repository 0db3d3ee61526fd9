// What people can ask of a run: the menu of what fits its state, and the dialogs that ask before anything is done.
import { html } from "../lib.js";
import { api } from "../api.js";
import { mayAct } from "../me.js";
import { toast } from "../ui/index.js";
import { BulkDialog } from "./bulk.js";
import { DiscardDialog, VerifyDialog } from "./checkpoint.js";
import { ContinueDialog } from "./continue.js";
import { DeleteDialog } from "./delete.js";
import { EndDialog } from "./end.js";
import { RerunDialog } from "./rerun.js";
import { opened, sentence } from "./state.js";
import { ExtendDialog, NoteDialog, ResumeDialog, SaveDialog, SetDialog } from "./steer.js";

const ENDED = new Set(["completed", "failed", "killed"]);
const DIALOGS = {
  stop: EndDialog, pause: EndDialog, kill: EndDialog, cancel: EndDialog, delete: DeleteDialog, resume: ResumeDialog,
  continue: ContinueDialog, rerun: RerunDialog, save: SaveDialog, extend: ExtendDialog, set: SetDialog, note: NoteDialog,
  verify: VerifyDialog, discard: DiscardDialog,
};

/** Items for Menu: what makes sense in this state. A viewer sees them, and why they do nothing. `bare`: there is no checkpoint. */
export function menuFor(run, me, { bare = false } = {}) {
  const act = mayAct(me);
  const item = (verb, label, more = {}) => ({
    label, onSelect: () => openAction(verb, run), ...more,
    ...(act ? {} : { disabled: true, why: "your role only looks" }),
  });
  const over = ENDED.has(run.status);
  const running = run.status === "running";
  const killing = run.requested === "kill" && !over;
  const waits = killing ? { disabled: true, why: "it is being killed" } : {};
  return [
    !over && item("stop", "Stop phase…", waits),
    !over && run.status !== "waiting" && item("pause", "Pause…", run.requested ? { disabled: true, why: "asked already" } : {}),
    run.status === "waiting" && item("resume", "Resume…", waits),
    running && item("save", "Save now…", waits),
    !over && item("extend", "Change the number of steps…", waits),
    running && item("set", "Set a parameter…", waits),
    !bare && item("continue", "Continue from a checkpoint…"),
    item("rerun", "Run again…"),
    item("note", run.note ? "Edit the note…" : "Add a note…"),
    !over && item("kill", "Kill run…", { danger: true, ...waits }),
    !over && item("cancel", "Cancel run…", { danger: true }),
    item("delete", "Delete…", { danger: true, ...(over ? {} : { disabled: true, why: "kill it first" }) }),
  ].filter(Boolean);
}

export { sentence };

let newest = 0;  // of the dialogs that were asked for: an earlier one whose run comes late must not take its place

/** One run, several, or `{bulk: true, runs or filter, total}`: the dialog is shown, it acts, and says what came of it. `after`:
 * called then, by the dialogs of a checkpoint. */
export async function openAction(verb, runs, { phase, param, checkpoint, after } = {}) {
  const mine = (newest += 1);
  if (runs?.bulk) {
    opened.set({ verb, bulk: runs, key: {} });
    return;
  }
  const chosen = [].concat(runs);
  if (chosen.length !== 1) {
    opened.set({ verb, bulk: { runs: chosen.map((run) => run.id ?? run), total: chosen.length }, key: {} });
    return;
  }
  const id = chosen[0].id ?? chosen[0];
  try {
    const run = await api.get(`/runs/${encodeURIComponent(id)}`);
    if (mine === newest) opened.set({ verb, run, phase: phase ?? null, param: param ?? null, checkpoint: checkpoint ?? null, after, key: {} });
  } catch (problem) {
    if (mine === newest) toast(problem.message, { kind: "problem" });
  }
}

/** The host of the dialogs; app.js mounts it once. */
export function Actions() {
  const now = opened.use();
  if (!now) return null;
  const close = () => opened.set(null);
  if (now.bulk) return html`<${BulkDialog} key=${now.key} verb=${now.verb} bulk=${now.bulk} close=${close} />`;
  return html`<${DIALOGS[now.verb]} key=${now.key} verb=${now.verb} run=${now.run} phase=${now.phase} param=${now.param}
    checkpoint=${now.checkpoint} after=${now.after} close=${close} />`;
}
