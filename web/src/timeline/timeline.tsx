import { useEffect, useMemo, useRef } from "preact/hooks";
import { readLink, useLink } from "../link";
import { chosenModule } from "../modules/chosen_module";
import { ModuleFilter } from "../modules/module_filter";
import type { Payload } from "../payload";
import type { ViewProps } from "../view";
import { readCounters } from "./counters";
import { readTimeline } from "./data";
import { followKeys } from "./gestures";
import { Panels } from "./panels";
import { applyLink, keepLink } from "./link_state";
import { Fold } from "./fold";
import { outlinedBy } from "./outlined_spans";
import { Stage } from "./stage";
import "./timeline.css";
import { Toolbar } from "./toolbar";
import { Tracks } from "./tracks";

/** Restore the state when the view is opened again. */
const stages = new WeakMap<Payload, Stage>();

function stageOf(payload: Payload): Stage {
  let stage = stages.get(payload);
  if (!stage) {
    const timeline = payload.page.timeline!;
    const fold = new Fold((timeline.windows ?? []) as [number, number][]);
    const steps = (payload.page.report?.steps ?? []).map((step) => ({ ...step, begin_ns: fold.folded(step.begin_ns) }));
    stage = new Stage(readTimeline(payload, timeline, fold), readCounters(payload, timeline, fold), steps, fold);
    stages.set(payload, stage);
  }
  return stage;
}

/** The timeline: all spans over time, by rank and track. */
export function TimelineView({ payload }: ViewProps) {
  const stage = useMemo(() => stageOf(payload), [payload]);
  useLink();
  const chosen = chosenModule(payload.page);
  const search = useRef<HTMLInputElement>(null);
  useEffect(() => followKeys(stage, () => search.current?.select()), [stage]);
  useEffect(() => {
    const arrive = () => {
      const link = readLink();
      const finding = payload.page.report?.findings[Number(link.finding ?? NaN)];
      if (finding) stage.change({ outlined: outlinedBy(finding, stage.data, stage.allSteps) });
      stage.showModule(chosenModule(payload.page));
      applyLink(stage, link);
    };
    arrive();
    addEventListener("hashchange", arrive);
    const stopRemembering = keepLink(stage);
    return () => {
      removeEventListener("hashchange", arrive);
      stopRemembering();
    };
  }, [stage]);
  return (
    <div class="timeline">
      {chosen && <ModuleFilter page={payload.page} chosen={chosen} />}
      <Toolbar stage={stage} search={search} page={payload.page} />
      <Tracks stage={stage} />
      <Panels stage={stage} notes={payload.page.timeline?.notes ?? []} />
    </div>
  );
}
