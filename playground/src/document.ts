// YAML documents with the positions of their values, and JSON text. Numbers keep their digits: the policy carries
// numbers that a JavaScript number can't hold.
import { type Document, isAlias, isNode, isScalar, parseAllDocuments, parseDocument, type ScalarTag, visit, YAMLMap } from "yaml";

/** A number that is not whole, as it was written. */
class NumberText {
  constructor(readonly text: string) {}
}

const jsonNumber = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?$/;

const float: ScalarTag = {
  tag: "tag:yaml.org,2002:float",
  default: true,
  test: /^[-+]?(?:\.\d+|\d+\.\d*|\d+(?:\.\d*)?[eE][-+]?\d+)(?:[eE][-+]?\d+)?$/,
  identify: (value) => value instanceof NumberText,
  resolve: (text) => (jsonNumber.test(text) ? new NumberText(text) : Number(text)),
  stringify: (item) => (item.value instanceof NumberText ? item.value.text : String(item.value)),
};

const options = {
  intAsBigInt: true,
  merge: true,
  uniqueKeys: true,
  customTags: (tags: unknown[]) => [float, ...tags] as never,
};

export type Path = readonly (string | number)[];

/** A mistake in a text: where, in UTF-16 offsets, and what. */
export interface Mistake {
  from: number;
  to: number;
  message: string;
  severity: "error" | "warning";
}

export interface ReadDocument {
  /** JSON text; `null` for an empty text. */
  json: string;
  document: Document.Parsed;
  mistakes: Mistake[];
}

/** Reads one YAML document; a JSON document is one. */
export function read(text: string): ReadDocument {
  const document = parseDocument(text, options);
  return { json: document.errors.length ? "null" : toJson(document.toJS()), document, mistakes: mistakesOf(document) };
}

/** The JSON text of one field; `null` where there is none. */
export function field(document: Document.Parsed, key: string): string {
  const node: unknown = document.get(key, true);
  return isNode(node) ? toJson(node.toJS(document)) : "null";
}

/** Reads all documents of a text into one JSON list. */
export function readAll(text: string): { json: string; mistakes: Mistake[] } {
  const parsed = parseAllDocuments(text, options);
  const documents = Array.isArray(parsed) ? parsed : [];
  const mistakes = documents.flatMap((document) => mistakesOf(document));
  const values = mistakes.length ? [] : documents.map((document) => document.toJS()).filter((value) => value !== null);
  return { json: toJson(values), mistakes };
}

function mistakesOf(document: Document.Parsed): Mistake[] {
  return document.errors.map(({ pos: [from, to], message }) => ({
    from,
    to: Math.max(to, from + 1),
    // The library adds the position and the line, which the editor shows anyway.
    message: message.split("\n", 1)[0]!.replace(/ at line \d+, column \d+:?$/, ""),
    severity: "error",
  }));
}

function toJson(value: unknown): string {
  if (value instanceof NumberText) return value.text;
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return `[${value.map(toJson).join()}]`;
  if (value !== null && typeof value === "object") {
    const fields = Object.entries(value).map(([key, field]) => `${JSON.stringify(key)}:${toJson(field)}`);
    return `{${fields.join()}}`;
  }
  return JSON.stringify(value ?? null);
}

/** JSON text as `kubectl get -o yaml` writes it: block style, keys sorted. */
export function toYaml(json: string | undefined): string {
  if (json === undefined || json === "null") return "";
  const document = parseDocument(json, options);
  visit(document, {
    Collection: (_, node) => {
      node.flow = node.items.length === 0;
      if (node instanceof YAMLMap) node.items.sort((a, b) => (String(a.key) < String(b.key) ? -1 : 1));
    },
    Scalar: (_, node) => {
      delete node.type;
    },
  });
  return document.toString({ lineWidth: 0, indentSeq: false });
}

/** Where the value at `path` stands, or the nearest one above it that exists. */
export function rangeOf(document: Document.Parsed, path: Path): { from: number; to: number } {
  for (let length = path.length; length >= 0; length -= 1) {
    const parent: unknown = length > 0 ? document.getIn(path.slice(0, length - 1), true) : null;
    const node: unknown = length > 0 ? document.getIn(path.slice(0, length), true) : document.contents;
    if (!isNode(node) || !node.range) continue;
    const isValue = isScalar(node) || isAlias(node);
    const pair = parent instanceof YAMLMap ? parent.items.find((item) => item.value === node) : undefined;
    // A mark on a whole object would span many lines, so only its key is marked.
    if (!isValue && isScalar(pair?.key) && pair.key.range) return { from: pair.key.range[0], to: pair.key.range[1] };
    const [from, to] = node.range;
    return { from, to: isValue ? Math.max(to, from + 1) : from + 1 };
  }
  return { from: 0, to: 1 };
}

/** The path in a message of the policy: `restore.rules[0].set[1].path`, `preserve[`a key`]`. */
export function parsePath(text: string): Path {
  const parts = text.matchAll(/\[(\d+)\]|\[`([^`]*)`\]|([^.[\]]+)/g);
  return [...parts].map(([, index, quoted, name]) => (index === undefined ? (quoted ?? name ?? "") : Number(index)));
}

/** The message's own path, if it begins with one that is below `spec`. */
export function pathOfMessage(message: string): { path: Path; rest: string } | undefined {
  const found = /(?:^|: |; )(spec(?:\.[A-Za-z]+|\[\d+\])+): /.exec(message);
  if (!found?.[1]) return undefined;
  return { path: parsePath(found[1]), rest: message.slice(found.index + found[0].length) };
}
