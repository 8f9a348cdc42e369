import type { FunctionComponent } from "preact";
import { useMemo } from "preact/hooks";
import { CallsOfModule } from "../modules/calls_of_module";
import { chosenModule } from "../modules/chosen_module";
import { ModuleFilter } from "../modules/module_filter";
import type { CallSums, CallTotals, PageData } from "../page_data";
import { Choice, useLinkedChoice } from "../parts/choice";
import type { ViewProps } from "../view";
import { KERNELS, OPERATORS, type CallKind } from "./call_kinds";
import { BY_LINE, LineTable } from "./calling_lines";
import { CallsPicture } from "./calls_picture";
import { CallsTable } from "./calls_table";

/** The view of a kind of calls: those of the chosen module, and all without one. */
export function callsView(kind: CallKind): FunctionComponent<ViewProps> {
  return function Calls({ payload }: ViewProps) {
    const { page } = payload;
    const chosen = chosenModule(page);
    if (!chosen) return <AllCalls payload={payload} kind={kind} />;
    return (
      <>
        <ModuleFilter page={page} chosen={chosen} />
        <CallsOfModule payload={payload} kind={kind} chosen={chosen} key={chosen.at} />
      </>
    );
  };
}

/** All calls of a kind over all ranks, grouped by name, line or otherwise. */
function AllCalls({ payload, kind }: Pick<ViewProps, "payload"> & { kind: CallKind }) {
  const { page } = payload;
  const totals = totalsOf(page, kind);
  const groupings = Object.entries(kind.groupings).filter(([by]) => rowsBy(page, kind, by).length);
  const lines = useMemo(
    () => page.calling_lines.filter((row) => (row.kind === "operator") === (kind.name === "operators")),
    [page, kind],
  );
  const options = [...groupings.map(([, title]) => title), ...(lines.length ? [BY_LINE] : [])];
  const [chosenTitle, setBy] = useLinkedChoice("by", options);
  const by = groupings.find(([, title]) => title === chosenTitle)?.[0];
  const choice = options.length > 1 && (
    <Choice title="Group by" options={options} chosen={chosenTitle} onChoose={setBy} />
  );
  return (
    <>
      <h2>{kind.heading(totals, (page.report?.run.ranks.length ?? 0) > 1 ? " on all ranks" : "")}</h2>
      {kind === KERNELS && page.tensor_core_sentence && <p class="facts">{page.tensor_core_sentence}</p>}
      {by === undefined ? (
        <LineTable kind={kind} rows={lines} wholeNs={totals[0].self_ns} hasTimeline={page.timeline !== null}>
          {choice}
        </LineTable>
      ) : (
        <CallsTable
          payload={payload}
          kind={kind}
          rows={rowsBy(page, kind, by)}
          wholeNs={totals[0].self_ns}
          noun={by === groupings[0][0] ? undefined : "row"}
          hasNoNames={by === kind.withoutNames}
        >
          {choice}
        </CallsTable>
      )}
      {by !== undefined && <CallsPicture rows={rowsBy(page, kind, "name")} calls={kind.callsTitle} />}
    </>
  );
}

/** The totals of all calls of a kind, then those of its parts. */
function totalsOf({ call_totals: totals }: PageData, { name }: CallKind): CallTotals[] {
  const isPart = ({ kind }: CallTotals) => kind !== OPERATORS.name && kind !== KERNELS.name;
  return totals.filter((total) => total.kind === name || (name === KERNELS.name && isPart(total)));
}

function rowsBy({ call_tables: tables }: PageData, { name }: CallKind, by: string): CallSums[] {
  return tables.find((table) => table.of === name && table.by === by)?.rows ?? [];
}
