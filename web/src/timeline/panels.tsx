import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { counted, formatCount, formatDuration } from "../format";
import { Table, type TableColumn } from "../parts/table";
import { detail, timeColumn } from "../parts/unit_columns";
import { PanelHead } from "./panel_head";
import { leftOutIn, longestIn, summarizeRange, type RangeRow } from "./range";
import { formatMoment } from "./ruler";
import { SpanPanel } from "./span_panel";
import { useStage, type Range, type Stage } from "./stage";

const MAX_IN_TABLE = 300;
const MAX_NAMES = 100;
const SETTLED_MS = 200;

/** Panel below the tracks: the selected span, the measured range, or the visible spans. */
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
      Wheel or W and S zoom, A and D or Shift and drag move, drag measures an area, click selects, / searches, ? lists
      all keys.
      {notes.map((note) => ` ${note}`)}
    </p>
  );
}

/** Focus the next panel when the pressed button is gone with the last one. */
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
  const settled = useSettled(range, range.isMoving ? SETTLED_MS : 0);
  const { fold } = stage;
  const shown = useStage(stage, (stage) => stage.shown);
  const { rows, numLeftOut } = useMemo(() => {
    const rowIndices = settled.rows ?? stage.data.rows.map((_, at) => at);
    const numLeftOut = leftOutIn(stage.data, fold, rowIndices, settled);
    return { rows: summarizeRange(stage.data, rowIndices, settled, shown), numLeftOut };
  }, [stage, settled, shown]);
  const count = rows.reduce((sum, row) => sum + row.count, 0);
  const [from, to] = [fold.real(settled.from), fold.real(settled.to)];
  const columns = useMemo(
    () => rangeColumns(numLeftOut > 0, fold.recordedIn(settled.from, settled.to)),
    [numLeftOut > 0, settled],
  );
  return (
    <section class="timeline-panel" aria-label="Measured range">
      <PanelHead onClose={() => stage.clearRange()}>
        <strong>{formatDuration(to - from)}</strong> from {formatMoment(from, { from, to })} to{" "}
        {formatMoment(to, { from, to })}: {numLeftOut > 0 && "at least "}
        {counted(count, "span")} {settled.rows ? "on the selected tracks" : "on all tracks"}
        <button type="button" onClick={() => stage.show(settled)}>
          Zoom to range
        </button>
        {numLeftOut > 0 && (
          <p class="timeline-left-out">{`${counted(numLeftOut, "shorter span")} of this area ${numLeftOut === 1 ? "is" : "are"} not on the page, so numbers are "at least" (≥).`}</p>
        )}
      </PanelHead>
      <Table
        caption="Spans in the measured range, by name"
        noun="name"
        columns={columns}
        rows={rows}
        sortedBy="Self time"
        maxRows={MAX_NAMES}
        onChoose={(row) => stage.select(row.longest, true)}
      />
    </section>
  );
}

/** With `isLacking`, some spans are hidden. */
function rangeColumns(isLacking: boolean, wholeNs: number): TableColumn<RangeRow>[] {
  const least = isLacking ? "≥ " : "";
  const time = (title: string, value: (row: RangeRow) => number, help: string, whole?: number) => {
    return {
      ...timeColumn(title, value, help, whole),
      show: (row: RangeRow) => `${least}${formatDuration(value(row))}`,
    };
  };
  return [
    { title: "Name", value: (row) => row.name, help: "Select one to go to the longest of its spans" },
    detail({ title: "Count", value: (row) => row.count, show: (row) => `${least}${formatCount(row.count)}` }),
    time("Total time", (row) => row.totalNs, "Within the range"),
    time("Self time", (row) => row.selfNs, "Without callees; the bar is its share of the range", wholeNs),
    detail(timeColumn("Mean", (row) => row.totalNs / row.count, "Of the spans on the page")),
  ];
}

function TablePanel({ stage }: { stage: Stage }) {
  const view = useSettled(useStage(stage, (stage) => stage.view));
  const scrollTop = useSettled(useStage(stage, ({ main }) => main.scrollTop));
  const lanes = useStage(stage, ({ main }) => main.lanes);
  const shown = useStage(stage, (stage) => stage.shown);
  const { spans, count } = useMemo(
    () => longestIn(stage.data, stage.main.visibleRows(), view, MAX_IN_TABLE, shown),
    [stage, view, scrollTop, lanes, shown],
  );
  const { data } = stage;
  const columns: TableColumn<number>[] = [
    { title: "Name", value: (span) => data.name(span) },
    {
      title: "Start",
      value: (span) => stage.fold.real(data.begins[span]),
      show: (span) => formatMoment(stage.fold.real(data.begins[span]), view),
    },
    timeColumn("Duration", (span) => data.durations[span]),
    detail({ title: "Rank", value: (span) => data.track(span).rank }),
    detail({ title: "Track", value: (span) => data.track(span).name }),
    detail({ title: "Category", value: (span) => data.category(span) }),
  ];
  return (
    <section class="timeline-panel" aria-label="Spans in view">
      <PanelHead onClose={() => stage.change({ panel: null })}>
        {count > spans.length
          ? `The ${spans.length} longest of ${counted(count, "span")} in view, by start`
          : `${counted(count, "span")} in view, by start`}
      </PanelHead>
      <Table
        caption="Spans in view"
        noun="span"
        columns={columns}
        rows={spans}
        onChoose={(span) => stage.select(span, !stage.isInView(span))}
        maxRows={MAX_IN_TABLE}
      />
    </section>
  );
}

/** A debounced value: nothing is computed again in each frame of a drag. */
function useSettled<Value>(value: Value, waitMs = SETTLED_MS): Value {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    if (!waitMs) return;
    const timer = setTimeout(() => setSettled(value), waitMs);
    return () => clearTimeout(timer);
  }, [value, waitMs]);
  return waitMs ? settled : value;
}
