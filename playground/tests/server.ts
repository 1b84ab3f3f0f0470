// Serves the built site on loopback, as any web host would, with the module and the evaluations that it is held against.
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
export const target = here("../../target/playground");
export const evaluations = here("../../target/evaluations.jsonl");

const folders: [prefix: string, folder: string][] = [
  ["/policy/", here("../policy/")],
  ["/", here("../.vitepress/dist/")],
];
const types: Record<string, string> = {
  ".css": "text/css",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".jsonl": "application/jsonl",
  ".svg": "image/svg+xml",
  ".wasm": "application/wasm",
  ".woff2": "font/woff2",
};

export async function serve(): Promise<{ origin: string; close: () => void }> {
  const server: Server = createServer((request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url ?? "/", "http://localhost").pathname));
    const [prefix, folder] = folders.find(([prefix]) => path.startsWith(prefix))!;
    const file = path === "/evaluations.jsonl" ? evaluations : join(folder, path.slice(prefix.length) || "index.html");
    stat(file).then(
      ({ size }) => {
        response.writeHead(200, { "content-type": types[extname(file)] ?? "application/octet-stream", "content-length": size });
        createReadStream(file).pipe(response);
      },
      () => response.writeHead(404).end(),
    );
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address() as AddressInfo;
  return { origin: `http://127.0.0.1:${port}`, close: () => server.close() };
}
