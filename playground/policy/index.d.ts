/** A JSON document: its text, or the value. In text, numbers keep their digits. */
export type Json = string | object | null;

/** The text of a JSON document. */
export type JsonText = string;

/** What is wrong, and where: `restore.rules[0].set[1].path` in the settings, else the name of the argument. */
export interface Problem {
  path: string;
  message: string;
}

/** Thrown where an argument can't be used. */
export class InputError extends Error {
  readonly problems: Problem[];
}

/** The answer to an admission request. */
export interface Verdict {
  allowed: boolean;
  /** Why the request is denied. */
  message?: string;
  /** HTTP status code of a denial. */
  code?: number;
  /** The changed object; absent where nothing changed. */
  object?: JsonText;
  warnings: string[];
  /** What each stage did, by its name. */
  auditAnnotations: Record<string, string>;
  /** Why a stage did nothing. */
  notes: string[];
}

/** The result of a `jsonPath`. */
export interface Printed {
  /** What kubectl prints. */
  text?: string;
  /** Whether a state rule has a value: the text is not empty, and not the null of a single result. */
  hasValue: boolean;
  error?: string;
  /** Where the template is wrong, in characters from 1; absent where it does not fit the document. */
  position?: number;
}

/** One move of an application. */
export interface HistoryRecord {
  type: "application" | "cluster" | "move";
  reason?: string;
  producer?: string;
  purgeMode?: string;
  from: string;
  before?: string[];
  to?: string[];
  state?: Record<string, string>;
  /** The aliases without a value, and why. */
  missing?: Record<string, string>;
  carriedFrom?: string;
  /** RFC 3339. */
  time?: string;
  /** `Evicted`, `Pending`, `Recovered`, `Expired` or `Superseded`; a later version may have others. */
  phase: string;
}

/** A failover to rehearse. Everything but the first three is optional, and off by default. */
export interface Scenario {
  propagationPolicy: Json;
  workload: Json;
  /** `{metadata: {annotations, uid}, status}` of the workload in the failed cluster. */
  status: Json;
  /** The same in the next cluster, for a second move. */
  nextStatus?: Json;
  cause?: "application" | "cluster" | "move";
  sourceUnreachable?: boolean;
  secondFailover?: boolean;
  wayHome?: boolean;
  twoClusters?: boolean;
  valueMissing?: boolean;
  /** Karmada's feature gate StatefulFailoverInjection. */
  injection?: boolean;
}

export type Act = "createPolicy" | "report" | "evict" | "schedule" | "removeTasks" | "removeWork" | "writeWork";

/** An action of one of Karmada's controllers, and its result. */
export interface PlayedAct {
  act: Act;
  clusters: string[];
  /** The request that the policy saw, if any. */
  step?: Evaluated;
  /** The binding afterwards. */
  binding: JsonText;
}

/** A request, its answer, and the stored object, which is absent where the request was denied. */
export interface Evaluated {
  request: JsonText;
  /** The object of the request. */
  object: JsonText;
  isCreate: boolean;
  stored?: JsonText;
  verdict: Verdict;
}

/** How the rehearsal ended. */
export interface Outcome {
  /** The cluster that the application left last; empty where it left none. */
  from: string;
  /** The cluster that the application moves to. */
  cluster: string;
  /** Why the application did not get there. */
  stop?: string | null;
  /** The manifest that the new copy was started with. */
  started?: JsonText;
  /** The manifest after Karmada's next sync. */
  synced?: JsonText;
  state: Record<string, string>;
  /** The fields that restore rules set: path to value. */
  restored: Record<string, unknown>;
  /** A running copy that was given the state of the one that failed. */
  disturbed?: string | null;
}

export interface Play {
  acts: PlayedAct[];
  outcome: Outcome;
  karmadaAlone: Outcome;
}

/** The policy's core. */
export interface Policy {
  /** Decides an AdmissionRequest; `objects` is what lookups find. */
  evaluate(request: Json, settings: Json, objects?: Json): Verdict;
  /** The errors in settings; empty where they are valid. */
  validateSettings(settings: Json): Problem[];
  /** Evaluates the `jsonPath` of a state rule on a document, which for a rule is the status. */
  jsonPath(template: string, document: Json): Printed;
  /** The failover history of a binding, oldest first. */
  history(binding: Json): HistoryRecord[];
  /** Rehearses a failover with the policy, and with Karmada alone. */
  play(scenario: Scenario | JsonText, settings: Json, objects?: Json): Play;
}

/** Loads the module, once. */
export function load(): Promise<Policy>;
