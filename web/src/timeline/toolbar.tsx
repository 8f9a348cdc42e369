import type { RefObject } from "preact";
import { useMemo, useState } from "preact/hooks";
import { counted, formatCount, formatDuration } from "../format";
import type { PageData } from "../page_data";
import { openInPerfetto } from "../open_in_perfetto";
import { Name } from "../parts/name";
import { chromeTrace } from "./chrome_trace";
import { matchNumber } from "./search";
import { useStage, type Stage } from "./stage";

interface ToolbarProps {
  stage: Stage;
  search: RefObject<HTMLInputElement | null>;
  page: PageData;
}

/** Search field and buttons of the timeline. */
export function Toolbar({ stage, search, page }: ToolbarProps) {
  const isMoving = useStage(stage, (stage) => stage.isMoving);
  const panel = useStage(stage, (stage) => stage.panel);
  const length = useStage(stage, ({ view, fold }) => fold.lengthOf(view.from, view.to));
  return (
    <div class="timeline-bar" role="toolbar" aria-label="Timeline">
      <Search stage={stage} input={search} />
      <span class="timeline-buttons">
        <button type="button" aria-label="Zoom in" title="Zoom in (W)" onClick={() => stage.zoom(0.5)}>
          +
        </button>
        <button type="button" aria-label="Zoom out" title="Zoom out (S)" onClick={() => stage.zoom(2)}>
          −
        </button>
        <button type="button" title="Home" onClick={() => stage.show(stage.whole)}>
          Show all
        </button>
      </span>
      <span class="timeline-buttons">
        <button
          type="button"
          title="Otherwise a drag measures the range (M; or drag with Shift)"
          aria-pressed={isMoving}
          onClick={() => stage.change({ isMoving: !isMoving })}
        >
          Drag to move
        </button>
        <button type="button" title="T" aria-pressed={panel === "table"} onClick={() => stage.togglePanel("table")}>
          Show as table
        </button>
        <FoldButton stage={stage} />
        <PerfettoButton stage={stage} page={page} />
      </span>
      <OutlinedFinding stage={stage} />
      <span class="quiet timeline-length">{formatDuration(length)} in view</span>
    </div>
  );
}

function Search({ stage, input }: { stage: Stage; input: RefObject<HTMLInputElement | null> }) {
  const matches = useStage(stage, (stage) => stage.matches);
  const selected = useStage(stage, (stage) => stage.selected);
  const onKeyDown = (event: KeyboardEvent & { currentTarget: HTMLInputElement }) => {
    if (event.key === "Enter") stage.goToMatch(!event.shiftKey);
    if (event.key !== "Escape") return;
    if (!event.currentTarget.value) event.currentTarget.blur();
    stage.search("");
    event.stopPropagation();
  };
  const number = useMemo(() => (matches ? matchNumber(stage.data, matches, selected) : 0), [stage, matches, selected]);
  return (
    <span class="timeline-buttons timeline-search">
      <input
        type="search"
        ref={input}
        aria-label="Search spans by name"
        placeholder="Search spans ( / )"
        value={matches?.query ?? ""}
        onInput={(event) => stage.search(event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      <span role="status" class="timeline-count">
        {matches && `${number ? `${formatCount(number)} of ` : ""}${formatCount(matches.count)}`}
      </span>
      <button
        type="button"
        aria-label="Previous match"
        disabled={!matches?.count}
        onClick={() => stage.goToMatch(false)}
      >
        ↑
      </button>
      <button type="button" aria-label="Next match" disabled={!matches?.count} onClick={() => stage.goToMatch(true)}>
        ↓
      </button>
    </span>
  );
}

function FoldButton({ stage }: { stage: Stage }) {
  const hasClosed = useStage(stage, ({ main }) => main.lanes.some((lane) => lane.kind === "group" && !lane.isOpen));
  return (
    <button type="button" onClick={() => stage.closeAll(!hasClosed)}>
      {hasClosed ? "Open all ranks" : "Close all ranks"}
    </button>
  );
}

const PERFETTO = "https://ui.perfetto.dev";

/** Give the spans of the page to Perfetto, in another tab. */
function PerfettoButton({ stage, page }: Omit<ToolbarProps, "search">) {
  const [message, showMessage] = useState("");
  const read = () => chromeTrace(stage.data, stage.fold, page.origin_ns).arrayBuffer();
  const trace = { name: "The timeline", title: page.title, fileName: "timeline.json", read };
  return (
    <>
      <button
        type="button"
        title={`Pass the spans of this page to ${PERFETTO} in a new tab, within this browser`}
        onClick={() => void openInPerfetto(trace, PERFETTO, showMessage)}
      >
        Open in Perfetto
      </button>
      <span role="status">{message}</span>
    </>
  );
}

/** The finding whose spans are outlined. */
function OutlinedFinding({ stage }: { stage: Stage }) {
  const outlined = useStage(stage, (stage) => stage.outlined);
  if (!outlined) return null;
  return (
    <span class="timeline-outlined" role="status">
      <Name text={outlined.title} maxLength={80} />
      <span class="quiet">{`: ${counted(outlined.spans.length, "span")} outlined`}</span>
      <button type="button" aria-label="Remove the outlines" onClick={() => stage.change({ outlined: null })}>
        ×
      </button>
    </span>
  );
}
