import { mkdir, writeFile } from "node:fs/promises";
import { draw } from "../src/pictures";

const folder = new URL("../../docs/pictures/", import.meta.url);
await mkdir(folder, { recursive: true });
for (const [name, svg] of await draw()) await writeFile(new URL(name, folder), svg);
