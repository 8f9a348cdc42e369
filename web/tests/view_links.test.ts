import { expect, test } from "vitest";
import type { Finding, PageData, StepRow } from "../src/page_data";
import { findViewLinks, linkToModule, linkToStep } from "../src/view_links";

const STEPS = [0, 1].flatMap((rank) =>
  [5, 6].map((step) => ({
    ...{ rank, step, begin_ns: step * 1000 + rank, duration_ns: 100 },
    data_wait_ns: rank * 10 + step,
    ...{ blocked_ns: 20 - rank * 10 - step, starved_ns: step === 5 ? rank + 1 : 0, running_ns: null },
  })),
) as StepRow[];

function pageWith(tracks: { rank: number; kind: string }[]): PageData {
  const graphs = ["Operators and markers", "Python lines, sampled"].map((title) => ({ title, thread: null, rank: 0 }));
  return { report: { steps: STEPS }, timeline: { tracks }, flame_graphs: graphs } as unknown as PageData;
}

function finding(kind: string, where: Partial<Finding["where"]> = {}): Finding {
  return { kind, where: { ranks: [], steps: [], spans: [], lines: [], ...where } } as unknown as Finding;
}

const BOTH = [0, 1].map((rank) => ({ rank, kind: "thread" }));

test("a finding links to the worst of its named steps", () => {
  const titles = (one: Finding) => findViewLinks(one, pageWith(BOTH), new Map()).map(({ title }) => title);

  expect(titles(finding("input_bound"))).toEqual(["Show step 6 of rank 1 in the timeline"]);
  expect(titles(finding("input_bound", { steps: [5], ranks: [0] }))).toEqual(["Show step 5 of rank 0 in the timeline"]);
});

test("a module of a finding links to its row, or the row of its block", () => {
  const page = { modules: { rows: [{ names: ["Model"] }, { names: ["Model.0", "Model.1"] }] } } as unknown as PageData;

  expect(linkToModule("Model.1", page)).toBe("#view=modules&module=Model.1");
  expect(linkToModule("Other", page)).toBe(null);
  expect(linkToModule("Model", {} as PageData)).toBe(null);
});

test("a finding does not link to a rank with only steps in the timeline", () => {
  const page = pageWith([BOTH[0], { rank: 1, kind: "steps" }]);

  const [place] = findViewLinks(finding("input_bound"), page, new Map());

  expect(place.title).toBe("Show step 6 of rank 0 in the timeline");
  expect(linkToStep(STEPS[3], page)?.href).toContain("rank=1");
});

test("a finding on the loop's thread links to its worst step and to its sampled line", () => {
  const offered = new Map([["flame", "Flame graph"]]);
  const places = (kind: string) => findViewLinks(finding(kind, { lines: ["train.py:41"] }), pageWith(BOTH), offered);
  const [blocked, hotLine] = ["blocked", "hot_line"].map(places);

  expect(blocked.map(({ title }) => title)).toEqual([
    "Show step 5 of rank 0 in the timeline",
    "More under Flame graph",
  ]);
  expect(blocked[0].href).toContain("q=train.py%2841%29");
  expect(blocked[1].href).toContain("graph=Python+lines%2C+sampled%2C+rank+0&q=train.py%2841%29");
  expect(hotLine[1].href).toBe(blocked[1].href);
  expect(places("processor_contention").map(({ title }) => title)).toEqual(["Show step 5 of rank 1 in the timeline"]);
});

test("without a timeline a finding leads to the view that says more", () => {
  const page = { ...pageWith([]), timeline: null };

  const places = findViewLinks(finding("memory_growth"), page, new Map([["memory", "Memory"]]));

  expect(places).toEqual([{ href: "#view=memory", title: "More under Memory" }]);
});
