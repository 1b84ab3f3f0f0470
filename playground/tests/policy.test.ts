// The npm package, as a program in Node uses it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { InputError, load } from "@stateful-failover/policy";

const policy = await load();

test("a denied request says why", () => {
  const request = {
    kind: { group: "policy.karmada.io", version: "v1alpha1", kind: "PropagationPolicy" },
    name: "clicks",
    namespace: "default",
    operation: "CREATE",
    object: {
      spec: { failover: { cluster: { purgeMode: "Directly", statePreservation: { rules: [{ aliasLabelName: "a", jsonPath: "{.x" }] } } } },
    },
  };
  const verdict = policy.evaluate(request, {});
  assert.equal(verdict.allowed, false);
  assert.equal(verdict.code, 422);
  assert.match(verdict.message ?? "", /spec\.failover\.cluster\.statePreservation\.rules\[0\]\.jsonPath: `\{\.x` does not parse/);
  assert.equal(policy.evaluate(request, { lint: "Off" }).allowed, true);
});

test("numbers keep their digits in text", () => {
  const printed = policy.jsonPath("{.offset}", '{"offset": 12345678901234567890}');
  assert.deepEqual(printed, { text: "12345678901234567890", hasValue: true });
});

test("a wrong JSONPath has a position, and one that does not fit has none", () => {
  const wrong = policy.jsonPath("{.a", {});
  assert.equal(wrong.position, 4);
  assert.match(wrong.error ?? "", /not closed/);
  const missing = policy.jsonPath("{.a}", {});
  assert.equal(missing.position, undefined);
  assert.equal(missing.error, "`a` is not found");
  assert.equal(policy.jsonPath("{.a}", { a: null }).hasValue, false);
});

test("settings have their problems with paths", () => {
  assert.deepEqual(policy.validateSettings(null), []);
  const problems = policy.validateSettings({ guard: "Maybe", restore: { rules: [{ name: "x" }] } });
  assert.deepEqual(problems.map(({ path }) => path).slice(0, 2), ["guard", "restore.rules[0].match"]);
});

test("input that can't be used throws, with the place", () => {
  const problemsOf = (run: () => unknown) => {
    try {
      run();
    } catch (error) {
      assert.ok(error instanceof InputError);
      return error.problems.map(({ path }) => path);
    }
    return assert.fail("nothing was thrown");
  };
  assert.deepEqual(problemsOf(() => policy.evaluate("{", {})), ["request"]);
  assert.deepEqual(problemsOf(() => policy.evaluate({}, { x: 1 })), ["settings"]);
  assert.deepEqual(problemsOf(() => policy.evaluate({}, {}, { a: 1 })), ["objects"]);
  assert.deepEqual(problemsOf(() => policy.history({ metadata: { annotations: { "stateful-failover/history": "x" } } })), [
    "binding.metadata.annotations",
  ]);
  assert.deepEqual(problemsOf(() => policy.play('{"cause": "weather"}', {})), ["scenario"]);
});

test("any text for any argument is answered, or refused in words", () => {
  const texts = ["", "null", "[]", "1", '"x"', "{}", '{"spec":[]}', "\u0000", '{"metadata":[],"spec":{"clusters":[1]}}', "[[[["];
  for (const a of texts) {
    for (const b of texts) {
      for (const run of [
        () => policy.evaluate(a, b, "[]"),
        () => policy.validateSettings(a),
        () => policy.jsonPath(a, b),
        () => policy.history(a),
        () => policy.play({ propagationPolicy: a, workload: b, status: a, secondFailover: true, injection: true }, "null"),
        () => policy.play({ propagationPolicy: a, workload: b, status: b, cause: "cluster", twoClusters: true }, b, a),
      ]) {
        try {
          run();
        } catch (error) {
          assert.ok(error instanceof InputError, `${JSON.stringify([a, b])}: ${String(error)}`);
        }
      }
    }
  }
});
