// Sentences with `commands` in backticks: first the sentence, then each command on its own line with a copy button.

import { commandNode, isCommand } from "./copy.js";
import { el } from "./dom.js";
import { shortCommand, wholeCommand } from "./program.js";
import { withRunbooks } from "./runbook.js";

const LONGEST = 4000;

/** @typedef {{ kind: "words" | "code" | "command", text: string }} Piece */

/** The text's pieces: words, code and commands. @param {string} text @returns {Piece[]} */
function piecesOf(text) {
  return String(text)
    .slice(0, LONGEST)
    .split("`")
    .map((piece, index) => {
      if (index % 2 === 0) return { kind: "words", text: piece };
      return { kind: isCommand(piece) ? "command" : "code", text: wholeCommand(piece) };
    });
}

/**
 * "`cmd`: shows the parts." becomes "Shows the parts." with the command below.
 * @param {Piece[]} pieces
 * @returns {Piece[]}
 */
function withoutFirst(pieces) {
  const [before, command, after] = pieces;
  if (before?.text.trim() || command?.kind !== "command" || !/^:\s/.test(after?.text ?? "")) return pieces;
  const words = after.text.replace(/^:\s+/, "");
  return [{ kind: "words", text: words.charAt(0).toUpperCase() + words.slice(1) }, ...pieces.slice(3)];
}

/** "Then run `cmd`." becomes "Then run:" with the command below. @param {Piece[]} pieces @returns {Piece[]} */
function withoutLast(pieces) {
  const [words, command, end] = pieces.slice(-3);
  if (pieces.length < 3 || command.kind !== "command" || !/^[.\s]*$/.test(end.text)) return pieces;
  const text = words.text.trimEnd();
  return [...pieces.slice(0, -3), { kind: "words", text: !text || /[:;,?!]$/.test(text) ? text : `${text}:` }];
}

/** @param {Piece} piece @returns {(Node | string)[]} */
function nodesOf({ kind, text }) {
  return kind === "words" ? withRunbooks(text) : [el("code", {}, shortCommand(text))];
}

/** Nodes of one sentence or step. @param {string} text */
export function stepNodes(text) {
  const pieces = piecesOf(text);
  const commands = pieces.filter(({ kind }) => kind === "command");
  return [
    ...withoutLast(withoutFirst(pieces)).flatMap(nodesOf),
    ...commands.map((command) => commandNode(command.text, "div")),
  ];
}
