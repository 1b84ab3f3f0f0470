// The site in a real browser.
import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";
import axe from "axe-core";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { serve, target } from "./server";

let site: Awaited<ReturnType<typeof serve>>;
let browser: Browser;
const desk = { width: 1440, height: 900 };
const phone = { width: 390, height: 844 };

before(async () => {
  await mkdir(target, { recursive: true });
  site = await serve();
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    // The rest keeps Chromium from looking for hosts of its maker.
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
});
after(async () => {
  await browser?.close();
  site?.close();
});

interface Options {
  viewport?: typeof desk;
  colorScheme?: "light" | "dark";
  hasTouch?: boolean;
}

/** A page that fails the test for every error in its console, and every request to another origin. */
async function visit(path: string, run: (page: Page, context: BrowserContext) => Promise<void>, options: Options = {}) {
  const context = await browser.newContext({ viewport: desk, acceptDownloads: true, ...options });
  // What tsx calls around the functions that are sent to the page.
  await context.addInitScript("globalThis.__name = (value) => value");
  const page = await context.newPage();
  page.setDefaultTimeout(10_000);
  const complaints: string[] = [];
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(site.origin) && !url.startsWith("data:") && !url.startsWith("blob:")) complaints.push(`asks ${url}`);
  });
  try {
    await page.goto(site.origin + path);
    await run(page, context);
    assert.deepEqual(complaints, []);
  } finally {
    await context.close();
  }
}

async function play(run: (page: Page, context: BrowserContext) => Promise<void>, options?: Options, fragment = "") {
  await visit(
    `/playground.html${fragment}`,
    async (page, context) => {
      await page.locator('.pg[data-ready="true"]').waitFor();
      await run(page, context);
    },
    options,
  );
}

/** A picture of the whole page. The window is made as high as that, since editors draw only what is in it. */
async function shot(page: Page, name: string) {
  const viewport = page.viewportSize()!;
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  await page.setViewportSize({ width: viewport.width, height });
  await page.screenshot({ path: join(target, `${name}.png`) });
  await page.setViewportSize(viewport);
}
const ending = (page: Page, who: "policy" | "alone") => page.locator(`[data-ending="${who}"] .pg-headline`).innerText();
const mark = (page: Page, step: string) => page.locator(`[data-step="${step}"]`).getAttribute("data-mark");

/** Replaces the text of the editor that is shown. */
async function write(page: Page, label: string, text: string) {
  await page.getByRole("textbox", { name: label, exact: true }).focus();
  await page.keyboard.press("Control+a");
  await page.keyboard.insertText(text);
}

async function seriousFaults(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  const results = await page.evaluate(() => (globalThis as unknown as { axe: typeof axe }).axe.run());
  const serious = results.violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  return serious.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target.join(" ")} ${node.failureSummary}`));
}

test("the failover of a Flink job, step by step to its end", async () => {
  await play(async (page) => {
    assert.equal(await ending(page, "policy"), "It resumes in member2, with 1 restored field");
    assert.equal(await ending(page, "alone"), "It starts cold in member2");
    const steps = await page.locator(".pg-step").all();
    assert.equal(steps.length, 5);
    for (const step of steps) {
      await step.click();
      const name = await step.getAttribute("data-step");
      assert.equal(await page.locator("[data-result]").getAttribute("data-result"), name);
      await shot(page, `step-${name}`);
    }
    // The last: what member2 gets.
    const object = page.locator("[data-diff]");
    await object.locator(".cm-scroller").evaluate((scroller) => {
      scroller.scrollIntoView();
      scroller.scrollTo(0, scroller.scrollHeight);
    });
    await object.getByText("initialSavepointPath:").last().waitFor();
    assert.match(await object.innerText(), /initialSavepointPath: s3:\/\/flink-state\/stream-prod\/checkpoints\/e6fd0a8b5c4d4f3b9a7e112233445566\/latest/);
    assert.match(await page.locator(".pg-timeline figcaption").innerText(), /application failover from member1 to member2/);
  });
});

test("what is edited flows on", async () => {
  await play(async (page) => {
    await page.locator('[data-tab="settings"]').click();
    const settings = await page.getByRole("textbox", { name: "Settings" }).innerText();
    await write(page, "Settings", settings.replace("/latest", "/newest").replace(/\u200b/g, ""));
    await page.locator('[data-step="work"]').click();
    await page.getByText("/e6fd0a8b5c4d4f3b9a7e112233445566/newest").first().waitFor();
    await write(page, "Settings", "restore:\n  rules:\n  - nam: x\n");
    await page.locator(".pg-failure").getByText("unknown field `nam`").waitFor();
    // The mistake stands at its line.
    await page.locator(".cm-lintRange-error").first().waitFor();
    await shot(page, "settings-with-a-mistake");
    await write(page, "Settings", "a: [");
    await page.locator(".pg-failure").getByText("the YAML can't be read").waitFor();
  });
});

test("a wrong JSONPath, corrected", async () => {
  await play(async (page) => {
    await page.locator('[data-step="source"]').click();
    const field = page.getByRole("textbox", { name: "Try a JSONPath on this status" });
    await field.fill("{.jobStatus.jobId");
    await page.getByText("does not parse, at character 18").waitFor();
    assert.equal(await page.locator(".pg-column mark").innerText(), " ");
    await shot(page, "jsonpath-wrong");
    await field.fill("{.jobStatus.jobID}");
    await page.getByText("`jobID` is not found").waitFor();
    await field.fill("{.jobStatus.jobId}");
    assert.equal(await page.locator("output").innerText(), "e6fd0a8b5c4d4f3b9a7e112233445566");
  });
});

test("a denied PropagationPolicy, with the error at its line", async () => {
  await play(async (page) => {
    const policy = await page.getByRole("textbox", { name: "PropagationPolicy" }).innerText();
    await write(page, "PropagationPolicy", policy.replace("'{.jobStatus.jobId}'", "jobStatus.jobId"));
    await page.locator('[data-step="policy"][data-mark="denied"]').waitFor();
    assert.equal(await ending(page, "policy"), "The policy is rejected");
    const mistake = page.locator(".pg-messages li").first();
    assert.match(await mistake.innerText(), /has no braces and is taken as text; write `\{\.jobStatus\.jobId\}`/);
    await mistake.getByRole("button").click();
    assert.equal(await page.evaluate(() => getSelection()?.toString()), "jobStatus.jobId");
    await shot(page, "policy-denied");
  });
});

test("what can break, and what Karmada alone makes of it", async () => {
  await play(async (page) => {
    const flip = (name: string) => page.getByRole("switch", { name }).dispatchEvent("click");
    await flip("Value missing");
    await page.locator('[data-step="binding"][data-mark="denied"]').waitFor();
    await page.locator('[data-step="binding"]').click();
    assert.match(await page.locator(".pg-denial").innerText(), /cannot evict FlinkDeployment `stream-prod\/clickstream-agg` without losing its state/);
    assert.equal(await mark(page, "work"), "waiting");
    await shot(page, "value-missing");
    await flip("Karmada's gate on");
    await page.locator('[data-step="binding"][data-mark="stopped"]').waitFor();
    assert.match(await page.locator('[data-ending="alone"]').innerText(), /It stays in member1[\s\S]*`jobId` is not found/);
    await flip("Value missing");
    assert.equal(await ending(page, "alone"), "A label in member2 that nothing reads");

    await page.getByText("Cluster fails").click();
    await flip("Source unreachable");
    assert.equal(await ending(page, "policy"), "It resumes in member2, with 1 restored field");
    assert.equal(await ending(page, "alone"), "It starts cold in member2");
    await shot(page, "source-unreachable");
    await flip("Source unreachable");

    await flip("Second failover");
    assert.match(await page.locator('[data-ending="alone"]').innerText(), /It stays in member2/);
    await flip("Karmada's gate on");
    assert.equal(await page.locator(".pg-step").count(), 8);
    assert.equal(await ending(page, "policy"), "It resumes in member3, with 1 restored field");
    assert.equal(await ending(page, "alone"), "It starts cold in member3");
    await shot(page, "second-failover");
    await flip("Second failover");
    await flip("Karmada's gate on");

    await flip("Two clusters");
    assert.match(await page.locator('[data-ending="alone"]').innerText(), /state of member1 is written onto the healthy copy in member2/);
    await shot(page, "two-clusters");
  });
});

test("every example and every recording can be played", async () => {
  await play(async (page) => {
    const values = await page.locator("option").evaluateAll((options) => options.map((option) => (option as HTMLOptionElement).value));
    assert.equal(values.length, 37);
    for (const value of values) {
      await page.getByRole("combobox", { name: "Begin with" }).selectOption(value);
      const expected = value === "recordings/two-clusters-native" ? /keeps running/ : /^It resumes in member[123], with \d restored fields?$/;
      assert.match(await ending(page, "policy"), expected, value);
    }
  });
});

test("a shared link opens what was shared", async () => {
  let link = "";
  await play(async (page) => {
    await page.getByRole("combobox", { name: "Begin with" }).selectOption("examples/cnpg-cluster");
    await page.getByRole("switch", { name: "Moves back" }).dispatchEvent("click");
    await page.locator('[data-step="work-2"]').click();
    await page.getByRole("button", { name: "Copy link" }).click();
    await page.getByText("It holds everything on this page").waitFor();
    link = new URL(page.url()).hash;
  });
  assert.ok(link.length < 4000, `${link.length} characters`);
  await play(
    async (page) => {
      // What the link holds is there once its step is the current one.
      await page.locator('[data-step="work-2"][aria-current]').waitFor();
      assert.equal(await page.getByRole("combobox", { name: "Begin with" }).inputValue(), "examples/cnpg-cluster");
      assert.ok(await page.getByRole("switch", { name: "Moves back" }).isChecked());
    },
    {},
    link,
  );
  await play(async (page) => page.getByText("The link can't be read").waitFor(), {}, `${link.slice(0, 300)}`);
});

test("a block of settings in the reference opens in the playground", async () => {
  await visit("/reference.html", async (page) => {
    const link = page.getByRole("link", { name: "Open in the playground" }).first();
    const settings = await page.locator('div[class*="language-yaml"]:has(+ .open-in-playground) code').first().innerText();
    await link.click();
    await page.locator('[data-tab="settings"]').click();
    const editor = await page.getByRole("textbox", { name: "Settings" }).innerText();
    assert.equal(editor.replace(/\s+/g, " ").trim(), settings.replace(/\s+/g, " ").trim());
  });
});

test("the timeline of a pasted binding, exported", async () => {
  await play(async (page) => {
    await page.getByRole("button", { name: "Timeline of a binding" }).click();
    await page.getByText("There is no binding yet").waitFor();
    const record = { type: "cluster", from: "east<1>", to: ["west"], state: { "example.io/id": "7" }, phase: "Recovered", time: "2026-01-02T03:04:05Z" };
    await write(page, "Binding", `metadata: {annotations: {stateful-failover/history: '${JSON.stringify([record])}'}}`);
    const download = page.waitForEvent("download");
    await page.getByRole("button", { name: "Export as SVG" }).click();
    const svg = await readFile(await (await download).path(), "utf8");
    for (const part of ["<svg", "cluster failover", "healthy again", "2026-01-02 03:04:05 UTC", "east&#60;1&#62;", "west", "id = 7"]) {
      assert.ok(svg.includes(part), part);
    }
    assert.ok(!svg.includes("east<1>"));
    await write(page, "Binding", "metadata: {annotations: {stateful-failover/history: x}}");
    await page.getByText("use the version of the policy that wrote it").waitFor();
    await page.getByRole("button", { name: "Failover", exact: true }).click();
    await page.getByRole("combobox", { name: "Begin with" }).selectOption("recordings/late-health");
    await page.getByRole("button", { name: "Timeline of a binding" }).click();
    await page.locator("figcaption").getByText("move without a task from member2 to member1").waitFor();
    await shot(page, "timeline");
  });
});

test("the keyboard is enough", async () => {
  await play(async (page) => {
    const focused = () => page.evaluate(() => document.activeElement?.getAttribute("data-step") ?? document.activeElement?.textContent ?? "");
    const tabTo = async (selector: string) => {
      for (let presses = 0; presses < 60; presses += 1) {
        await page.keyboard.press("Tab");
        if (await page.evaluate((wanted) => document.activeElement?.matches(wanted), selector)) return;
      }
      assert.fail(`Tab does not reach ${selector}`);
    };
    await tabTo('input[name="cause"]');
    await page.keyboard.press("ArrowRight");
    assert.ok(await page.getByRole("radio", { name: "Cluster fails" }).isChecked());
    await tabTo('input[role="switch"]');
    await page.keyboard.press("Space");
    assert.ok(await page.getByRole("switch", { name: "Source unreachable" }).isChecked());
    await tabTo("[data-step]");
    for (const step of ["source", "binding", "work", "cluster"]) {
      await page.keyboard.press("ArrowRight");
      assert.equal(await focused(), step);
    }
    await shot(page, "keyboard");
    // Into the editor, and out of it again.
    await tabTo(".cm-content[contenteditable=true]");
    await page.keyboard.press("Tab");
    assert.ok(!(await page.evaluate(() => document.activeElement?.matches(".cm-content[contenteditable=true]"))));
  });
});

test("on a phone, nothing is wider than the screen", async () => {
  await play(
    async (page) => {
      for (const step of await page.locator(".pg-step").all()) {
        await step.tap();
        const width = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.equal(width, phone.width);
      }
      await shot(page, "phone");
    },
    { viewport: phone, hasTouch: true },
  );
});

for (const colorScheme of ["light", "dark"] as const) {
  test(`axe finds no serious fault, ${colorScheme}`, async () => {
    for (const path of ["/index.html", "/guide.html", "/reference.html"]) {
      await visit(path, async (page) => assert.deepEqual(await seriousFaults(page), [], path), { colorScheme });
    }
    for (const viewport of [desk, phone]) {
      const check = async (page: Page) => {
        for (const step of ["policy", "source", "binding", "work", "cluster"]) {
          await page.locator(`[data-step="${step}"]`).click();
          assert.deepEqual(await seriousFaults(page), [], step);
        }
        await page.getByRole("switch", { name: "Value missing" }).dispatchEvent("click");
        assert.deepEqual(await seriousFaults(page), [], "value missing");
        await shot(page, `${viewport === desk ? "desk" : "phone"}-${colorScheme}`);
        await page.getByRole("button", { name: "Timeline of a binding" }).click();
        assert.deepEqual(await seriousFaults(page), [], "timeline");
      };
      await play(check, { colorScheme, viewport });
    }
  });
}

test("the search finds a heading of the reference", async () => {
  await visit("/index.html", async (page) => {
    await page.waitForLoadState("networkidle");
    await page.keyboard.press("Control+k");
    await page.getByRole("searchbox").fill("limits");
    await page.locator(".VPLocalSearchBox a.result").first().waitFor();
    assert.match(await page.locator(".VPLocalSearchBox a.result").first().innerText(), /limits/i);
  });
});

test("the page is light", async (context) => {
  await visit("/playground.html", async (page) => {
    const names = () => performance.getEntriesByType("resource").map(({ name }) => name);
    await page.locator('.pg[data-ready="true"]').waitFor();
    const loaded = [page.url(), ...(await page.evaluate(names))];
    let bytes = 0;
    for (const url of new Set(loaded)) {
      const body = Buffer.from(await (await fetch(url)).arrayBuffer());
      bytes += url.endsWith(".woff2") ? body.length : gzipSync(body).length;
    }
    context.diagnostic(`${loaded.length} files, ${bytes} bytes compressed`);
    assert.ok(bytes < 1_500_000, `${bytes} bytes`);
  });
});

test("the browser answers as the module in the embedded host, for every recording, case and sample", async (context) => {
  await visit("/404.html", async (page) => {
    const result = await page.evaluate(async () => {
      const module = "/policy/index.js";
      const { load } = (await import(module)) as typeof import("@stateful-failover/policy");
      const policy = await load();
      const lines = (await (await fetch("/evaluations.jsonl")).text()).trimEnd().split("\n");
      const different: string[] = [];
      const times: number[] = [];
      for (const line of lines) {
        const { request, settings, objects, answer } = JSON.parse(line);
        const begin = performance.now();
        const { notes: _, ...verdict } = policy.evaluate(request, settings, objects);
        times.push(performance.now() - begin);
        const expected = Object.fromEntries(Object.entries(answer).filter(([, value]) => value !== null));
        const sorted = (value: object) => JSON.stringify(Object.entries(value).sort());
        if (sorted(verdict) !== sorted(expected)) different.push(`${request}\n${sorted(verdict)}\n${sorted(expected)}`);
      }
      times.sort((a, b) => a - b);
      return { count: lines.length, different, p50: times[times.length >> 1], slowest: times.at(-1) };
    });
    context.diagnostic(`${result.count} evaluations, p50 ${result.p50} ms, slowest ${result.slowest} ms`);
    assert.deepEqual(result.different, []);
    assert.ok(result.count > 1500, `${result.count} evaluations`);
  });
});
