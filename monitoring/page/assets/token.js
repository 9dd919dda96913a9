// The token that allows redrives: taken once from the address, then kept in this tab only.

const KEY = "tidegate-token";
/** @type {string | null} */
let kept = null;

/** Takes `#token=…` out of the address before it can be copied or bookmarked. */
export function adoptToken() {
  const found = /[#&]token=([^&]*)/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", location.pathname + location.search);
  let token = found[1];
  try {
    token = decodeURIComponent(token);
  } catch {
    // not encoded: used unchanged
  }
  keepToken(token);
}

/** @param {string} token */
export function keepToken(token) {
  kept = token || null;
  try {
    if (kept) sessionStorage.setItem(KEY, kept);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Storage may be forbidden; the token is then kept until the page is reloaded.
  }
}

export function token() {
  if (kept) return kept;
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}
