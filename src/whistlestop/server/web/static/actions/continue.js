// A new run that goes on from a checkpoint of this one.
import { html, useMemo, useState } from "../lib.js";
import { useAnswer } from "../answer.js";
import { api } from "../api.js";
import { bytes, number } from "../format.js";
import { navigate } from "../route.js";
import { Ago, Button, Dialog, Empty, ProblemBox, Spinner } from "../ui/index.js";
import { useKeyed } from "./keys.js";
import { changesOf, SetField } from "./rerun.js";
import { Footer, NoteField, opened, pathOf, useAsking } from "./state.js";

/** `checkpoint`: the one that is meant, unless another one is chosen. */
export function ContinueDialog({ run, checkpoint, close }) {
  const [all, failed] = useAnswer(`${pathOf(run)}/checkpoints`);
  const found = useMemo(() => all && [...all].sort(newestFirst), [all]);
  const [wanted, setChosen] = useState(checkpoint?.id ?? null);
  const chosen = wanted ?? (found?.find((each) => each.healthy && each.verified) ?? found?.[0])?.id ?? null;
  const [note, setNote] = useState("");
  const [set, setSet] = useState("");
  const keyed = useKeyed();
  const { busy, problem, act } = useAsking(close);
  const one = found?.find((each) => each.id === chosen);
  const go = () => act(async () => {
    const made = await api.post(`${pathOf(run)}/continue`, keyed({ checkpoint: one.id, note, set: changesOf(set) }));
    return { ...made, text: `run #${made.number} continues #${run.number} from step ${one.step.toLocaleString("en-US")} of ${one.phase}` };
  }, (made) => navigate(`/runs/${made.id}`));
  const none = found?.length === 0;
  const footer = none ? html`<${Button} onClick=${close}>Back<//>
      <${Button} kind="primary" onClick=${() => opened.set({ verb: "rerun", run, phase: null, key: {} })}>Run again…<//>`
    : html`<${Footer} close=${close} confirm=${one ? `Continue from step ${one.step.toLocaleString("en-US")}` : "Continue"}
    busy=${busy} disabled=${!one} onConfirm=${go} />`;
  return html`<${Dialog} wide title=${`Continue #${run.number} ${run.name}`} onClose=${close} footer=${footer}>
    <p>A new run begins with the same code at the chosen checkpoint. This run stays as it is, and the new one names it as its parent.</p>
    <${ProblemBox} problem=${problem ?? failed} />
    ${!found && !failed && html`<${Spinner} label="Looking for checkpoints" />`}
    ${none && html`<${Empty} title="It has no committed checkpoint">Nothing to continue from. “Run again” starts at step 0.<//>`}
    ${found && found.length > 0 && html`<div class="scroll pick-box" tabindex="0" role="region" aria-label="Checkpoints"><table class="table pick">
      <caption class="visually-hidden">Checkpoints of ${run.name}, newest first</caption>
      <thead><tr><td></td><th scope="col">Phase</th><th scope="col" class="is-number">Step</th><th scope="col">Saved</th>
        <th scope="col" class="is-number">Size</th><th scope="col">Metrics</th></tr></thead>
      <tbody>${found.map((each) => html`<tr key=${each.id} class=${each.id === chosen ? "is-chosen" : ""} onClick=${() => setChosen(each.id)}>
        <td><input type="radio" name="checkpoint" checked=${each.id === chosen} onChange=${() => setChosen(each.id)}
          aria-label=${`step ${each.step} of ${each.phase}`} /></td>
        <td>${each.phase}</td><td class="is-number">${each.step.toLocaleString("en-US")}</td><td><${Ago} at=${each.committed_at} /></td>
        <td class="is-number">${bytes(each.bytes)}</td>
        <td>${!each.healthy && html`<span class="tag is-failed">training had gone wrong</span> `}${
          !each.verified && html`<span class="tag is-failed">damaged</span> `}${each.pinned && html`<span class="tag">pinned</span> `}
          <span class="muted small">${metrics(each.metrics)}</span></td></tr>`)}</tbody></table></div>`}
    ${!none && html`<${SetField} value=${set} onInput=${setSet} /><${NoteField} value=${note} onInput=${setNote} />`}
  <//>`;
}

function newestFirst(one, other) {
  return one.committed_at === other.committed_at ? other.step - one.step : one.committed_at < other.committed_at ? 1 : -1;
}

function metrics(all) {
  return Object.entries(all ?? {}).slice(0, 3).map(([name, value]) => `${name} ${typeof value === "number" ? number(value) : value}`).join(", ");
}
