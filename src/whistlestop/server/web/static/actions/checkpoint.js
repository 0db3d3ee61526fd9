// One checkpoint: read it back, or remove it. Both say what that means before, and what came of it.
import { html, useEffect, useState } from "../lib.js";
import { api } from "../api.js";
import { bytes, length } from "../format.js";
import { Button, Dialog, Icon, ProblemBox, Spinner } from "../ui/index.js";
import { Footer, pathOf, sentence, useAsking } from "./state.js";

const address = (run, checkpoint) => `${pathOf(run)}/checkpoints/${encodeURIComponent(checkpoint.id)}`;
const named = (checkpoint) => `step ${checkpoint.step.toLocaleString("en-US")} of ${checkpoint.phase}`;

export function VerifyDialog({ run, checkpoint, after, close }) {
  const [said, setSaid] = useState(null);
  const [begun, setBegun] = useState(false);
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    if (!begun) return undefined;
    let gone = false;
    const read = async () => {
      try {
        const path = `${address(run, checkpoint)}/verify`;
        let answer = await api.post(path);
        while (!gone) {
          setSaid(answer);
          if (!answer.reading) {
            after?.();
            return;
          }
          answer = await api.get(path).catch((failed) => {
            if (failed.status === 404) return api.post(path);  // the server was started again, and has forgotten it
            throw failed;
          });
        }
      } catch (refused) {
        if (!gone) {
          setProblem(refused);
          setBegun(false);
        }
      }
    };
    read();
    return () => {
      gone = true;
    };
  }, [begun]);
  const begin = () => {
    setProblem(null);
    setSaid(null);
    setBegun(true);
  };
  const done = said && !said.reading;
  const footer = done ? html`<${Button} kind="primary" onClick=${close}>Close<//>`
    : html`<${Footer} close=${close} confirm="Verify" busy=${begun} onConfirm=${begin} />`;
  return html`<${Dialog} title=${`Verify ${named(checkpoint)}`} onClose=${close} footer=${footer}>
    <p>The server reads all of it back, ${bytes(checkpoint.bytes)}, and compares every file with what was saved. One that is damaged is
      marked, and no run resumes from it.</p>
    <${ProblemBox} problem=${problem} />
    ${begun && !done && html`<${Spinner} label=${said ? `Reading, ${length(said.seconds)} so far; it goes on without this page` : "Reading"} />`}
    ${done && html`<div class="alert is-${said.intact ? "completed" : said.intact === null ? "waiting" : "failed"}" role="status"><${Icon} name=${said.intact ? "check" : "alert"} />
      <p>${sentence(said.text)}</p></div>`}
  <//>`;
}

export function DiscardDialog({ run, checkpoint, after, close }) {
  const { busy, problem, act } = useAsking(close);
  const [meant, setMeant] = useState(false);
  const why = [checkpoint.newest && "the newest: a resume would take it", checkpoint.best && "the best by the metric that the spec names",
    checkpoint.pinned && "pinned"].filter(Boolean);
  const send = () => act(() => api.delete(`${address(run, checkpoint)}${meant ? "?force=true" : ""}`), after);
  return html`<${Dialog} title=${`Remove ${named(checkpoint)}`} tone="danger" onClose=${close} footer=${html`<${Footer} close=${close}
    kind="danger" confirm="Remove" busy=${busy} disabled=${why.length > 0 && !meant} onConfirm=${send} />`}>
    <p class="question">It counts no more: no run resumes or continues from it. For a day it can be brought back, here or
      by <code>whistle checkpoints ${run.number} restore --step ${checkpoint.step}</code>.</p>
    <${ProblemBox} problem=${problem} />
    ${why.length > 0 && html`<p>It is ${why.join(" and ")}.</p>
      <label class="row"><input type="checkbox" checked=${meant} onChange=${(event) => setMeant(event.target.checked)} /> Remove it all the same</label>`}
  <//>`;
}
