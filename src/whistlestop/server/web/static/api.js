// /api/v1 by fetch: JSON in, JSON out, every refusal a Problem in words.
import { navigate, queryText } from "./route.js";

const BASE = "/api/v1";
const SAME = 2000;  // milliseconds; the Date header has whole seconds, and an answer takes its time
let csrf = null;
let ahead = 0;  // the server's clock, compared with this one
let whenUnreachable = () => {};

/** `ours`: the server itself has refused, and not something between here and there. */
export class Problem extends Error {
  constructor({ status, code, detail, hint, problems, ours = false }) {
    super(detail);
    this.name = "Problem";
    Object.assign(this, { status, code, detail, hint: hint ?? null, problems: problems ?? [], ours });
  }
}

/** The session's proof that a request comes from our own page; me.js tells it. */
export function setCsrf(value) {
  csrf = value;
}

/** The server's time, in milliseconds: what it tells is compared with this, however wrong the clock of this machine is. */
export function now() {
  return Date.now() + ahead;
}

function setClock(answer) {
  const said = Date.parse(answer.headers.get("Date")) + 500 - Date.now();
  if (Math.abs(said - ahead) > SAME) ahead = said;  // also false for NaN
}

/** Whether to ask again: the server, or something in between, is away or busy. Any other refusal stays one. */
export function isAway(problem) {
  return problem.status === 0 || problem.status === 408 || problem.status === 429 || problem.status >= 500;
}

/** live.js wants to know when a request did not get through. */
export function onUnreachable(listener) {
  whenUnreachable = listener;
}

export const api = {
  get: (path, query) => ask("GET", BASE + path + queryText(query)),
  post: (path, body) => ask("POST", BASE + path, body ?? {}),
  put: (path, body) => ask("PUT", BASE + path, body ?? {}),
  patch: (path, body) => ask("PATCH", BASE + path, body ?? {}),
  delete: (path) => ask("DELETE", BASE + path),
};

/** One request to any address of this server. */
export async function ask(method, address, body) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET" && csrf) headers["X-Whistle-CSRF"] = csrf;
  let answer;
  try {
    answer = await fetch(address, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body), credentials: "same-origin",
    });
  } catch {
    whenUnreachable();
    throw new Problem({
      status: 0, code: "server_unreachable", detail: "The server can't be reached.",
      hint: method === "GET" ? "Runs go on meanwhile." : "It may not have got through: try again when the server is back.",
    });
  }
  setClock(answer);
  if (answer.ok) return answer.status === 204 ? null : readJson(answer);
  const problem = await readProblem(answer);
  if (problem.status === 401) signIn();
  throw problem;
}

/** To the sign-in page, and back to where one was. */
export function signIn() {
  csrf = null;
  if (location.pathname === "/sign-in") return;
  navigate(`/sign-in${queryText({ next: location.pathname + location.search })}`, { replace: true });
}

async function readJson(answer) {
  try {
    return await answer.json();
  } catch {
    throw new Problem({ status: answer.status, code: "error", detail: "The server's answer was cut off." });
  }
}

export async function readProblem(answer) {
  let told = {};
  try {
    told = await answer.json();
  } catch {
    // A proxy's page, or nothing at all: the status has to do.
  }
  return new Problem({
    status: answer.status, code: told.code ?? "error", detail: told.detail ?? `The server answered ${answer.status}.`,
    hint: told.hint, problems: told.problems, ours: told.code !== undefined,
  });
}
