// A link holds the whole state of the page, compressed in its fragment, which browsers do not send to any server.

/** The inputs and switches of the page. */
export interface State {
  /** Name of the example that the inputs began with. */
  example: string;
  inputs: Inputs;
  switches: Switches;
  /** The step that is shown. */
  step: string;
  view: "failover" | "timeline";
  /** The binding of the timeline. */
  binding: string;
}

/** YAML texts. */
export interface Inputs {
  propagationPolicy: string;
  workload: string;
  status: string;
  nextStatus: string;
  settings: string;
  objects: string;
}

export interface Switches {
  cause: "application" | "cluster" | "move";
  sourceUnreachable: boolean;
  secondFailover: boolean;
  wayHome: boolean;
  twoClusters: boolean;
  valueMissing: boolean;
  injection: boolean;
}

const prefix = "#play=";

export async function toFragment(state: Partial<State>): Promise<string> {
  const text = new TextEncoder().encode(JSON.stringify(state));
  const bytes = await through(text, new CompressionStream("deflate-raw"));
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return prefix + btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** The state in a fragment; `undefined` where there is none. Throws where it can't be read. */
export async function fromFragment(fragment: string): Promise<Partial<State> | undefined> {
  if (!fragment.startsWith(prefix)) return undefined;
  const binary = atob(fragment.slice(prefix.length).replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(binary, (character) => character.charCodeAt(0));
  const text = await through(bytes, new DecompressionStream("deflate-raw"));
  const state: unknown = JSON.parse(new TextDecoder().decode(text));
  if (state === null || typeof state !== "object") throw new TypeError("the link holds no state");
  return state as Partial<State>;
}

async function through(bytes: Uint8Array<ArrayBuffer>, stream: CompressionStream | DecompressionStream): Promise<Uint8Array> {
  const response = new Response(new Blob([bytes]).stream().pipeThrough(stream));
  return new Uint8Array(await response.arrayBuffer());
}
