// Line differences. Added and removed lines have a sign and hidden words, not only a color.

export type DiffLine = { kind: "same" | "removed" | "added"; text: string };

/** Above this number of line pairs, the middle is shown as removed and added, because the comparison takes too long. */
const MAX_PAIRS = 1_000_000;

/** The longest common subsequence of lines. */
export function diffLines(before: string, after: string): DiffLine[] {
  const a = before.split("\n");
  const b = after.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const same = (lines: string[]): DiffLine[] => lines.map((text) => ({ kind: "same", text }));
  const middle = diffMiddle(a.slice(start, a.length - end), b.slice(start, b.length - end));
  return [...same(a.slice(0, start)), ...middle, ...same(end ? a.slice(-end) : [])];
}

function diffMiddle(a: string[], b: string[]): DiffLine[] {
  if (a.length * b.length > MAX_PAIRS) {
    return [...a.map((text) => ({ kind: "removed" as const, text })), ...b.map((text) => ({ kind: "added" as const, text }))];
  }
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  const at = (i: number, j: number) => lengths[i]?.[j] ?? 0;
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) lengths[i]![j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
  }
  const lines: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: "same", text: a[i++] ?? "" });
      j += 1;
    } else if (i < a.length && (j >= b.length || at(i + 1, j) >= at(i, j + 1))) lines.push({ kind: "removed", text: a[i++] ?? "" });
    else lines.push({ kind: "added", text: b[j++] ?? "" });
  }
  return lines;
}

const SIGNS = { same: " ", removed: "−", added: "+" };

export function DiffView({ lines, label }: { lines: DiffLine[]; label: string }) {
  return (
    <div class="diff" role="group" aria-label={label} tabIndex={0}>
      {lines.map((line, index) => (
        <div class={line.kind} key={index}>
          <span class="sign" aria-hidden="true">{SIGNS[line.kind]}</span>
          {line.kind !== "same" && <span class="visually-hidden">{line.kind}: </span>}
          <span class="diff-text">{line.text || " "}</span>
        </div>
      ))}
    </div>
  );
}

export const Diff = ({ before, after, label }: { before: string; after: string; label: string }) =>
  <DiffView lines={diffLines(before, after)} label={label} />;
