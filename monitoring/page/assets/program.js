// The command line of the program on this machine: its name, and the options for the run or the settings.

/** @import { Command } from "./types.js" */

/** @type {{ name: string, where: string, takes: string[] }} */
const program = { name: "tidegate", where: "", takes: [] };
const OURS = /^tidegate (([a-z-]+).*)$/s;
const PLACEHOLDER = / --config (?:FILE|…)/;
const NAMED = / --(?:data|config)\b/;

/**
 * Takes the name and the options from the snapshot; without them the name is `tidegate`.
 * @param {Command | null | undefined} command
 */
export function learnProgram(command) {
  program.name = command?.name || "tidegate";
  program.where = command?.where || "";
  program.takes = command?.takes?.split(" ") ?? [];
}

/** The whole command line for a command of ours and its arguments. @param {string} words */
export function commandLine(words) {
  return [program.name, words, program.where].filter(Boolean).join(" ");
}

/**
 * A command from a text, completed for this run. A command that names a run or a file keeps it; a command of others stays unchanged.
 * @param {string} text
 */
export function wholeCommand(text) {
  const [, words, first] = OURS.exec(text) ?? [];
  if (!words) return text;
  if (!program.where || !program.takes.includes(first)) return `${program.name} ${words}`;
  const bare = words.replace(PLACEHOLDER, "");
  return NAMED.test(bare) ? `${program.name} ${bare}` : `${program.name} ${bare} ${program.where}`;
}

/** The command without the options for the run, for use in a sentence. @param {string} text */
export function shortCommand(text) {
  const end = program.where && ` ${program.where}`;
  return end && text.endsWith(end) ? text.slice(0, -end.length) : text;
}
