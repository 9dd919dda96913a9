// How the person in front of this page calls the program: by which name, and with which run or settings.

const program = { name: "tidegate", where: "", takes: [] };
const OURS = /^tidegate (([a-z-]+).*)$/s;
const PLACEHOLDER = / --config (?:FILE|…)/;
const NAMED = / --(?:data|config)\b/;

/** Take over what the snapshot says of it; without a word the plain name stays. */
export function learnProgram(command) {
  program.name = command?.name || "tidegate";
  program.where = command?.where || "";
  program.takes = command?.takes?.split(" ") ?? [];
}

/** The whole command line for the words of one of our commands. */
export function commandLine(words) {
  return [program.name, words, program.where].filter(Boolean).join(" ");
}

/** A command of a text as it can be run here; one that names a run or a file already, or is none of ours, stays as it is. */
export function wholeCommand(text) {
  const [, words, first] = OURS.exec(text) ?? [];
  if (!words) return text;
  if (!program.where || !program.takes.includes(first)) return `${program.name} ${words}`;
  const bare = words.replace(PLACEHOLDER, "");
  return NAMED.test(bare) ? `${program.name} ${bare}` : `${program.name} ${bare} ${program.where}`;
}

/** The command without what it has in common with all others here: enough for a sentence. */
export function shortCommand(text) {
  const end = program.where && ` ${program.where}`;
  return end && text.endsWith(end) ? text.slice(0, -end.length) : text;
}
