// The token that allows redrives: from the address, once, then only in this tab's memory.

const KEY = "tidegate-token";
let kept = null;

/** Takes `#token=…` out of the address before anybody can copy or bookmark it. */
export function adoptToken() {
  const found = /[#&]token=([^&]*)/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", location.pathname + location.search);
  let token = found[1];
  try {
    token = decodeURIComponent(token);
  } catch {
    // taken as it stands
  }
  keepToken(token);
}

export function keepToken(token) {
  kept = token || null;
  try {
    if (kept) sessionStorage.setItem(KEY, kept);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Storage may be forbidden; memory does until the page is loaded anew.
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
