import { readFile } from "node:fs/promises";
import { initSync } from "./wasm/core.js";
import { policy } from "./policy.js";

export { InputError } from "./policy.js";

let loading;

export function load() {
  loading ??= readFile(new URL("./wasm/core_bg.wasm", import.meta.url)).then((module) => {
    initSync({ module });
    return policy;
  });
  return loading;
}
