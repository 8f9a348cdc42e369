import { FlameGraphs } from "./flame/flame_graph";
import { Memory } from "./memory/memory";
import { filteredByModule } from "./modules/calls_of_module";
import { TimelineView } from "./timeline/timeline";
import type { View } from "./view";
import { Communication } from "./views/communication";
import { Compare } from "./views/compare";
import { Kernels } from "./views/kernels";
import { Modules } from "./views/modules";
import { Operators } from "./views/operators";
import { Overview } from "./views/overview";
import { Ranks } from "./views/ranks";

export const VIEWS: View[] = [
  {
    name: "overview",
    title: "Overview",
    isOffered: (page) => page.report !== null,
    hasContent: (page) => page.report !== null,
    component: Overview,
  },
  {
    name: "timeline",
    title: "Timeline",
    isOffered: (page) => page.report !== null || page.timeline !== null,
    hasContent: (page) => !!page.timeline && page.timeline.spans.begins.length > 0,
    component: TimelineView,
  },
  {
    name: "ranks",
    title: "Ranks",
    isOffered: (page) => page.report !== null,
    hasContent: (page) => !!page.report && (page.report.steps.length > 0 || page.devices.length > 0),
    component: Ranks,
  },
  {
    name: "communication",
    title: "Communication",
    isOffered: (page) => page.report !== null,
    hasContent: (page) => page.communication !== null,
    component: Communication,
  },
  {
    name: "modules",
    title: "Modules",
    isOffered: (page) => page.report !== null,
    hasContent: (page) => page.modules !== undefined,
    component: Modules,
  },
  {
    name: "operators",
    title: "Operators",
    isOffered: (page) => page.report !== null,
    hasContent: (page) => !!page.report?.operators.length,
    component: filteredByModule("operators", Operators),
  },
  {
    name: "kernels",
    title: "Kernels",
    isOffered: (page) => page.report !== null,
    hasContent: (page) => !!page.report?.kernels.length,
    component: filteredByModule("kernels", Kernels),
  },
  {
    name: "memory",
    title: "Memory",
    isOffered: (page) => page.report !== null || page.memory.length > 0,
    hasContent: (page) => page.memory.some(({ times }) => times.length > 0) || !!page.report?.memory.length,
    component: Memory,
  },
  {
    name: "flame",
    title: "Flame graph",
    isOffered: (page) => page.report !== null,
    hasContent: (page) => page.flame_graphs.length > 0,
    component: FlameGraphs,
  },
  {
    name: "compare",
    title: "Compare",
    isOffered: (page) => page.comparison !== null,
    hasContent: (page) => page.comparison !== null,
    component: Compare,
  },
];
