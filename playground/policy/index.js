import init from "./wasm/core.js";
import { policy } from "./policy.js";

export { InputError } from "./policy.js";

let loading;

export function load() {
  loading ??= init({ module_or_path: new URL("./wasm/core_bg.wasm", import.meta.url) }).then(() => policy);
  return loading;
}
