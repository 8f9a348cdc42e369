import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { cssColour } from "../colours";
import { formatBytes, formatDuration } from "../format";
import { readLink, updateLink } from "../link";
import type { StepEnd, StepRow } from "../page_data";
import { Swatch } from "../parts/swatch";
import { Table, type TableColumn } from "../parts/table";
import { bytesColumn, detail, timeColumn } from "../parts/unit_columns";
import type { Fold } from "../timeline/fold";
import { AreaChart } from "./chart";
import { indexAt, wholeRange, type MemorySeries, type Range } from "./series";

interface OverTimeProps {
  series: MemorySeries;
  steps: StepRow[];
  title: string;
  children: ComponentChildren;
}

/** The chart of a device, the values at the cursor, and a table. */
export function OverTime({ series, steps, title, children }: OverTimeProps) {
  const [range, setRange] = useState(() => linkedRange(series));
  const [cursor, setCursor] = useState<number | null>(null);
  const [isTable, setIsTable] = useState(false);
  const whole = wholeRange(series);
  const isWhole = range.from <= whole.from && range.to >= whole.to;
  useRememberedRange(range, isWhole, series.fold);
  return (
    <section>
      <h2>{`Memory of ${title} over time: at most ${formatBytes(series.peakBytes)}`}</h2>
      <div class="table-bar">
        {children}
        <button type="button" aria-pressed={isTable} onClick={() => setIsTable(!isTable)}>
          Show as table
        </button>
        <button type="button" disabled={isWhole} onClick={() => setRange(whole)}>
          Show all
        </button>
      </div>
      {isTable ? (
        <TimeTable series={series} range={range} />
      ) : (
        <>
          <AreaChart
            series={series}
            label={`Memory of ${title}`}
            range={range}
            onRange={setRange}
            onCursor={setCursor}
          />
          <Legend series={series} at={cursor ?? series.peak} isCursor={cursor !== null} steps={steps} />
        </>
      )}
      <StepEnds ends={series.stepEnds} />
    </section>
  );
}

function linkedRange(series: MemorySeries): Range {
  const whole = wholeRange(series);
  const { from, to } = readLink();
  const [first, last] = [from, to].map((time) => series.fold.folded(Number(time)));
  const range = { from: Math.max(whole.from, first), to: Math.min(whole.to, last) };
  return from !== undefined && to !== undefined && range.from < range.to ? range : whole;
}

/** Store a range in the link after a pause: browsers limit the rate of changes. */
function useRememberedRange({ from, to }: Range, isWhole: boolean, fold: Fold): void {
  useEffect(() => {
    const bounds = [from, to].map((time) => (isWhole ? undefined : String(Math.round(fold.real(time)))));
    const waiting = setTimeout(() => updateLink({ from: bounds[0], to: bounds[1] }), 150);
    return () => clearTimeout(waiting);
  }, [from, to]);
}

/** The values of categories at the cursor or at the peak, in the order of the areas, the highest first. */
function Legend(props: { series: MemorySeries; at: number; isCursor: boolean; steps: StepRow[] }) {
  const { series, at, isCursor, steps } = props;
  const time = Math.round(series.fold.real(series.times[at] ?? 0));
  const step = steps.find((row) => row.begin_ns <= time && time < row.begin_ns + row.duration_ns);
  const where = `at ${formatDuration(time)}${step ? `, in step ${step.step}` : ""}`;
  return (
    <div class="memory-legend" aria-live="polite">
      <p>
        <strong>{isCursor ? formatBytes(series.totals[at]) : `Peak ${formatBytes(series.peakBytes)}`}</strong>{" "}
        <span class="quiet">{where}</span>
      </p>
      <ul class="legend" aria-label="Categories">
        {series.categories
          .map((category, number) => (
            <li key={category}>
              <Swatch colour={cssColour(series.colours[number])} />
              {`${category} ${formatBytes(series.sizes[number][at])}`}
            </li>
          ))
          .reverse()}
      </ul>
    </div>
  );
}

/** The visible samples as rows, for readers who cannot see the chart. */
function TimeTable({ series, range }: { series: MemorySeries; range: Range }) {
  const rows = useMemo(() => {
    const first = Math.max(0, indexAt(series.times, range.from));
    return Array.from({ length: indexAt(series.times, range.to) - first + 1 }, (_, number) => first + number);
  }, [series, range]);
  const columns = useMemo(() => timeColumns(series), [series]);
  return <Table caption="Memory over time" columns={columns} rows={rows} noun="moment" maxRows={50} />;
}

function timeColumns(series: MemorySeries): TableColumn<number>[] {
  return [
    timeColumn("Time", (at) => Math.round(series.fold.real(series.times[at]))),
    bytesColumn("All", (at) => series.totals[at]),
    ...series.categories.map((category, number) =>
      detail(bytesColumn<number>(category, (at) => series.sizes[number][at])),
    ),
  ];
}

const BAR_PX = 60;

/** A bar per step with the live memory at its end, which shows a leak. */
function StepEnds({ ends }: { ends: StepEnd[] }) {
  const [shown, setShown] = useState<StepEnd | null>(null);
  if (ends.length < 2) return null;
  const most = Math.max(...ends.map((end) => end.size_bytes), 1);
  const [first, last] = [ends[0], ends[ends.length - 1]];
  const description = `Live memory at the end of a step: ${formatBytes(first.size_bytes)} in step ${first.step}, ${formatBytes(last.size_bytes)} in step ${last.step}`;
  return (
    <>
      <h3>{description}</h3>
      <div class="step-ends" role="img" aria-label={description} onPointerLeave={() => setShown(null)}>
        {ends.map((end) => (
          <span key={end.time} onPointerEnter={() => setShown(end)}>
            <span style={{ height: `${(BAR_PX * end.size_bytes) / most}px` }} />
          </span>
        ))}
      </div>
      <p class="quiet">
        {shown ? `Step ${shown.step}: ${formatBytes(shown.size_bytes)}` : `Steps ${first.step} to ${last.step}`}
      </p>
    </>
  );
}
