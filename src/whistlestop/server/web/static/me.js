// Who is signed in, and what they may do. Asked once; a sign-in or sign-out asks again.
import { api, ask, setCsrf } from "./api.js";
import { cell } from "./lib.js";

const me = cell(null);

export function useMe() {
  return me.use();
}

/** Member or admin: may act. A viewer looks. */
export function mayAct(who) {
  return who?.role === "member" || who?.role === "admin";
}

/** May change what is set up for all: pools, hosts, budgets. */
export function mayAdmin(who) {
  return who?.role === "admin";
}

export async function loadMe() {
  const who = await api.get("/whoami");
  setCsrf(who.csrf ?? null);
  me.set(who);
  return who;
}

/** By a token, or by the code of a one-time link. */
export async function signInWith(proof) {
  await ask("POST", "/session", proof);
  return loadMe();
}

export async function signOut() {
  await ask("DELETE", "/session");
  forgetMe();
}

function forgetMe() {
  setCsrf(null);
  me.set(null);
}
