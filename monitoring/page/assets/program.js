// How the person in front of this page calls the program: by which name, and with which run or settings.

const program = { name: "tidegate", where: "" };

/** Take over what the snapshot says of it; without a word the plain name stays. */
export function learnProgram(command) {
  program.name = command?.name || "tidegate";
  program.where = command?.where || "";
}

/** The whole command line for the words of one of our commands. */
export function commandLine(words) {
  return [program.name, words, program.where].filter(Boolean).join(" ");
}
