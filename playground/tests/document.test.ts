// YAML in, JSON text out, and positions for messages.
import assert from "node:assert/strict";
import { test } from "node:test";
import { parsePath, pathOfMessage, rangeOf, read, readAll, toYaml } from "../src/document";

test("YAML becomes JSON text with the digits that were written", () => {
  for (const [yaml, json] of [
    ["a: 12345678901234567890", '{"a":12345678901234567890}'],
    ["a: 1.50", '{"a":1.50}'],
    ["a: 1e6", '{"a":1e6}'],
    ["a: '007'", '{"a":"007"}'],
    ["a: ~\nb: true\nc: [x, 'y']", '{"a":null,"b":true,"c":["x","y"]}'],
    ["x: &x {k: 1}\ny:\n  <<: *x\n  z: 2", '{"x":{"k":1},"y":{"k":1,"z":2}}'],
    ["", "null"],
  ] as const) {
    assert.equal(read(yaml).json, json);
  }
});

test("JSON text becomes YAML as kubectl prints it", () => {
  assert.equal(toYaml('{"b":{"z":[],"y":[1.50,12345678901234567890]},"a":"1","c":"x\\ny\\n"}'), 'a: "1"\nb:\n  y:\n  - 1.50\n  - 12345678901234567890\n  z: []\nc: |\n  x\n  y\n');
});

test("several documents are a list", () => {
  assert.equal(readAll("a: 1\n---\n---\nb: 2\n").json, '[{"a":1},{"b":2}]');
  assert.equal(readAll("").json, "[]");
});

test("a mistake stands where it was made", () => {
  const { mistakes } = read("a: [1\nb: 2\n");
  assert.ok(mistakes.length > 0);
  assert.ok(mistakes.every(({ from, to, message }) => from < to && !message.includes("\n")));
});

test("a path of a message leads to its value, or to what is above it", () => {
  const text = "restore:\n  rules:\n  - name: x\n    set:\n    - {path: /a, value: 1}\n";
  const at = (path: string) => {
    const { from, to } = rangeOf(read(text).document, parsePath(path));
    return text.slice(from, to);
  };
  assert.equal(at("restore.rules[0].set[0].path"), "/a");
  assert.equal(at("restore.rules[0].set[0].templat"), "{");
  assert.equal(at("restore.rules[0].match"), "n");
  assert.equal(at("restore.rules"), "rules");
  assert.equal(at("restore.rules[0].set[`a key`]"), "set");
});

test("a warning names its path, a denial too", () => {
  assert.deepEqual(pathOfMessage("spec.placement: can choose several clusters; add x"), {
    path: ["spec", "placement"],
    rest: "can choose several clusters; add x",
  });
  const denial = "PropagationPolicy `a/b` would lose state in a failover: spec.failover.cluster.statePreservation.rules[0].jsonPath: `{` is wrong; try it";
  assert.deepEqual(pathOfMessage(denial)?.path, ["spec", "failover", "cluster", "statePreservation", "rules", 0, "jsonPath"]);
  assert.equal(pathOfMessage("state not fed: cannot read x"), undefined);
});
