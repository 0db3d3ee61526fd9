// What the run could go on from: every checkpoint with what it took, and what can be done with it.
import { api } from "../api.js";
import { useAsking } from "../asking.js";
import { html, useEffect, useState } from "../lib.js";
import { bytes, number } from "../format.js";
import { mayAct } from "../me.js";
import { Ago, Empty, Menu, ProblemBox, Spinner, toast } from "../ui/index.js";
import { AtRisk, NextSave } from "./risk.js";
import { brief, count, moment, plural, withClocks } from "./words.js";

const RETELLS = new Set([  // events after which the list is another one
  "checkpoint", "checkpoints_removed", "checkpoint_set_aside", "checkpoint_pinned", "checkpoint_unpinned", "checkpoint_removed",
  "checkpoint_restored", "checkpoint_verified", "checkpoint_damaged", "run_killed",
]);
const ENDED = new Set(["completed", "failed", "killed"]);
const PACE = 500;  // milliseconds: a run may save often
const FAILED = 5;  // saves that failed, shown
const METRICS = 3;

export function Checkpoints({ run, told, events, me, actions }) {
  const path = `/runs/${encodeURIComponent(run.id)}`;
  const [found, setFound] = useState(null);
  const [saving, setSaving] = useState([]);
  const [problem, setProblem] = useState(null);
  const [ask, askSoon] = useAsking(async (wanted) => {
    try {
      const [answer, coming] = await Promise.all([api.get(`${path}/checkpoints`, { trashed: true }), api.get(`${path}/saving`)]);
      if (wanted()) {
        setFound(answer);
        setSaving(coming);
        setProblem(null);
      }
    } catch (failed) {
      if (wanted()) setProblem(failed);
      throw failed;
    }
  }, PACE);
  const newest = lastOf(events);
  useEffect(() => {
    ask();
  }, [run.id]);
  const ended = ENDED.has(run.status);  // then no event tells what others do: with the run, the list is looked at again
  const training = run.phases.filter((phase) => phase.at_risk);
  const names = training.map((phase) => phase.name).join();
  useEffect(() => {
    if (newest || ended || names) askSoon();
  }, [newest, ended && told, names]);
  const failed = events.filter((event) => event.kind === "save_failed").slice(-FAILED).reverse();
  return html`<section aria-labelledby="checkpoints-title" class="checkpoints">
    <h2 id="checkpoints-title" class="visually-hidden">Checkpoints</h2>
    ${training.map((phase) => html`<${AtRisk} key=${phase.name} phase=${phase} told=${told} named=${training.length > 1} />`)}
    ${training.map((phase) => html`<${NextSave} key=${phase.name} phase=${phase} named=${training.length > 1}
      coming=${saving.find((one) => one.phase === phase.name)?.next} />`)}
    <${ProblemBox} problem=${problem} />
    ${!found && !problem && html`<${Spinner} label="Looking for checkpoints" />`}
    ${found?.length === 0 && html`<${Empty} title="No checkpoint yet">The program saves on its cadence, when it is asked to, and when it is
      stopped or paused.<//>`}
    ${found?.length > 0 && html`<${List} run=${run} found=${found} me=${me} actions=${actions} ask=${ask} />`}
    ${failed.length > 0 && html`<h3>Saves that failed</h3><ul class="plain-list failed-saves">${failed.map((event) => html`<li
      key=${event.seq}><time datetime=${event.at} class="number muted small">${moment(event.at)}</time> ${event.phase}: ${event.text}</li>`)}</ul>`}
  </section>`;
}

function lastOf(events) {
  for (let at = events.length - 1; at >= 0; at -= 1) {
    if (RETELLS.has(events[at].kind)) return events[at].seq;
  }
  return 0;
}

function List({ run, found, me, actions, ask }) {
  const counted = found.filter((each) => !each.trashed_until);
  const size = counted.reduce((sum, each) => sum + each.bytes, 0);
  return html`<p class="small muted">${plural(counted.length, "checkpoint")}, ${bytes(size)} in all. To have one here:${" "}
      <code>whistle checkpoints ${run.number} get DIR</code></p>
    <div class="scroll" tabindex="0" role="region" aria-label="Checkpoints, newest first"><table class="table checkpoint-table">
      <thead><tr><th scope="col" class="is-number">step</th><th scope="col">phase</th><th scope="col" class="is-number">attempt</th>
        <th scope="col">saved</th><th scope="col" class="is-number">size</th><th scope="col" class="is-number">written</th>
        <th scope="col" class="is-number">block</th><th scope="col" class="is-number">upload</th><th scope="col">metrics</th>
        <th scope="col">why</th><th scope="col">marks</th><th scope="col"><span class="visually-hidden">actions</span></th></tr></thead>
      <tbody>${found.map((each) => html`<${One} key=${each.id} each=${each} run=${run} me=${me} actions=${actions} ask=${ask} />`)}</tbody>
    </table></div>`;
}

function One({ each, run, me, actions, ask }) {
  const label = `Actions of the checkpoint at step ${each.step} of ${each.phase}`;
  return html`<tr class=${each.trashed_until ? "is-trashed" : ""} data-checkpoint=${each.id}>
    <th scope="row" class="is-number">${count(each.step)}</th>
    <td>${each.phase}</td>
    <td class="is-number">${each.attempt}</td>
    <td class="nowrap"><time datetime=${each.committed_at} title=${moment(each.committed_at)}><${Ago} at=${each.committed_at} /></time></td>
    <td class="is-number">${bytes(each.bytes)}</td>
    <td class="is-number">${bytes(each.written)}</td>
    <td class="is-number">${brief(each.block_seconds)}</td>
    <td class="is-number">${brief(each.upload_seconds)}</td>
    <td class="small metrics">${metrics(each.metrics)}</td>
    <td class="small">${each.why}</td>
    <td><span class="marks">${marks(each).map(([word, tone, title]) => html`<span key=${word} class="tag ${tone}" title=${title}>${word}</span>`)}</span></td>
    <td><${Menu} label=${label} items=${menu(each, run, me, actions, ask)} /></td>
  </tr>`;
}

function marks(each) {
  return [
    each.newest && ["newest", "is-running", "a resume would take it"],
    each.best && ["best", "is-completed", "by the metric that the spec names"],
    each.pinned && ["pinned", "", "nothing but a person removes it"],
    !each.healthy && ["unhealthy", "is-failed", "a value was not finite before it was saved: no run resumes from it by itself"],
    !each.verified && ["damaged", "is-failed", "it is not what was saved: no run resumes from it"],
    each.trashed_until && ["removed", "is-waiting", `it can be had back until ${moment(each.trashed_until)}`],
  ].filter(Boolean);
}

function metrics(all) {
  const known = Object.entries(all ?? {}).filter(([, value]) => typeof value === "number");
  return known.slice(0, METRICS).map(([name, value]) => `${name} ${number(value)}`).join(", ") + (known.length > METRICS ? " …" : "");
}

function menu(each, run, me, actions, ask) {
  const why = !mayAct(me) ? { disabled: true, why: "your role only looks" } : actions === null ? { disabled: true } : {};
  const path = `/runs/${encodeURIComponent(run.id)}/checkpoints/${encodeURIComponent(each.id)}`;
  const now = async (verb) => {
    try {
      const done = await api.post(`${path}/${verb}`);
      toast(actions.sentence(withClocks(done.text)));
    } catch (problem) {
      toast(problem.message, { kind: "problem" });
    }
    ask();
  };
  const open = (verb) => actions.openAction(verb, run, { checkpoint: each, after: ask });
  const verify = { label: "Verify…", onSelect: () => open("verify"), ...why };
  if (each.trashed_until) return [{ label: "Bring it back", onSelect: () => now("restore"), ...why }, verify];
  return [
    { label: "Continue from here…", onSelect: () => open("continue"), ...why,
      ...(each.verified ? {} : { disabled: true, why: "it is damaged" }) },
    verify,
    each.pinned ? { label: "Unpin", onSelect: () => now("unpin"), ...why } : { label: "Pin", onSelect: () => now("pin"), ...why },
    { label: "Remove…", danger: true, onSelect: () => open("discard"), ...why },
  ];
}
