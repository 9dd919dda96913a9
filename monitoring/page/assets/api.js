// Requests to the monitor. An error answer becomes an Error with the server's message.

/** Requests `path` and returns the parsed JSON; empty `query` values are left out. */
export async function ask(path, query = {}, options = {}) {
  const wanted = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    if (value !== "" && value !== null && value !== undefined) wanted.set(name, value);
  const text = wanted.toString();
  let answer;
  try {
    answer = await fetch(text ? `${path}?${text}` : path, { cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The monitor does not answer. Run `tidegate status` to see whether it runs.", { cause: error });
  }
  const data = await answer.json().catch(() => null);
  if (!answer.ok) {
    const refused = new Error(data?.error ?? `The monitor answered ${answer.status} to ${path}.`);
    refused.status = answer.status;
    throw refused;
  }
  if (data === null) throw new Error(`The monitor's answer to ${path} is not JSON. Check whether another server uses this port.`);
  return data;
}
