import type { FunctionComponent } from "preact";
import { useMemo } from "preact/hooks";
import { counted, formatCount, formatDuration } from "../format";
import { shortKernelNames } from "../kernel_names";
import { navigate, readLink } from "../link";
import type { ModuleCallSums } from "../page_data";
import { Empty } from "../parts/empty";
import { Table, type TableColumn } from "../parts/table";
import { OneLine } from "../parts/name";
import type { ViewProps } from "../view";
import { timeColumn } from "../views/calls";
import { callsWithin, type CallsOf, type CallsWithin } from "./calls";
import { chosenModule, type ChosenModule } from "./chosen_module";
import { ModuleFilter } from "./module_filter";

/** A view of calls that shows those of the chosen module, and all without one. */
export function filteredByModule(of: CallsOf, All: FunctionComponent<ViewProps>): FunctionComponent<ViewProps> {
  return function Filtered(props: ViewProps) {
    const { page } = props.payload;
    const chosen = chosenModule(page);
    if (!page.modules || !chosen) return <All {...props} />;
    return (
      <>
        <ModuleFilter page={page} chosen={chosen} />
        <CallsOfModule payload={props.payload} of={of} calls={page.modules.calls} chosen={chosen} key={chosen.at} />
      </>
    );
  };
}

interface CallsProps extends Pick<ViewProps, "payload"> {
  of: CallsOf;
  calls: ModuleCallSums;
  chosen: ChosenModule;
}

function CallsOfModule({ payload, of, calls, chosen }: CallsProps) {
  const { at, end } = chosen;
  const rows = useMemo(() => callsWithin(payload, calls, of, at, end), [payload, calls, of, at, end]);
  const wholeNs = rows.reduce((sum, row) => sum + row.self_ns, 0);
  const columns = useMemo(() => columnsOf(of, rows, wholeNs), [of, rows]);
  const noun = of === "operators" ? "operator" : "kernel";
  if (!rows.length) return <Empty title={`No ${noun} belongs to this module.`} />;
  const numCalls = rows.reduce((sum, row) => sum + row.num_calls, 0);
  return (
    <>
      <h2>
        {of === "operators"
          ? `Self time of its operators: ${formatDuration(wholeNs)} in ${counted(numCalls, "call")}`
          : `Time of its kernels and copies: ${formatDuration(wholeNs)} in ${counted(numCalls, "run")}`}
      </h2>
      <Table
        caption={of === "operators" ? "Operators of the module" : "Kernels of the module"}
        columns={columns}
        rows={rows}
        sortedBy={of === "operators" ? "Self time" : "Time"}
        filterText={(row) => `${row.name} ${row.kind}`}
        noun={noun}
        onChoose={payload.page.timeline ? showInTimeline : undefined}
        isLinked
      />
    </>
  );
}

function showInTimeline({ name }: CallsWithin): void {
  navigate({ view: "timeline", q: name, span: "longest", module: readLink().module });
}

function columnsOf(of: CallsOf, rows: CallsWithin[], wholeNs: number): TableColumn<CallsWithin>[] {
  const mean = timeColumn<CallsWithin>("Mean", (row) => row.mean_ns);
  const longest = timeColumn<CallsWithin>("Longest", (row) => row.max_ns);
  if (of === "kernels") {
    const shortNames = shortKernelNames(rows.map(({ name }) => name));
    return [
      nameColumn("Kernel", shortNames),
      { title: "Kind", value: (row) => row.kind, width: "short" },
      countColumn("Runs"),
      timeColumn("Time", (row) => row.total_ns, undefined, wholeNs),
      mean,
      longest,
    ];
  }
  return [
    nameColumn("Operator"),
    countColumn("Calls"),
    timeColumn("Self time", (row) => row.self_ns, "Without the time in operators that they called", wholeNs),
    timeColumn("Time", (row) => row.total_ns, "With the operators that they called"),
    mean,
    longest,
    timeColumn("On the device", (row) => row.device_ns || null, "Of the kernels and copies that they launched"),
  ];
}

function nameColumn(title: string, shortNames?: Map<string, string>): TableColumn<CallsWithin> {
  const show = ({ name }: CallsWithin) => <OneLine name={name} short={shortNames?.get(name)} />;
  return { title, value: (row) => row.name, show, width: "line" };
}

function countColumn(title: string): TableColumn<CallsWithin> {
  return { title, value: (row) => row.num_calls, show: (row) => formatCount(row.num_calls) };
}
