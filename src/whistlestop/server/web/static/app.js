// The frame around every page: sign-in first, then sidebar, top and the page that the address names.
import { html, render, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "./lib.js";
import { isAway } from "./api.js";
import { loadMe, useMe } from "./me.js";
import { preload, useModule } from "./modules.js";
import { Link, match, useRoute } from "./route.js";
import { Empty, ProblemBox, Spinner, Toasts } from "./ui/index.js";
import { Banner, Shortcuts, Sidebar, Top } from "./shell.js";

const PAGES = [
  { at: "/", module: "projects", title: () => "Training", area: "training" },
  { at: "/projects/:name", module: "runs", title: ({ name }) => name, area: "training" },
  { at: "/projects/:name/workflows", module: "workflows", title: ({ name }) => `Workflows of ${name}`, area: "training" },
  { at: "/new", module: "new", title: () => "New run", area: "training" },
  { at: "/runs/:id", module: "run", title: ({ id }) => `Run ${id}`, area: "training" },
  { at: "/queue", module: "queue", title: () => "Queue", area: "queue" },
  { at: "/pools", module: "pools", title: () => "Pools", area: "pools" },
  { at: "/hosts", module: "hosts", title: () => "Hosts", area: "hosts" },
  { at: "/usage", module: "usage", title: () => "Usage", area: "usage" },
  { at: "/alerts", module: "alerts", title: () => "Alerts", area: "alerts" },
];

/** Pages say their own title where they know better: `useTitle("#12 finetune")`, from title.js. */
function App() {
  const { path, query } = useRoute();
  const me = useMe();
  const [failed, setFailed] = useState(null);
  const signing = path === "/sign-in";
  useEffect(() => {
    if (signing || me) return undefined;
    let timer = null;
    const load = () => loadMe().then(() => setFailed(null), (problem) => {
      setFailed(problem);
      if (isAway(problem)) timer = setTimeout(load, 2000);
    });
    load();
    return () => clearTimeout(timer);
  }, [signing, me]);
  if (signing) return html`<${Page} module="sign_in" params=${{}} query=${query} /><${Toasts} />`;
  if (!me) {
    return html`<main class="alone">${failed && failed.status !== 401
      ? html`<${ProblemBox} problem=${failed} /><p><a class="button is-plain" href="">Try again</a></p>`
      : html`<${Spinner} label="One moment" />`}</main>`;
  }
  return html`<${Frame} path=${path} query=${query} me=${me} />`;
}

function Frame({ path, query, me }) {
  const main = useRef(null);
  const found = find(path);
  useLayoutEffect(() => {
    document.title = found ? `${found.title(found.params)} · Whistlestop` : "Not found · Whistlestop";
  }, [path]);
  useEffect(() => preload([...PAGES.map((page) => `./pages/${page.module}.js`), "./run/charts.js", "./run/logs.js", "./run/checkpoints.js"]), []);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) main.current?.focus({ preventScroll: true });  // a new page is where reading goes on
    first.current = false;
  }, [path]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the page</a>
    <div class="frame">
      <${Sidebar} area=${found?.area} me=${me} />
      <div class="frame-right">
        <${Top} me=${me} />
        <${Banner} me=${me} />
        <main id="main" class="main" tabindex="-1" ref=${main}>
          ${found
            ? html`<${Page} key=${`${found.module} ${path}`} module=${found.module} params=${found.params} query=${query} />`
            : html`<h1 class="visually-hidden">Not found</h1><${Empty} title="There is no such page">
                The address may be mistyped. <${Link} href="/">To the projects<//>.<//>`}
        </main>
      </div>
    </div>
    <${Verbs} />
    <${Toasts} />
    <${Shortcuts} />`;
}

function find(path) {
  for (const page of PAGES) {
    const params = match(page.at, path);
    if (params) return { ...page, params };
  }
  return null;
}

/** A page's module, loaded when it is first needed. What fails in it stays in it: the frame goes on. */
function Page({ module, params, query }) {
  const [loaded, failed] = useModule(`./pages/${module}.js`);
  const [error, reset] = useErrorBoundary((problem) => console.error(problem));
  if (error) return html`<${Broken} problem=${error} again=${reset} />`;
  if (loaded) return html`<${loaded.default} params=${params} query=${query} />`;
  return failed ? html`<${Broken} problem=${failed} />` : html`<${Spinner} label="Loading" />`;
}

function Broken({ problem, again }) {
  return html`<div class="broken">
    <h1>This page could not be shown</h1>
    <${ProblemBox} problem=${problem} />
    <p class="row">${again && html`<button type="button" class="button is-plain" onClick=${again}>Try again</button>`}
      <a class="button is-plain" href=${location.pathname + location.search}>Reload</a></p>
  </div>`;
}

/** The dialogs of stop, kill and the like. */
function Verbs() {
  const [actions] = useModule("./actions/index.js");
  return actions && html`<${actions.Actions} />`;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
