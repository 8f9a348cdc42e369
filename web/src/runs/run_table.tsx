import { useState } from "preact/hooks";
import { Choice, useLinkedChoice } from "../parts/choice";
import { Name } from "../parts/name";
import { Table, type TableColumn } from "../parts/table";
import { detail, timeColumn } from "../parts/unit_columns";
import type { ListedRun } from "./list_data";
import { FILTERS, orderForComparison, buildFilterText } from "./labels";
import * as labels from "./labels";
import { Change, FirstFinding, Several, State, When } from "./run_cells";
import { TrendLine } from "./trend";

const MAX_SELECTED = 2;

/** Columns that are hidden without a known value, to leave space for the findings. */
const OPTIONAL_COLUMNS = ["State", "Devices", "MFU"];

function isShown({ title, value }: TableColumn<ListedRun>, runs: ListedRun[]): boolean {
  if (title === "Trend") return runs.some((run) => run.before_key !== null);
  return !OPTIONAL_COLUMNS.includes(title) || runs.some((run) => value(run) !== null);
}

/** All runs, with sorting, filters and comparison. */
export function RunTable({ runs }: { runs: ListedRun[] }) {
  const [choice, choose] = useLinkedChoice("state", Object.keys(FILTERS));
  const [keys, setKeys] = useState<string[]>([]);
  const selected = runs.filter((run) => keys.includes(run.key));
  const byKey = new Map(runs.map((run) => [run.key, run]));
  const group = selected[0]?.group ?? null;
  const select = ({ key }: ListedRun, isSelected: boolean) =>
    setKeys(isSelected ? [...keys, key].slice(-MAX_SELECTED) : keys.filter((other) => other !== key));
  return (
    <div class="runs">
      <Table
        caption="Runs"
        columns={columnsOf({ keys, group, select, byKey }).filter((column) => isShown(column, runs))}
        rows={runs.filter(FILTERS[choice] ?? FILTERS["all runs"])}
        rowKey={(run) => run.key}
        filterText={buildFilterText}
        noun="run"
        maxRows={1000}
        hasAllColumns
        isLinked
      >
        <Choice title="Show" options={Object.keys(FILTERS)} chosen={choice} onChoose={choose} />
        <CompareLink selected={selected} />
      </Table>
    </div>
  );
}

function CompareLink({ selected }: { selected: ListedRun[] }) {
  if (selected.length < MAX_SELECTED) return <span class="quiet">Select two runs of a group to compare them</span>;
  const { address, before, after } = orderForComparison(selected);
  return (
    <a class="as-button" href={address}>
      Compare <Name text={before.title} maxLength={40} /> with <Name text={after.title} maxLength={40} />
    </a>
  );
}

interface ColumnProps {
  keys: string[];
  /** The group of the selected runs. */
  group: number | null;
  select: (run: ListedRun, isSelected: boolean) => void;
  byKey: Map<string, ListedRun>;
}

function columnsOf({ keys, group, select, byKey }: ColumnProps): TableColumn<ListedRun>[] {
  return [
    {
      title: "Run",
      value: (run) => run.title,
      show: (run) => <RunName run={run} isSelected={keys.includes(run.key)} group={group} select={select} />,
    },
    {
      title: "State",
      value: (run) => run.state && labels.formatState(run.state),
      show: (run) => <State state={run.state} />,
    },
    detail({
      title: "When",
      value: (run) => run.when_ms,
      unit: "unix ms",
      show: (run) => <When unixMs={run.when_ms} what={run.has_start_time ? "began" : "last written"} />,
      help: "Start time; of folders without one, the time of the last write",
    }),
    detail({
      title: "Host",
      value: (run) => run.hosts.join(", ") || null,
      show: (run) => <Several names={run.hosts} noun="host" />,
    }),
    detail({
      title: "Devices",
      value: (run) => run.devices.join(", ") || null,
      show: (run) => <Several names={run.devices} noun="kind" />,
    }),
    detail({ title: "Ranks", value: (run) => run.num_ranks, show: (run) => labels.formatRankCount(run) }),
    detail({
      title: "Steps",
      value: (run) => run.num_steps,
      show: (run) => labels.formatKnown(run.num_steps, (number) => number.toLocaleString("en-US")),
      help: "Recorded steps",
    }),
    { ...timeColumn<ListedRun>("Step time", (run) => run.step_ns), show: labels.formatStepTime },
    detail({
      title: "Change",
      value: (run) => run.change,
      show: (run) => <Change run={run} />,
      help: "Change of the step time from the previous run of the group with as many ranks on the same devices",
    }),
    detail({
      title: "Trend",
      value: () => null,
      show: (run) => <TrendLine run={run} byKey={byKey} />,
      help: "Step times of up to twelve runs of the group; the dot is this run",
      width: "short",
    }),
    detail({
      title: "Top finding",
      value: (run) => run.finding || null,
      show: (run) => <FirstFinding run={run} />,
    }),
    detail({ title: "MFU", value: (run) => run.mfu, show: labels.formatRunMfu, help: "Model FLOPs utilisation" }),
    detail({
      title: "Memory",
      value: (run) => run.peak_bytes,
      unit: "bytes",
      show: (run) => <span title={labels.describePeakMemory(run)}>{labels.formatPeakMemory(run)}</span>,
      help: "Peak memory allocated on one device; on the host without a device",
    }),
    { title: "Report", value: () => null, show: (run) => <ReportLink run={run} />, width: "short" },
  ];
}

interface RunNameProps {
  run: ListedRun;
  isSelected: boolean;
  group: number | null;
  select: (run: ListedRun, isSelected: boolean) => void;
}

/** Runs of another group may be another program: a comparison says nothing of a change. */
const OTHER_GROUP = "Another group, by its command or name: kinetoscope diff compares any two runs";

function RunName({ run, isSelected, group, select }: RunNameProps) {
  const isOther = group !== null && run.group !== group;
  return (
    <div class="run-name">
      <input
        type="checkbox"
        aria-label={`Compare ${run.title}`}
        title={!run.num_traces ? "No traces to compare" : isOther ? OTHER_GROUP : "Select two runs to compare them"}
        disabled={!run.num_traces || isOther}
        checked={isSelected}
        onChange={(event) => select(run, event.currentTarget.checked)}
      />
      <div>
        <a href={run.address}>
          <Name text={run.title} maxLength={80} />
        </a>
        {run.notes.map((note) => (
          <p class="run-note" key={note}>
            <Name text={note} maxLength={400} />
          </p>
        ))}
      </div>
    </div>
  );
}

function ReportLink({ run }: { run: ListedRun }) {
  if (run.report === null) return null;
  return (
    <a
      href={run.report}
      aria-label={`report on ${run.title}`}
      title={run.has_report ? "open the report in the run's folder" : "write the report and open it"}
    >
      report
    </a>
  );
}
