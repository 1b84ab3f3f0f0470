// The failover histories of recorded failovers as pictures for the README and the guide.
import { readFile } from "node:fs/promises";
import { load } from "@stateful-failover/policy";
import { field, read } from "./document";
import { dark, light, timeline } from "./timeline";

const pictures: [recording: string, title: string][] = [
  ["application-failover", "An application failover"],
  ["repeated-failover", "A second failover before the application was healthy"],
  ["unreachable-source", "A cluster failover from a cluster that does not answer"],
  ["late-health", "A failover, and the way home"],
];

/** File name to SVG, each light and dark. */
export async function draw(): Promise<Map<string, string>> {
  const policy = await load();
  const drawn = new Map<string, string>();
  for (const [recording, title] of pictures) {
    const { document } = read(await readFile(new URL(`../recordings/${recording}.yaml`, import.meta.url), "utf8"));
    const records = policy.history(field(document, "binding"));
    for (const [name, colours] of Object.entries({ light, dark })) {
      drawn.set(`${recording}-${name}.svg`, timeline(records, title, colours));
    }
  }
  return drawn;
}
