// A new run: from a workflow, from another run, or written here. Form and YAML side by side, judged as one types.
import { html, useEffect, useRef, useState } from "../lib.js";
import { api } from "../api.js";
import { mayAct, useMe } from "../me.js";
import { Link, navigate, setQuery } from "../route.js";
import { Button, Dialog, Empty, Field, Icon, ProblemBox, Spinner, toast } from "../ui/index.js";
import { useKeyed } from "../actions/keys.js";
import { CodeField, filesOf, useCodes } from "../forms/code.js";
import { Editor } from "../forms/editor.js";
import { Fields } from "../forms/fields.js";
import { useSpec } from "../forms/state.js";

function template(project) {
  return `name: my-run\nproject: ${project ?? "default"}\nphases:\n  - name: train\n    command: python train.py\n    slots: 1\n    checkpoint: {every: 10 minutes}\n`;
}

export default function Page({ query }) {
  const me = useMe();
  const source = useSource(query);
  if (!mayAct(me)) {
    return html`<h1>New run</h1><${Empty} title="Your role only looks">To start runs, ask for a token of the role member.<//>`;
  }
  if (source.problem) return html`<h1>New run</h1><${ProblemBox} problem=${source.problem} /><p><${Link} href="/new">Begin with an empty one<//></p>`;
  return html`<${Form} query=${query} source=${source} />`;
}

/** What it begins with. */
function useSource({ workflow, from, project }) {
  const [source, setSource] = useState({ text: null, problem: null });
  useEffect(() => {
    let current = true;
    setSource({ text: null, problem: null });
    const [name, version] = (workflow ?? "").split("@");
    const asked = from ? api.get(`/runs/${encodeURIComponent(from)}`).then((run) => ({ text: run.spec, run }))
      : workflow ? api.get(`/workflows/${encodeURIComponent(name)}`, { version }).then((flow) => ({ text: flow.spec, flow }))
        : Promise.resolve({ text: template(project) });
    asked.then((found) => current && setSource({ problem: null, ...found }), (problem) => current && setSource({ text: null, problem }));
    return () => { current = false; };
  }, [workflow, from]);
  return source;
}

function Form({ query, source }) {
  const spec = useSpec(source.text);
  const editor = useRef(null);
  const form = useRef(null);
  const project = query.project ?? source.run?.project;
  const codes = useCodes({ from: query.from, workflow: query.workflow ?? source.run?.workflow ?? undefined, project });
  const [code, setCode] = useState(null);
  const [note, setNote] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const keyed = useKeyed();
  const chosen = code ?? codes?.first ?? "";
  const submit = async () => {
    setBusy(true);
    setProblem(null);
    const sets = source.flow ? spec.sets() : null;
    const what = sets ? { workflow: `${source.flow.name}@${source.flow.version}`, set: sets } : { spec: spec.text };
    try {
      const made = await api.post("/runs", keyed({ ...what, code_of: chosen || undefined, note }));
      toast(`Run #${made.number} (${made.name}) is submitted.`);
      navigate(`/runs/${made.id}`);
    } catch (refused) {
      setProblem(refused);
      setBusy(false);
    }
  };
  const jump = (item) => {
    const control = form.current?.querySelector(`[data-path="${CSS.escape(item.path)}"] :is(input, select, textarea)`);
    if (control && !control.readOnly) control.focus();
    else if (item.line) editor.current.goto(item.line);
  };
  return html`
    <div class="page-head"><div><nav class="crumbs" aria-label="Where this is"><${Link} href="/">Training<//><span aria-hidden="true">/</span>
        ${project && html`<${Link} href=${`/projects/${encodeURIComponent(project)}`}>${project}<//><span aria-hidden="true">/</span>`}</nav>
      <h1>New run</h1></div></div>
    <${Source} query=${query} source=${source} edited=${source.text !== null && (spec.text !== source.text || Object.keys(spec.values).length > 0)} />
    ${source.text === null ? html`<${Spinner} label="Loading" />` : html`<div class="new-run">
      <section class="new-form" ref=${form} aria-label="Form">
        <h2 class="new-title">Form</h2>
        ${spec.readable === false && html`<p class="muted small">The YAML can't be read now; the form follows as soon as it can.</p>`}
        ${!spec.fields.length && spec.checking && html`<${Spinner} label="Reading the spec" />`}
        <${Fields} fields=${spec.fields} values=${spec.values} onInput=${spec.put} goto=${(line) => editor.current.goto(line)} off=${spec.readable === false} />
      </section>
      <section class="new-yaml" aria-label="YAML">
        <h2 class="new-title">whistle.yaml<${Verdict} spec=${spec} /></h2>
        <${Editor} text=${spec.text} problems=${spec.problems} onInput=${spec.write} handle=${editor} />
        <div id="spec-problems" class="spec-problems" role="status" aria-live="polite">${spec.problems.length > 0 && html`<ul>${spec.problems.map((item) => html`<li
          key=${`${item.path} ${item.line} ${item.text}`}><button type="button" class="spec-problem" onClick=${() => jump(item)}>
          <${Icon} name="alert" /><span>${item.line ? html`<span class="problem-place">line ${item.line}</span> ` : null}${item.path && html`<code>${item.path}</code> `}${item.text}
          ${item.hint && html`<span class="muted"> (${item.hint})</span>`}</span></button></li>`)}</ul>`}</div>
        <${CodeField} codes=${codes} value=${chosen} onInput=${setCode} names=${filesOf(spec.fields)} />
        <${Field} label="Note (optional)"><textarea rows="2" maxlength="10000" value=${note} onInput=${(event) => setNote(event.target.value)}></textarea><//>
        <${ProblemBox} problem=${problem ?? spec.trouble} />
        <div class="row"><${Button} kind="primary" busy=${busy} disabled=${!spec.ok || spec.checking} onClick=${submit}>Submit run<//>
          <${SaveWorkflow} spec=${spec} name=${source.flow?.name} /></div>
      </section>
    </div>`}`;
}

function Verdict({ spec }) {
  const count = spec.problems.length;
  const [look, text] = spec.checking ? ["", "checking…"] : spec.ok ? ["is-completed", "valid"]
    : ["is-failed", count ? `${count} mistake${count === 1 ? "" : "s"}` : "not checked"];
  return html`<span class="tag verdict ${look}" role="status">${text}</span>`;
}

/** What was written is never replaced without a word. */
function Source({ query, source, edited }) {
  const [wish, setWish] = useState(null);  // changes of the address that wait for a yes
  const [all, setAll] = useState([]);
  useEffect(() => { api.get("/workflows").then(setAll, () => {}); }, []);
  const name = query.workflow?.split("@")[0] ?? "";
  const begin = (changes) => (edited ? setWish(changes) : setQuery(changes));
  const sure = wish && html`<${Replace} close=${() => setWish(null)} go=${() => { setWish(null); setQuery(wish); }} />`;
  if (query.from) {
    return html`<p class="new-source">From <${Link} href=${`/runs/${query.from}`}>${source.run ? `#${source.run.number} ${source.run.name}` : "a run"}<//>.
      <button type="button" class="link-button" onClick=${() => begin({ from: null })}>Begin with something else</button>${sure}</p>`;
  }
  return html`<div class="new-source"><${Field} label="Begin with">
    <select value=${name} onChange=${(event) => {
      begin({ workflow: event.target.value || null });
      event.target.value = name;  // until the address says otherwise
    }}>
      <option value="">An empty spec: write or paste one</option>
      ${all.map((flow) => html`<option key=${flow.name} value=${flow.name}>Workflow ${flow.name}, version ${flow.version}</option>`)}
      ${name && !all.some((flow) => flow.name === name) && html`<option value=${name}>Workflow ${name}</option>`}
    </select><//>
    ${source.flow && html`<span class="muted small">version ${source.flow.version}, by ${source.flow.created_by}</span>`}${sure}</div>`;
}

function Replace({ close, go }) {
  return html`<${Dialog} tone="danger" title="Replace what you have written?" onClose=${close} footer=${html`<${Button} onClick=${close}>Keep it<//>
    <${Button} kind="danger" onClick=${go}>Replace it<//>`}><p>Your changes to the YAML and the form would be lost.</p><//>`;
}

function SaveWorkflow({ spec, name: known }) {
  const [busy, setBusy] = useState(false);
  const name = known ?? spec.fields.find((field) => field.path === "name")?.value;
  const save = async () => {
    setBusy(true);
    try {
      const saved = await api.put(`/workflows/${encodeURIComponent(name)}`, { spec: spec.text });
      toast(`Saved as workflow ${saved.name}, version ${saved.version}.`);
    } catch (problem) {
      toast(problem.message, { kind: "problem" });
    }
    setBusy(false);
  };
  return html`<${Button} busy=${busy} disabled=${!spec.ok || spec.checking || !name} onClick=${save}>Save as workflow${name ? ` “${name}”` : ""}<//>`;
}
