// Failover histories as pictures.
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { test } from "node:test";
import { draw } from "../src/pictures";
import { describe, light, timeline } from "../src/timeline";

test("the pictures in docs/ are those that `make pictures` draws", async () => {
  const folder = new URL("../../docs/pictures/", import.meta.url);
  const drawn = await draw();
  assert.deepEqual((await readdir(folder)).sort(), [...drawn.keys()].sort());
  for (const [name, svg] of drawn) assert.equal(await readFile(new URL(name, folder), "utf8"), svg, `${name}; run \`make pictures\``);
});

test("a history in words", () => {
  assert.equal(describe([]), "no moves yet");
  const state = { "example.io/id": "7" };
  assert.equal(
    describe([
      { type: "application", from: "a", to: ["b"], state, phase: "Superseded" },
      { type: "application", from: "b", state, carriedFrom: "a", phase: "Pending" },
      { type: "move", from: "c", to: ["a"], missing: { "example.io/id": "gone" }, phase: "Frozen" },
    ]),
    "application failover from a to b with id = 7, a later move took over; " +
      "application failover from b to no cluster yet with id = 7, state still to be fed; " +
      "move without a task from c to a without state, Frozen.",
  );
});

test("a picture holds no text that is not escaped", () => {
  const hostile = '<script>alert("x")</script>&\u0001';
  const svg = timeline([{ type: "move", from: hostile, to: [hostile], state: { [hostile]: hostile }, phase: hostile, time: hostile }], hostile, light);
  assert.ok(!svg.includes("<script>"));
  assert.ok(!svg.includes("\u0001"));
});

test("no moves, many moves, and moves to several clusters are drawn", () => {
  assert.match(timeline([], "t", light), /no moves yet/);
  const records = Array.from({ length: 20 }, (_, index) => ({ type: "cluster" as const, from: `c${index}`, to: [`c${index + 1}`, "x"], phase: "Recovered" }));
  const svg = timeline(records, "t", light);
  assert.equal(svg.match(/cluster failover<\/text>/g)?.length, 20);
  assert.ok(!/NaN|undefined/.test(svg));
});
