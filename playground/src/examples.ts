// The starting points of the page: each folder of examples/, and each recording of a real failover.
import type { Inputs, Switches } from "./link";
import { field, read, toYaml } from "./document";

export interface Example {
  name: string;
  group: "examples" | "recordings";
  inputs: Inputs;
  switches: Switches;
  /** The binding as the recording ends. */
  binding: string;
}

export const off: Switches = {
  cause: "application",
  sourceUnreachable: false,
  secondFailover: false,
  wayHome: false,
  twoClusters: false,
  valueMissing: false,
  injection: false,
};

const files = import.meta.glob<string>("../../examples/*/*.yaml", { query: "?raw", import: "default", eager: true });
const recordings = import.meta.glob<string>("../recordings/*.yaml", { query: "?raw", import: "default", eager: true });

const empty: Inputs = { propagationPolicy: "", workload: "", status: "", nextStatus: "", settings: "", objects: "" };

function fromFolder(name: string): Example {
  const file = (kind: string) => files[`../../examples/${name}/${kind}.yaml`] ?? "";
  const propagationPolicy = file("propagationpolicy");
  const inputs: Inputs = {
    ...empty,
    propagationPolicy,
    workload: file("workload"),
    status: file("status"),
    settings: file("settings"),
    objects: file("latest-checkpoints"),
  };
  const failover: unknown = read(propagationPolicy).document.getIn(["spec", "failover", "application"]);
  return { name, group: "examples", inputs, switches: { ...off, cause: failover ? "application" : "cluster" }, binding: "" };
}

function fromRecording(path: string, text: string): Example {
  const { document, json } = read(text);
  const fields = JSON.parse(json) as Record<string, unknown>;
  const part = (key: string) => toYaml(field(document, key));
  const inputs: Inputs = {
    ...empty,
    propagationPolicy: part("propagationPolicy"),
    workload: part("workload"),
    status: part("status"),
    nextStatus: part("nextStatus"),
    settings: files["../../examples/flinkdeployment/settings.yaml"] ?? "",
  };
  const switches = { ...off };
  for (const key of Object.keys(off) as (keyof Switches)[]) {
    if (key in fields) Object.assign(switches, { [key]: fields[key] });
  }
  const name = path.split("/").pop()!.replace(/\.yaml$/, "");
  return { name, group: "recordings", inputs, switches, binding: part("binding") };
}

export const names = {
  examples: [...new Set(Object.keys(files).map((path) => path.split("/").at(-2)!))].sort(),
  recordings: Object.keys(recordings).map((path) => path.split("/").pop()!.replace(/\.yaml$/, "")).sort(),
};

export function example(id: string): Example | undefined {
  const [group, name = ""] = id.split("/");
  if (group === "examples" && names.examples.includes(name)) return fromFolder(name);
  const path = `../recordings/${name}.yaml`;
  const text = group === "recordings" ? recordings[path] : undefined;
  return text === undefined ? undefined : fromRecording(path, text);
}
