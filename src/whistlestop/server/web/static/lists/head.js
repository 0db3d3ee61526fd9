// The head that the tabs of a project share.
import { html } from "../lib.js";
import { Link } from "../route.js";
import { Icon, Tabs } from "../ui/index.js";

export function ProjectHead({ name, current, count, act }) {
  const at = `/projects/${encodeURIComponent(name)}`;
  const tabs = [
    { id: "runs", label: "Runs", href: at, count: current === "runs" ? count : undefined },
    { id: "workflows", label: "Workflows", href: `${at}/workflows`, count: current === "workflows" ? count : undefined },
  ];
  return html`<div class="page-head">
      <div><nav class="crumbs" aria-label="Where this is"><${Link} href="/">Training<//><span aria-hidden="true">/</span></nav>
        <h1>${name}</h1></div>
      ${act && html`<${Link} class="button is-primary" href=${`/new?project=${encodeURIComponent(name)}`}><${Icon} name="plus" />New run<//>`}
    </div>
    <${Tabs} label=${`Parts of ${name}`} tabs=${tabs} current=${current} />`;
}
