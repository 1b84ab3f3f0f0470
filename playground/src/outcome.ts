// How a rehearsal ended, in words.
import type { Outcome } from "@stateful-failover/policy";
import type { Switches } from "./link";

export interface Ending {
  mark: "good" | "partly" | "bad";
  headline: string;
  lines: string[];
}

const plural = (count: number, word: string) => `${count} ${word}${count === 1 ? "" : "s"}`;

export function withPolicy({ cluster, stop, state, restored, synced }: Outcome, { twoClusters }: Switches): Ending {
  if (stop) return { mark: "bad", headline: cluster ? `It does not start in ${cluster}` : "The policy is rejected", lines: [stop] };
  const values = Object.entries(state).map(([alias, value]) => `${alias} = ${value}`);
  const fields = Object.entries(restored).map(([path, value]) => `${path} = ${typeof value === "string" ? value : JSON.stringify(value)}`);
  if (!values.length && twoClusters) {
    const lines = ["State is fed only where one cluster is chosen: a running copy keeps its own. A warning on the Work says so."];
    return { mark: "partly", headline: `The other copy keeps running; ${cluster} starts cold`, lines };
  }
  if (!values.length) return { mark: "bad", headline: `It starts cold in ${cluster}`, lines: ["No state was carried over; the steps say why."] };
  if (!fields.length) {
    return {
      mark: "partly",
      headline: `The state reaches ${cluster}, and no rule restores it`,
      lines: [...values, "It is in labels and an annotation of the object. Add a restore rule for the fields that the application resumes from."],
    };
  }
  const kept = synced ? ["Karmada's next sync changes neither."] : [];
  return { mark: "good", headline: `It resumes in ${cluster}, with ${plural(fields.length, "restored field")}`, lines: [...fields, ...kept] };
}

export function karmadaAlone(outcome: Outcome, { injection, cause, sourceUnreachable, twoClusters }: Switches): Ending {
  const { from, cluster, stop, state, disturbed, synced } = outcome;
  if (stop) {
    const isMoved = Boolean(outcome.started) || stop.includes("rejects the object");
    return { mark: "bad", headline: isMoved ? `It does not start in ${cluster}` : `It stays in ${from}`, lines: [stop] };
  }
  const lines = disturbed ? [`Meanwhile the state of ${from} is written onto the healthy copy in ${disturbed}.`] : [];
  const values = Object.entries(state).map(([alias, value]) => `${alias} = ${value}`);
  if (!values.length) {
    const why =
      cause === "move" ? "Without an eviction task, Karmada preserves nothing."
      : !injection ? "Its feature gate StatefulFailoverInjection is off, as it is by default: nothing is preserved."
      : sourceUnreachable ? "The new copy waits for the eviction task to time out, and the state was on the task."
      : twoClusters ? "Karmada feeds state only where one cluster is chosen."
      : "The eviction that is fed, if any, has no state.";
    return { mark: "bad", headline: `It starts cold in ${cluster}`, lines: [why, ...lines] };
  }
  const gone = synced ? ["The next sync removes the label, since the eviction task is gone."] : [];
  return {
    mark: "partly",
    headline: `A label in ${cluster} that nothing reads`,
    lines: [...values, "Karmada writes no field that the application resumes from.", ...gone, ...lines],
  };
}
