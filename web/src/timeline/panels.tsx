import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { counted, formatDuration } from "../format";
import { Table, type TableColumn } from "../parts/table";
import { PanelHead } from "./panel_head";
import { longestIn, summarizeRange, type RangeRow } from "./range";
import { formatMoment } from "./ruler";
import { SpanPanel } from "./span_panel";
import { useStage, type Range, type Stage } from "./stage";

const MOST_IN_TABLE = 300;
const SETTLED_MS = 200;

/** Below the tracks: what is known of the selected span, of the measured range, or of the spans in view. */
export function Panels({ stage, notes }: { stage: Stage; notes: string[] }) {
  const panel = useStage(stage, (stage) => stage.panel);
  const selected = useStage(stage, (stage) => stage.selected);
  const range = useStage(stage, (stage) => stage.range);
  const section = useRef<HTMLElement>(null);
  useFocusOf(section, selected);
  if (panel === "table") return <TablePanel stage={stage} />;
  if (panel === "range" && range) return <RangePanel stage={stage} range={range} />;
  if (panel === "span" && selected !== null) return <SpanPanel stage={stage} span={selected} section={section} />;
  return (
    <p class="quiet timeline-hint">
      Wheel or W and S zoom, drag or A and D move, click selects, Shift and drag measures, / searches, ? lists all keys.
      {notes.map((note) => ` ${note}`)}
    </p>
  );
}

/** Gives the focus to the next panel where the button that was pressed is gone with the last one. */
function useFocusOf(section: { readonly current: HTMLElement | null }, selected: number | null): void {
  const isInPanel = useRef(false);
  useEffect(() => {
    const note = (event: Event) => {
      isInPanel.current = (event.target as Element).closest?.(".timeline-panel") != null;
    };
    const kinds = ["pointerdown", "keydown"];
    for (const kind of kinds) addEventListener(kind, note, true);
    return () => kinds.forEach((kind) => removeEventListener(kind, note, true));
  }, []);
  useEffect(() => {
    if (isInPanel.current && document.activeElement === document.body) section.current?.focus();
  }, [selected, section]);
}

function RangePanel({ stage, range }: { stage: Stage; range: Range }) {
  const settled = useSettled(range);
  const rows = useMemo(() => {
    const places = settled.rows ?? stage.data.rows.map((_, at) => at);
    return summarizeRange(stage.data, places, settled);
  }, [stage, settled]);
  const count = rows.reduce((sum, row) => sum + row.count, 0);
  const length = settled.to - settled.from;
  const columns: TableColumn<RangeRow>[] = [
    { title: "Name", value: (row) => row.name, help: "Choose one to go to the longest of them" },
    { title: "Count", value: (row) => row.count },
    {
      title: "Total",
      value: (row) => row.totalNs,
      show: (row) => formatDuration(row.totalNs),
      help: "Within the range",
    },
    {
      title: "Self",
      value: (row) => row.selfNs,
      show: (row) => formatDuration(row.selfNs),
      whole: length,
      help: "Without what is called; the bar is its part of the range",
    },
  ];
  return (
    <section class="timeline-panel" aria-label="Measured range">
      <PanelHead onClose={() => stage.clearRange()}>
        <strong>{formatDuration(length)}</strong> from {formatMoment(settled.from, settled)} to{" "}
        {formatMoment(settled.to, settled)}: {counted(count, "span")}{" "}
        {settled.rows ? "on the tracks that were dragged over" : "on all tracks"}
        <button type="button" onClick={() => stage.show(settled)}>
          Zoom to it
        </button>
      </PanelHead>
      <Table
        caption="What is in the measured range, by name"
        noun="name"
        columns={columns}
        rows={rows}
        sortedBy="Self"
        onChoose={(row) => stage.select(row.longest, true)}
      />
    </section>
  );
}

function TablePanel({ stage }: { stage: Stage }) {
  const view = useSettled(useStage(stage, (stage) => stage.view));
  const scrollTop = useSettled(useStage(stage, (stage) => stage.scrollTop));
  const lanes = useStage(stage, (stage) => stage.lanes);
  const { spans, count } = useMemo(
    () => longestIn(stage.data, stage.visibleRows(), view, MOST_IN_TABLE),
    [stage, view, scrollTop, lanes],
  );
  const { data } = stage;
  const columns: TableColumn<number>[] = [
    { title: "Name", value: (span) => data.name(span) },
    { title: "Begin", value: (span) => data.begins[span], show: (span) => formatMoment(data.begins[span], view) },
    { title: "Duration", value: (span) => data.durations[span], show: (span) => formatDuration(data.durations[span]) },
    { title: "Rank", value: (span) => data.track(span).rank },
    { title: "Track", value: (span) => data.track(span).name },
    { title: "Category", value: (span) => data.category(span) },
  ];
  return (
    <section class="timeline-panel" aria-label="Spans in view">
      <PanelHead onClose={() => stage.change({ panel: null })}>
        {count > spans.length
          ? `The ${spans.length} longest of ${counted(count, "span")} in view, by begin`
          : `${counted(count, "span")} in view, by begin`}
      </PanelHead>
      <Table
        caption="Spans in view"
        noun="span"
        columns={columns}
        rows={spans}
        onChoose={(span) => stage.select(span, !stage.isInView(span))}
        most={MOST_IN_TABLE}
      />
    </section>
  );
}

/** A value that has not changed for a moment: what follows it is not worked out anew in each frame of a drag. */
function useSettled<Value>(value: Value): Value {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), SETTLED_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}
