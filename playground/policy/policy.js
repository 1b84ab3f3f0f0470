import * as core from "./wasm/core.js";

export class InputError extends Error {
  constructor(problems) {
    super(problems.map(({ path, message }) => `${path}: ${message}`).join("\n"));
    this.name = "InputError";
    this.problems = problems;
  }
}

function text(json) {
  return typeof json === "string" ? json : JSON.stringify(json ?? null);
}

const documents = ["propagationPolicy", "workload", "status", "nextStatus"];

function scenarioText(scenario) {
  if (typeof scenario === "string") return scenario;
  const fields = Object.entries(scenario).filter(([, value]) => value !== undefined);
  const values = fields.map(([key, value]) => (documents.includes(key) ? text(value) : JSON.stringify(value)));
  return `{${fields.map(([key], index) => `${JSON.stringify(key)}:${values[index]}`).join()}}`;
}

function read(answer) {
  const { value, problems } = JSON.parse(answer);
  if (problems) throw new InputError(problems);
  return value;
}

export const policy = Object.freeze({
  evaluate: (request, settings, objects = []) => read(core.evaluate(text(request), text(settings), text(objects))),
  validateSettings: (settings) => read(core.validateSettings(text(settings))),
  jsonPath: (template, document) => read(core.jsonPath(template, text(document))),
  history: (binding) => read(core.history(text(binding))),
  play: (scenario, settings, objects = []) => read(core.play(scenarioText(scenario), text(settings), text(objects))),
});
