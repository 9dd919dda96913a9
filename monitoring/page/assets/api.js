// Questions to the monitor. A refusal becomes an Error whose message is the server's sentence.

/** The answer of `path` as data; `query` values that are empty are left out. */
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
    throw new Error("The monitor does not answer. Is it running? `tidegate status` says.", { cause: error });
  }
  const data = await answer.json().catch(() => null);
  if (!answer.ok) {
    const refused = new Error(data?.error ?? `The monitor answered ${answer.status} to ${path}.`);
    refused.status = answer.status;
    throw refused;
  }
  if (data === null) throw new Error(`The monitor's answer to ${path} is no JSON. Is another server on this port?`);
  return data;
}
