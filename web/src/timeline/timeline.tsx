import { useEffect, useMemo, useRef } from "preact/hooks";
import { readLink } from "../link";
import { Empty } from "../parts/empty";
import type { Payload } from "../payload";
import type { ViewProps } from "../views";
import { readCounters } from "./counters";
import { readTimeline } from "./data";
import { followKeys } from "./gestures";
import { Panels } from "./panels";
import { goTo, rememberPlace } from "./place";
import { stepsOf } from "./ruler";
import { Stage } from "./stage";
import "./timeline.css";
import { Toolbar } from "./toolbar";
import { Tracks } from "./tracks";

/** All spans over time, by rank and track. */
export function TimelineView({ payload }: ViewProps) {
  const { timeline } = payload.page;
  if (!timeline) {
    return (
      <Empty title="This report was written without its timeline.">
        To see one, write the report again without --no-timeline.
      </Empty>
    );
  }
  if (!timeline.spans.begins.length && !timeline.counters.length) {
    return (
      <Empty title="No spans were recorded.">
        Put kinetoscope.marker around parts of the loop, or add TorchProfiler to the profiler's sources, to see what
        they take.
      </Empty>
    );
  }
  return <Loaded payload={payload} />;
}

/** Where the reader was, when the view is opened again. */
const stages = new WeakMap<Payload, Stage>();

function stageOf(payload: Payload): Stage {
  let stage = stages.get(payload);
  if (!stage) {
    const timeline = payload.page.timeline!;
    const steps = stepsOf(payload.page.report?.steps ?? [], null);
    stage = new Stage(readTimeline(payload, timeline), readCounters(payload, timeline), steps);
    stages.set(payload, stage);
  }
  return stage;
}

function Loaded({ payload }: { payload: Payload }) {
  const stage = useMemo(() => stageOf(payload), [payload]);
  const search = useRef<HTMLInputElement>(null);
  useEffect(() => followKeys(stage, () => search.current?.select()), [stage]);
  useEffect(() => {
    const arrive = () => goTo(stage, readLink());
    arrive();
    addEventListener("hashchange", arrive);
    const stopRemembering = rememberPlace(stage);
    return () => {
      removeEventListener("hashchange", arrive);
      stopRemembering();
    };
  }, [stage]);
  return (
    <div class="timeline">
      <Toolbar stage={stage} search={search} />
      <Tracks stage={stage} />
      <Panels stage={stage} notes={payload.page.timeline?.notes ?? []} />
    </div>
  );
}
