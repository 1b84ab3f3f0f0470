// The failover history of a binding as a picture: clusters are lanes, moves are arrows between them.
import type { HistoryRecord } from "@stateful-failover/policy";

export interface Colours {
  background: string;
  text: string;
  muted: string;
  lane: string;
  accent: string;
  good: string;
  bad: string;
  waiting: string;
}

export const light: Colours = {
  background: "#ffffff",
  text: "#1f2430",
  muted: "#5c6474",
  lane: "#e6e8ee",
  accent: "#3558d4",
  good: "#1a7f4b",
  bad: "#c2313a",
  waiting: "#9a5b00",
};

export const dark: Colours = {
  background: "#1b1b1f",
  text: "#e6e8ee",
  muted: "#a3a9b8",
  lane: "#34363f",
  accent: "#9db4ff",
  good: "#5fd396",
  bad: "#ff8a90",
  waiting: "#f2b35a",
};

const font = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const laneHeight = 64;
const columnWidth = 230;
const top = 78;
const gap = 18;

/** What a phase means to whoever reads the picture. */
const phases: Record<string, { colour: keyof Colours; dash: string; words: string }> = {
  Recovered: { colour: "good", dash: "", words: "healthy again" },
  Evicted: { colour: "waiting", dash: "6 5", words: "evicted, not healthy yet" },
  Pending: { colour: "waiting", dash: "6 5", words: "state still to be fed" },
  Expired: { colour: "bad", dash: "2 5", words: "started, never became healthy" },
  Superseded: { colour: "muted", dash: "2 5", words: "a later move took over" },
};

const types: Record<string, string> = {
  application: "application failover",
  cluster: "cluster failover",
  move: "move without a task",
};

/** An SVG document. `title` is read out, and shown above the lanes. */
export function timeline(records: HistoryRecord[], title: string, colours: Colours): string {
  const clusters = clustersOf(records);
  const laneWidth = Math.max(96, ...clusters.map((cluster) => 8 * cluster.length + 28));
  const width = laneWidth + columnWidth * (records.length + 1) + 24;
  const height = top + laneHeight * clusters.length + 30 + 20 * Math.max(1, ...records.map(linesOf));
  const x = (column: number) => laneWidth + columnWidth * column;
  const y = (cluster: string) => top + laneHeight * clusters.indexOf(cluster) + laneHeight / 2;
  const parts: string[] = [];

  for (const cluster of clusters) {
    parts.push(
      `<line x1="${laneWidth}" x2="${width - 20}" y1="${y(cluster)}" y2="${y(cluster)}" stroke="${colours.lane}" stroke-width="2"/>`,
      label(12, y(cluster) + 5, cluster, colours.text, { weight: 600 }),
    );
  }
  let running = new Set(records.length ? [records[0]!.from, ...(records[0]!.before ?? [])] : []);
  let since = 0;
  let style = { colour: colours.good, dash: "" };
  records.forEach((record, index) => {
    const at = x(index + 1);
    for (const cluster of running) parts.push(bar(x(since) + (since ? gap : 8), at - gap, y(cluster), style));
    const phase = phases[record.phase] ?? { colour: "muted" as const, dash: "2 5", words: record.phase };
    const colour = colours[phase.colour];
    const targets = record.to ?? [];
    for (const target of targets) parts.push(arrow(at, y(record.from), y(target), colour, phase.dash));
    if (!targets.length) parts.push(stop(at, y(record.from), colour));
    parts.push(
      label(at, 26, types[record.type] ?? record.type, colours.text, { anchor: "middle", weight: 600 }),
      label(at, 45, phase.words, colour, { anchor: "middle", weight: 600 }),
    );
    if (record.time) parts.push(label(at, 64, record.time.replace("T", " ").replace("Z", " UTC"), colours.muted, { anchor: "middle", size: 12 }));
    stateLines(record).forEach((line, row) => {
      const isLoss = line.startsWith("missing ");
      const baseline = top + laneHeight * clusters.length + 24 + 20 * row;
      parts.push(label(at, baseline, shortened(line), isLoss ? colours.bad : colours.muted, { anchor: "middle", size: 12, isCode: true }));
    });
    const survivors = [...running].filter((cluster) => cluster !== record.from);
    running = new Set([...survivors, ...targets]);
    since = index + 1;
    style = { colour, dash: phase.dash };
  });
  for (const cluster of running) parts.push(bar(x(since) + (since ? gap : 8), width - 20, y(cluster), style));
  if (!records.length) parts.push(label(laneWidth, 48, "no moves yet", colours.muted, {}));

  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-labelledby="timeline-title" font-family="${font}" font-size="14">`,
    `<title id="timeline-title">${escape(`${title}: ${describe(records)}`)}</title>`,
    `<rect width="${width}" height="${height}" rx="10" fill="${colours.background}"/>`,
    ...parts,
    "</svg>\n",
  ].join("\n");
}

/** The history in words, one sentence a move. */
export function describe(records: HistoryRecord[]): string {
  if (!records.length) return "no moves yet";
  const sentences = records.map((record) => {
    const to = record.to?.length ? `to ${record.to.join(" and ")}` : "to no cluster yet";
    const state = Object.keys(record.state ?? {}).length ? `with ${stateLines(record)[0]}` : "without state";
    return `${types[record.type] ?? record.type} from ${record.from} ${to} ${state}, ${phases[record.phase]?.words ?? record.phase}`;
  });
  return `${sentences.join("; ")}.`;
}

function clustersOf(records: HistoryRecord[]): string[] {
  const names = records.flatMap((record) => [record.from, ...(record.before ?? []), ...(record.to ?? [])]);
  return [...new Set(names)];
}

function stateLines(record: HistoryRecord): string[] {
  const state = Object.entries(record.state ?? {}).map(([alias, value]) => `${alias.split("/").pop()} = ${value}`);
  const missing = Object.keys(record.missing ?? {}).map((alias) => `missing ${alias.split("/").pop()}`);
  const carried = record.carriedFrom ? [`carried over from ${record.carriedFrom}`] : [];
  return [...state, ...missing, ...carried];
}

function linesOf(record: HistoryRecord): number {
  return stateLines(record).length;
}

function shortened(text: string): string {
  return text.length > 30 ? `${text.slice(0, 29)}…` : text;
}

function bar(from: number, to: number, y: number, { colour, dash }: { colour: string; dash: string }): string {
  const line = dash ? ` stroke-dasharray="${dash}"` : "";
  return `<line x1="${from}" x2="${to}" y1="${y}" y2="${y}" stroke="${colour}" stroke-width="6" stroke-linecap="round"${line}/>`;
}

function arrow(x: number, from: number, to: number, colour: string, dash: string): string {
  const direction = Math.sign(to - from) || 1;
  const end = to - direction * 9;
  const line = dash ? ` stroke-dasharray="${dash}"` : "";
  const path = `M${x - gap + 4} ${from} Q${x} ${from} ${x} ${from + direction * 18} L${x} ${end}`;
  const head = `M${x - 6} ${end - direction * 3} L${x} ${to - direction * 2} L${x + 6} ${end - direction * 3}`;
  return `<path d="${path}" fill="none" stroke="${colour}" stroke-width="2"${line}/><path d="${head}" fill="none" stroke="${colour}" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"/>`;
}

function stop(x: number, y: number, colour: string): string {
  return `<path d="M${x - 5} ${y - 5} l10 10 m0 -10 l-10 10" stroke="${colour}" stroke-width="2.5" stroke-linecap="round"/>`;
}

interface LabelStyle {
  anchor?: "start" | "middle";
  weight?: number;
  size?: number;
  isCode?: boolean;
}

function label(x: number, y: number, text: string, colour: string, { anchor = "start", weight = 400, size = 14, isCode = false }: LabelStyle): string {
  const family = isCode ? ` font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"` : "";
  return `<text x="${x}" y="${y}" fill="${colour}" font-size="${size}" font-weight="${weight}" text-anchor="${anchor}"${family}>${escape(text)}</text>`;
}

function escape(text: string): string {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`).replace(/[\u0000-\u001f]/g, "�");
}
