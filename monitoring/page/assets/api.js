// Requests to the monitor. An error answer becomes an Error with the server's message.

/** An error answer, with its HTTP status. */
export class ErrorAnswer extends Error {
  /** @param {string} message @param {number} status */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** True if the page itself has cancelled the request. @param {unknown} error */
export function isAbort(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/** The sentence of an error. @param {unknown} error */
export function sentence(error) {
  return error instanceof Error ? error.message : String(error);
}

/**
 * Requests `path` and returns the parsed JSON; empty `query` values are left out.
 * @param {string} path
 * @param {Record<string, string | number | null | undefined>} query
 * @param {RequestInit} options
 * @returns {Promise<any>}
 */
export async function ask(path, query = {}, options = {}) {
  const wanted = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    if (value !== "" && value !== null && value !== undefined) wanted.set(name, String(value));
  const text = wanted.toString();
  let answer;
  try {
    answer = await fetch(text ? `${path}?${text}` : path, { cache: "no-store", ...options });
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new Error("The monitor does not answer. Run `tidegate status` to see whether it runs.", { cause: error });
  }
  const data = await answer.json().catch((error) => {
    if (isAbort(error)) throw error;
    return null;
  });
  if (!answer.ok) throw new ErrorAnswer(data?.error ?? `The monitor answered ${answer.status} to ${path}.`, answer.status);
  if (data === null) throw new Error(`The monitor's answer to ${path} is not JSON. Check whether another server uses this port.`);
  return data;
}
