// The first tab: how it ended or what it waits for, the line of phases, and beside it note, credits and facts.
import { html } from "../lib.js";
import { Link } from "../route.js";
import { Advice } from "./advice.js";
import { Credits } from "./credits.js";
import { Ending } from "./ending.js";
import { Note } from "./note.js";
import { Track } from "./track.js";
import { moment } from "./words.js";

export function Overview({ state, kept, me, actions }) {
  const { run, told, timeline, events, took } = state;
  return html`<div class="overview">
    <div class="overview-main">
      <${Ending} run=${run} events=${events} kept=${kept} />
      <${Track} run=${run} told=${told} timeline=${timeline} me=${me} actions=${actions} />
      <${Advice} run=${run} events=${events} />
    </div>
    <aside class="overview-side" aria-label="Note, credits and facts">
      <${Note} run=${run} me=${me} took=${took} />
      <${Credits} run=${run} told=${told} />
      <${Facts} run=${run} />
    </aside>
  </div>`;
}

function Facts({ run }) {
  const { code } = run;
  return html`<section class="card" aria-labelledby="facts-title">
    <h2 id="facts-title">Facts</h2>
    <dl class="facts">
      <dt>id</dt><dd><code>${run.id}</code></dd>
      <dt>project</dt><dd><${Link} href="/projects/${encodeURIComponent(run.project)}">${run.project}<//></dd>
      ${run.workflow && html`<dt>workflow</dt><dd>${run.workflow}</dd>`}
      <dt>priority</dt><dd>${run.priority}</dd>
      <dt>submitted</dt><dd>${moment(run.created_at)}</dd>
      ${run.started_at && html`<dt>started</dt><dd>${moment(run.started_at)}</dd>`}
      ${run.ended_at && html`<dt>ended</dt><dd>${moment(run.ended_at)}</dd>`}
      ${code.commit && html`<dt>commit</dt><dd><code>${code.commit.slice(0, 12)}</code>${code.dirty ? " with changes" : ""}</dd>`}
      ${code.bundle && html`<dt>bundle</dt><dd><code>${code.bundle.slice(0, 12)}</code></dd>`}
      ${code.in_place && html`<dt>runs in</dt><dd><code>${code.in_place}</code></dd>`}
    </dl>
  </section>`;
}
