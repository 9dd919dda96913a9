// Login: a token is exchanged once for a session cookie that no script can read, and is then forgotten.

import { ask } from "./api.js";
import { el, fill, need } from "./dom.js";
import { failure } from "./panel.js";

/** @import { Child } from "./dom.js" */
/** @import { Session } from "./types.js" */

const RENEW_MS = 3600_000;

/** Takes `#token=…` out of the address before it can be copied or bookmarked, and returns the token. */
export function takeToken() {
  const found = /[#&]token=([^&]*)/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    return decodeURIComponent(found[1]);
  } catch {
    return found[1]; // not encoded: used unchanged
  }
}

/** @param {Session} session */
function note(session) {
  need("#logout", HTMLElement).hidden = !session.session;
  return session;
}

/** The rights of this browser; an open session is renewed. @returns {Promise<Session>} */
export async function askSession() {
  return note(await ask("/api/session", {}, { method: "POST" }));
}

/** @param {string} token @returns {Promise<Session>} */
export async function logIn(token) {
  // A header takes these characters only. A token with another one is wrong, and the monitor's answer says so.
  const sent = token.replace(/[^\u0020-\u007e\u00a0-\u00ff]/g, "?");
  return note(await ask("/api/login", {}, { method: "POST", headers: { Authorization: `Bearer ${sent}` } }));
}

/**
 * A form that logs in; a wrong token is reported in it. `then` is called after the login.
 * @param {Child} why
 * @param {(session: Session) => void} then
 */
export function tokenForm(why, then) {
  const input = el("input", { type: "password", name: "token", autocomplete: "off", required: true, spellcheck: "false" });
  const reason = el("div", {}, why);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      then(await logIn(input.value.trim()));
    } catch (error) {
      fill(reason, failure(error));
      input.select();
    }
  };
  return el(
    "form",
    { class: "stack", on: { submit } },
    reason,
    el("label", {}, "Token ", input),
    el(
      "p",
      { class: "muted small" },
      "The token is the first line of the token file (embedded run: ",
      el("code", {}, "<data>/page-token"),
      "). The browser keeps a session of 12 hours, not the token.",
    ),
    el("button", { type: "submit", class: "button" }, "Use this token"),
  );
}

/** Logs in with a token of the address, and shows the form while this browser may not read. @param {string | null} token */
export async function enter(token) {
  /** @type {Child} */
  let why = el("p", {}, "This page needs a login.");
  if (token) {
    try {
      await logIn(token);
    } catch (error) {
      why = failure(error);
    }
  }
  try {
    if ((await askSession()).role !== "none") return;
  } catch {
    return; // The monitor does not answer: the page shows it as lost.
  }
  const [place, overview] = [need("#login", HTMLElement), need("#overview", HTMLElement)];
  [place.hidden, overview.hidden] = [false, true];
  await new Promise((done) => {
    const form = tokenForm(why, done);
    fill(need(".content", HTMLElement, place), form);
    need("input", HTMLInputElement, form).focus();
  });
  [place.hidden, overview.hidden] = [true, false];
}

/** Renews the session while the page is open, and asks for a login when it has ended. */
export async function keepSession() {
  try {
    if ((await askSession()).role === "none") location.reload();
  } catch {
    // The monitor does not answer; the next call asks again.
  }
}

export function mountLogin() {
  setInterval(keepSession, RENEW_MS);
  need("#logout", HTMLButtonElement).addEventListener("click", async () => {
    await ask("/api/logout", {}, { method: "POST" });
    location.reload();
  });
}
