import { useState } from "preact/hooks";
import { Choice, useLinkedChoice } from "../parts/choice";
import { Name } from "../parts/name";
import { Table, type TableColumn } from "../parts/table";
import type { ListedRun } from "./list_data";
import { CHOICES, comparisonAddress, comparisonOf, formatMoment, searchedText } from "./words";
import * as words from "./words";

const MOST_TICKED = 2;

/** Columns that are left out where no run had a device: on a small screen the findings need their place. */
const OF_DEVICES = ["Devices", "MFU"];

/** All runs, to sort, filter and compare. */
export function RunTable({ runs }: { runs: ListedRun[] }) {
  const [choice, choose] = useLinkedChoice("state", Object.keys(CHOICES));
  const [keys, setKeys] = useState<string[]>([]);
  const ticked = runs.filter((run) => keys.includes(run.key));
  const tick = ({ key }: ListedRun, isTicked: boolean) =>
    setKeys(isTicked ? [...keys, key].slice(-MOST_TICKED) : keys.filter((other) => other !== key));
  return (
    <div class="runs">
      <Table
        caption="Runs"
        columns={columnsOf(keys, tick).filter(
          (column) => !OF_DEVICES.includes(column.title) || runs.some((run) => column.value(run) !== null),
        )}
        rows={runs.filter(CHOICES[choice] ?? CHOICES["all runs"])}
        rowKey={(run) => run.key}
        filterText={searchedText}
        noun="run"
        most={1000}
        isLinked
      >
        <Choice title="Show" options={Object.keys(CHOICES)} chosen={choice} onChoose={choose} />
        <CompareLink ticked={ticked} />
      </Table>
    </div>
  );
}

function CompareLink({ ticked }: { ticked: ListedRun[] }) {
  if (ticked.length < MOST_TICKED) return <span class="quiet">Tick two runs to compare them</span>;
  const { address, before, after } = comparisonOf(ticked);
  return (
    <a class="as-button" href={address}>
      Compare <Name text={before.title} most={40} /> with <Name text={after.title} most={40} />
    </a>
  );
}

function columnsOf(keys: string[], tick: (run: ListedRun, isTicked: boolean) => void): TableColumn<ListedRun>[] {
  return [
    {
      title: "Run",
      value: (run) => run.title,
      show: (run) => <RunName run={run} isTicked={keys.includes(run.key)} tick={tick} />,
    },
    { title: "State", value: (run) => run.state, show: (run) => <State state={run.state} /> },
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
    { title: "Ranks", value: (run) => run.num_ranks, show: (run) => words.ranksOf(run) },
    {
      title: "Steps",
      value: (run) => run.num_steps,
      show: (run) => words.knownOr(run.num_steps, (number) => number.toLocaleString("en-US")),
      help: "How many were recorded",
    },
    { title: "Step time", value: (run) => run.step_ns, unit: "ns", show: (run) => words.stepTimeOf(run) },
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
    { title: "MFU", value: (run) => run.mfu, show: (run) => words.mfuOf(run), help: "Model FLOPs utilisation" },
    {
      title: "Memory",
      value: (run) => run.peak_bytes,
      unit: "bytes",
      show: (run) => <span title={words.memoryHelp(run)}>{words.memoryOf(run)}</span>,
      help: "The most that was allocated on one device; on the host where no device was seen",
    },
    { title: "Report", value: () => null, show: (run) => <ReportLink run={run} /> },
  ];
}

interface RunNameProps {
  run: ListedRun;
  isTicked: boolean;
  tick: (run: ListedRun, isTicked: boolean) => void;
}

function RunName({ run, isTicked, tick }: RunNameProps) {
  return (
    <div class="run-name">
      <input
        type="checkbox"
        aria-label={`Compare ${run.title}`}
        title={run.num_traces ? "Tick two runs to compare them" : "It has no trace to compare"}
        disabled={!run.num_traces}
        checked={isTicked}
        onChange={(event) => tick(run, event.currentTarget.checked)}
      />
      <div>
        <a href={run.address}>
          <Name text={run.title} most={80} />
        </a>
        {run.notes.map((note) => (
          <p class="run-note" key={note}>
            <Name text={note} most={400} />
          </p>
        ))}
      </div>
    </div>
  );
}

export function State({ state }: { state: string | null }) {
  return state && <span class={`state ${state}`}>{state}</span>;
}

export function When({ unixMs, what }: { unixMs: number | null; what: string }) {
  const shown = formatMoment(unixMs);
  return shown && <time title={`${what} ${formatMoment(unixMs, true)}`}>{shown}</time>;
}

export function Several({ names, noun }: { names: string[]; noun: string }) {
  return (
    <span class="several" title={names.join(", ")}>
      <Name text={words.namesOf(names, noun)} most={60} />
    </span>
  );
}

export function Change({ run }: { run: ListedRun }) {
  if (run.before_key === null) return null;
  return (
    <a
      class={`change-link ${words.changeClass(run)}`}
      href={comparisonAddress(run.before_key, run.key)}
      title={`against ${run.before_title}: compare them`}
    >
      {words.changeOf(run)}
    </a>
  );
}

export function FirstFinding({ run }: { run: ListedRun }) {
  return (
    <span class={`first-finding ${run.finding ? "" : "quiet"}`} title={words.savingOf(run) || words.findingOf(run)}>
      <Name text={words.findingOf(run)} most={400} />
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
