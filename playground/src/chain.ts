// The actions of a rehearsal, as the steps of the chain on the page.
import type { Play, PlayedAct, Verdict } from "@stateful-failover/policy";
import { toYaml } from "./document";

export type Kind = "policy" | "source" | "binding" | "work" | "cluster";
export type Mark = "passed" | "changed" | "warned" | "denied" | "stopped" | "waiting";

export interface Act {
  title: string;
  mark: Mark;
  verdict?: Verdict;
  /** What the policy did, by its own audit annotations. */
  done: string[];
  before: string;
  after: string;
}

export interface Step {
  id: string;
  kind: Kind;
  title: string;
  subtitle: string;
  acts: Act[];
  mark: Mark;
}

const order: Mark[] = ["waiting", "passed", "changed", "warned", "stopped", "denied"];

/** The steps of a play; those that were not reached have no acts. */
export function chain(play: Play, workload: string, hasSecondMove: boolean): Step[] {
  const manifest = JSON.parse(workload) as { kind?: string; metadata?: { name?: string } } | null;
  const object = `${manifest?.kind ?? "workload"} ${manifest?.metadata?.name ?? ""}`.trim();
  const source = play.acts.find(({ act }) => act === "writeWork")?.clusters[0];
  const steps: Step[] = [
    step("policy", "policy", "PropagationPolicy", "lint"),
    step("source", "source", source ?? "source cluster", object),
    step("binding", "binding", "ResourceBinding", "preserve, guard"),
    step("work", "work", "Work", "feed, restore"),
    step("cluster", "cluster", "new cluster", object),
  ];
  if (hasSecondMove) {
    steps.push(
      step("binding-2", "binding", "ResourceBinding", "preserve, guard"),
      step("work-2", "work", "Work", "feed, restore"),
      step("cluster-2", "cluster", "last cluster", object),
    );
  }
  const find = (id: string) => steps.find((candidate) => candidate.id === id);
  let move = 0;
  let kind: Kind = "policy";
  let binding = "";
  for (const played of play.acts) {
    [kind, move] = place(played, kind, move);
    const id = move > 1 && kind !== "policy" && kind !== "source" ? `${kind}-2` : kind;
    const current = find(id);
    const [cluster] = played.clusters;
    if (current && cluster && kind === "cluster" && played.act === "report") current.title = cluster;
    current?.acts.push(present(played, binding));
    binding = played.binding;
  }
  const last = hasSecondMove ? find("cluster-2") : find("cluster");
  if (last && play.outcome.started) {
    last.title = play.outcome.cluster;
    last.acts.unshift({
      title: `The object in ${play.outcome.cluster}, beside its template`,
      mark: Object.keys(play.outcome.restored).length ? "changed" : "passed",
      done: [],
      before: toYaml(workload),
      after: toYaml(play.outcome.started),
    });
  }
  for (const current of steps) {
    current.mark = order.findLast((mark) => current.acts.some((act) => act.mark === mark)) ?? "waiting";
  }
  const reached = steps.findLast((current) => current.acts.length);
  if (play.outcome.stop && reached && reached.mark !== "denied") {
    // Karmada itself stops here, without a request.
    const next = steps[steps.indexOf(reached) + 1] ?? reached;
    const target = reached.kind === "source" ? next : reached;
    target.mark = "stopped";
    target.acts.push({ title: play.outcome.stop, mark: "stopped", done: [], before: "", after: "" });
  }
  return steps;
}

function step(id: string, kind: Kind, title: string, subtitle: string): Step {
  return { id, kind, title, subtitle, acts: [], mark: "waiting" };
}

/** Which step an act belongs to, and of which move. */
function place(played: PlayedAct, kind: Kind, move: number): [Kind, number] {
  switch (played.act) {
    case "createPolicy":
      return ["policy", 0];
    case "evict":
    case "schedule":
      return ["binding", kind === "source" || kind === "cluster" ? move + 1 : move];
    case "report":
      return [move === 0 ? "source" : "cluster", move];
    case "writeWork":
      return [move === 0 ? "source" : kind === "cluster" ? "cluster" : "work", move];
    case "removeTasks":
    case "removeWork":
      return [kind, move];
  }
}

function present(played: PlayedAct, binding: string): Act {
  const { step: evaluated } = played;
  const clusters = played.clusters.join(" and ");
  if (!evaluated) {
    const title = played.act === "report" ? `The status of ${clusters} is collected` : `The Work for ${clusters} is gone`;
    return { title, mark: "passed", done: [], before: toYaml(binding), after: toYaml(played.binding) };
  }
  const { object, verdict } = evaluated;
  const titles: Record<PlayedAct["act"], string> = {
    createPolicy: "The policy is created",
    evict: `${clusters} is evicted`,
    schedule: `Scheduled to ${clusters || "no cluster"}`,
    removeTasks: "The eviction task is removed",
    writeWork: `The Work for ${clusters} is ${evaluated.isCreate ? "created" : "updated"}`,
    report: "",
    removeWork: "",
  };
  const mark: Mark = !verdict.allowed ? "denied" : verdict.warnings.length ? "warned" : verdict.object ? "changed" : "passed";
  return {
    title: titles[played.act],
    mark,
    verdict,
    done: Object.entries(verdict.auditAnnotations).map(([stage, text]) => `${stage}: ${text}`),
    before: toYaml(object),
    after: toYaml(evaluated.stored ?? object),
  };
}
