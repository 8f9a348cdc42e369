import { useState } from "preact/hooks";
import { Choice, useLinkedChoice } from "../parts/choice";
import { Name } from "../parts/name";
import { Table, type TableColumn } from "../parts/table";
import type { ListedRun } from "./list_data";
import { FILTERS, buildComparisonAddress, orderForComparison, formatMoment, buildFilterText } from "./labels";
import * as labels from "./labels";

const MAX_SELECTED = 2;

/** Columns that are hidden if no run had a device, to leave space for the findings. */
const DEVICE_COLUMNS = ["Devices", "MFU"];

/** All runs, with sorting, filters and comparison. */
export function RunTable({ runs }: { runs: ListedRun[] }) {
  const [choice, choose] = useLinkedChoice("state", Object.keys(FILTERS));
  const [keys, setKeys] = useState<string[]>([]);
  const selected = runs.filter((run) => keys.includes(run.key));
  const select = ({ key }: ListedRun, isSelected: boolean) =>
    setKeys(isSelected ? [...keys, key].slice(-MAX_SELECTED) : keys.filter((other) => other !== key));
  return (
    <div class="runs">
      <Table
        caption="Runs"
        columns={columnsOf(keys, select).filter(
          (column) => !DEVICE_COLUMNS.includes(column.title) || runs.some((run) => column.value(run) !== null),
        )}
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
  if (selected.length < MAX_SELECTED) return <span class="quiet">Tick two runs to compare them</span>;
  const { address, before, after } = orderForComparison(selected);
  return (
    <a class="as-button" href={address}>
      Compare <Name text={before.title} maxLength={40} /> with <Name text={after.title} maxLength={40} />
    </a>
  );
}

function columnsOf(keys: string[], select: (run: ListedRun, isSelected: boolean) => void): TableColumn<ListedRun>[] {
  return [
    {
      title: "Run",
      value: (run) => run.title,
      show: (run) => <RunName run={run} isSelected={keys.includes(run.key)} select={select} />,
    },
    {
      title: "State",
      value: (run) => run.state && labels.formatState(run.state),
      show: (run) => <State state={run.state} />,
    },
    {
      title: "When",
      value: (run) => run.when_ms,
      unit: "unix ms",
      show: (run) => <When unixMs={run.when_ms} what={run.has_start_time ? "began" : "last written"} />,
      help: "When it began; of a folder that no run of ours wrote, when its last file was written",
    },
    {
      title: "Host",
      value: (run) => run.hosts.join(", ") || null,
      show: (run) => <Several names={run.hosts} noun="host" />,
    },
    {
      title: "Devices",
      value: (run) => run.devices.join(", ") || null,
      show: (run) => <Several names={run.devices} noun="kind" />,
    },
    { title: "Ranks", value: (run) => run.num_ranks, show: (run) => labels.formatRankCount(run) },
    {
      title: "Steps",
      value: (run) => run.num_steps,
      show: (run) => labels.formatKnown(run.num_steps, (number) => number.toLocaleString("en-US")),
      help: "How many were recorded",
    },
    { title: "Step time", value: (run) => run.step_ns, unit: "ns", show: (run) => labels.formatStepTime(run) },
    {
      title: "Change",
      value: (run) => run.change,
      show: (run) => <Change run={run} />,
      help: "Of the step time, against the run before with as many ranks on the same devices; a click compares them",
    },
    {
      title: "First finding",
      value: (run) => run.finding || null,
      show: (run) => <FirstFinding run={run} />,
    },
    { title: "MFU", value: (run) => run.mfu, show: (run) => labels.formatRunMfu(run), help: "Model FLOPs utilisation" },
    {
      title: "Memory",
      value: (run) => run.peak_bytes,
      unit: "bytes",
      show: (run) => <span title={labels.describePeakMemory(run)}>{labels.formatPeakMemory(run)}</span>,
      help: "The most that was allocated on one device; on the host where no device was seen",
    },
    { title: "Report", value: () => null, show: (run) => <ReportLink run={run} /> },
  ];
}

interface RunNameProps {
  run: ListedRun;
  isSelected: boolean;
  select: (run: ListedRun, isSelected: boolean) => void;
}

function RunName({ run, isSelected, select }: RunNameProps) {
  return (
    <div class="run-name">
      <input
        type="checkbox"
        aria-label={`Compare ${run.title}`}
        title={run.num_traces ? "Tick two runs to compare them" : "It has no trace to compare"}
        disabled={!run.num_traces}
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

export function State({ state }: { state: string | null }) {
  return state && <span class={`state ${state}`}>{labels.formatState(state)}</span>;
}

export function When({ unixMs, what }: { unixMs: number | null; what: string }) {
  const shown = formatMoment(unixMs);
  return shown && <time title={`${what} ${formatMoment(unixMs, true)}`}>{shown}</time>;
}

export function Several({ names, noun }: { names: string[]; noun: string }) {
  return (
    <span class="several" title={names.join(", ")}>
      <Name text={labels.formatNames(names, noun)} maxLength={60} />
    </span>
  );
}

export function Change({ run }: { run: ListedRun }) {
  if (run.before_key === null) return null;
  return (
    <a
      class={`change-link ${labels.changeClass(run)}`}
      href={buildComparisonAddress(run.before_key, run.key)}
      title={`against ${run.before_title}: compare them`}
    >
      {labels.formatRunChange(run)}
    </a>
  );
}

export function FirstFinding({ run }: { run: ListedRun }) {
  return (
    <span
      class={`first-finding ${run.finding ? "" : "quiet"}`}
      title={labels.formatSaving(run) || labels.formatFinding(run)}
    >
      <Name text={labels.formatFinding(run)} maxLength={400} />
    </span>
  );
}

function ReportLink({ run }: { run: ListedRun }) {
  if (run.report === null) return null;
  return (
    <a
      href={run.report}
      aria-label={`report on ${run.title}`}
      title={run.has_report ? "the report in its folder" : "makes the report, and shows it"}
    >
      report
    </a>
  );
}
