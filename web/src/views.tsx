import { FlameGraphs } from "./flame/flame_graph";
import { Memory } from "./memory/memory";
import { TimelineView } from "./timeline/timeline";
import type { View } from "./view";
import { Communication } from "./views/communication";
import { Compare } from "./views/compare";
import { Kernels } from "./views/kernels";
import { Operators } from "./views/operators";
import { Overview } from "./views/overview";
import { Ranks } from "./views/ranks";

export const VIEWS: View[] = [
  {
    name: "overview",
    title: "Overview",
    isThere: (page) => page.report !== null,
    hasSomething: (page) => page.report !== null,
    component: Overview,
  },
  {
    name: "timeline",
    title: "Timeline",
    isThere: (page) => page.report !== null || page.timeline !== null,
    hasSomething: (page) => !!page.timeline && page.timeline.spans.begins.length > 0,
    component: TimelineView,
  },
  {
    name: "ranks",
    title: "Ranks",
    isThere: (page) => page.report !== null,
    hasSomething: (page) => !!page.report && (page.report.steps.length > 0 || page.devices.length > 0),
    component: Ranks,
  },
  {
    name: "communication",
    title: "Communication",
    isThere: (page) => page.report !== null,
    hasSomething: (page) => page.communication !== null,
    component: Communication,
  },
  {
    name: "operators",
    title: "Operators",
    isThere: (page) => page.report !== null,
    hasSomething: (page) => !!page.report?.operators.length,
    component: Operators,
  },
  {
    name: "kernels",
    title: "Kernels",
    isThere: (page) => page.report !== null,
    hasSomething: (page) => !!page.report?.kernels.length,
    component: Kernels,
  },
  {
    name: "memory",
    title: "Memory",
    isThere: (page) => page.report !== null || page.memory.length > 0,
    hasSomething: (page) => page.memory.some(({ times }) => times.length > 0) || !!page.report?.memory.length,
    component: Memory,
  },
  {
    name: "flame",
    title: "Flame graph",
    isThere: (page) => page.report !== null,
    hasSomething: (page) => page.flame_graphs.length > 0,
    component: FlameGraphs,
  },
  {
    name: "compare",
    title: "Compare",
    isThere: (page) => page.comparison !== null,
    hasSomething: (page) => page.comparison !== null,
    component: Compare,
  },
];
