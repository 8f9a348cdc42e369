import { useMemo } from "preact/hooks";
import { Empty } from "../parts/empty";
import type { Payload } from "../payload";
import type { CallKind } from "../views/call_kinds";
import { CallsTable } from "../views/calls_table";
import { callsWithin, totalsOf } from "./calls";
import type { ChosenModule } from "./chosen_module";

interface CallsOfModuleProps {
  payload: Payload;
  kind: CallKind;
  chosen: ChosenModule;
  maxRows?: number;
}

/** The calls of one kind within a module. */
export function CallsOfModule({ payload, kind, chosen: { at, end, title }, maxRows }: CallsOfModuleProps) {
  const { modules } = payload.page;
  const rows = useMemo(
    () => (modules ? callsWithin(payload, modules.calls, kind.name, at, end) : []),
    [payload, modules, kind, at, end],
  );
  const totals = useMemo(() => totalsOf(rows), [rows]);
  if (!rows.length) return <Empty title={`No ${kind.noun} belongs to this module.`} />;
  return (
    <>
      <h2>{kind.heading(totals, title && ` of ${title}`)}</h2>
      <CallsTable payload={payload} kind={kind} rows={rows} wholeNs={totals[0].self_ns} maxRows={maxRows} />
    </>
  );
}
