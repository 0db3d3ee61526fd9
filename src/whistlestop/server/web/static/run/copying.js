// To the clipboard, with a word about it. Without HTTPS the browser has no clipboard for pages but the old command.
import { toast } from "../ui/index.js";

export async function copy(text, done) {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else byCommand(text);
    toast(done);
  } catch {
    toast("The browser does not allow it: select the text instead.", { kind: "problem" });
  }
}

function byCommand(text) {
  const before = document.activeElement;
  const area = document.createElement("textarea");
  area.className = "visually-hidden";
  area.value = text;
  document.body.append(area);
  try {
    area.select();
    if (!document.execCommand("copy")) throw new Error("refused");
  } finally {
    area.remove();
    before?.focus();
  }
}
