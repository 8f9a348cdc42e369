import { FlameGraphs } from "./flame/flame_graph";
import { Memory, whyNoMemory } from "./memory/memory";
import { TimelineView } from "./timeline/timeline";
import type { View } from "./view";
import { KERNELS, OPERATORS } from "./views/call_kinds";
import { callsView } from "./views/calls";
import { Communication } from "./views/communication";
import { Compare } from "./views/compare";
import { Modules } from "./views/modules";
import { Overview } from "./views/overview";
import { Ranks } from "./views/ranks";

export const VIEWS: View[] = [
  {
    name: "overview",
    title: "Overview",
    isOffered: (page) => page.report !== null,
    hasContent: (page) => page.report !== null,
    whyEmpty: () => ({ title: "This report has no overview." }),
    component: Overview,
  },
  {
    name: "timeline",
    title: "Timeline",
    isOffered: (page) => page.report !== null || page.timeline !== null,
    hasContent: ({ timeline }) => !!timeline && (timeline.spans.begins.length > 0 || timeline.counters.length > 0),
    whyEmpty: ({ timeline }) =>
      timeline
        ? {
            title: "No spans were recorded.",
            remedy: "Put kinetoscope.marker around parts of the loop, or add TorchProfiler to the profiler's sources.",
          }
        : {
            title: "This report was written without its timeline.",
            remedy: "Write it again without --no-timeline.",
          },
    component: TimelineView,
  },
  {
    name: "ranks",
    title: "Ranks",
    isOffered: (page) => page.report !== null,
    hasContent: (page) => !!page.report && (page.report.steps.length > 0 || page.devices.length > 0),
    whyEmpty: () => ({
      title: "No steps were recorded.",
      remedy:
        "Record with kinetoscope.profile(...), or call step() of torch.profiler after each batch; or name the spans that are steps: kinetoscope report PATH --step SPAN.",
    }),
    component: Ranks,
  },
  {
    name: "communication",
    title: "Communication",
    isOffered: (page) => page.report !== null,
    hasContent: (page) => page.communication !== null,
    whyEmpty: () => ({
      title: "No collective of several ranks was found.",
      remedy:
        "Analyze the traces of all ranks together: kinetoscope report FOLDER. kinetoscope.profile(torch=True) and TorchProfiler record collectives, also those of gloo on the CPU.",
    }),
    component: Communication,
  },
  {
    name: "modules",
    title: "Modules",
    isOffered: (page) => page.report !== null,
    hasContent: (page) => page.modules !== undefined,
    whyEmpty: () => ({
      title: "No calls of modules were recorded.",
      remedy: "Record them with kinetoscope run --modules, or kinetoscope.profile(modules=True).",
    }),
    component: Modules,
  },
  {
    name: "operators",
    title: "Operators",
    isOffered: (page) => page.report !== null,
    hasContent: (page) => !!page.report?.operators.length,
    whyEmpty: () => ({
      title: "No operators were recorded.",
      remedy: "kinetoscope.profile(torch=True) and TorchProfiler record them in the steps that the schedule selects.",
    }),
    component: callsView(OPERATORS),
  },
  {
    name: "kernels",
    title: "Kernels",
    isOffered: (page) => page.report !== null,
    hasContent: (page) => !!page.report?.kernels.length,
    whyEmpty: () => ({
      title: "No kernels were recorded: the run had no GPU, or it was not profiled.",
      remedy:
        "On a machine with a GPU, kinetoscope.profile(...) records kernels and copies, and so does torch.profiler with ProfilerActivity.CUDA.",
    }),
    component: callsView(KERNELS),
  },
  {
    name: "memory",
    title: "Memory",
    isOffered: (page) => page.report !== null || page.memory.length > 0,
    hasContent: (page) => page.memory.some(({ times }) => times.length > 0) || !!page.report?.memory.length,
    whyEmpty: whyNoMemory,
    component: Memory,
  },
  {
    name: "flame",
    title: "Flame graph",
    isOffered: (page) => page.report !== null,
    hasContent: (page) => page.flame_graphs.length > 0,
    whyEmpty: () => ({
      title: "No nested calls were recorded.",
      remedy:
        "kinetoscope.profile(...) records operators. With diagnose=True it samples Python's stacks, and with with_stack=True torch records them.",
    }),
    component: FlameGraphs,
  },
  {
    name: "compare",
    title: "Compare",
    isOffered: (page) => page.comparison !== null,
    hasContent: (page) => page.comparison !== null,
    whyEmpty: () => ({ title: "This report compares no runs." }),
    component: Compare,
  },
];
