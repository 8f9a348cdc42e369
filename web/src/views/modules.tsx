import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { cssColour, PHASE_COLOURS } from "../colours";
import { formatDuration } from "../format";
import { CallsOfModule } from "../modules/calls_of_module";
import { chooseModule, chosenModule } from "../modules/chosen_module";
import { ModuleFilter } from "../modules/module_filter";
import "../modules/modules.css";
import { longestSide, rowsAround, rowsWithInner, visibleRows } from "../modules/tree";
import type { Module, Modules as ModulesData } from "../page_data";
import { CopyButton } from "../parts/copy";
import { Name } from "../parts/name";
import { useShownColumns } from "../parts/shown_columns";
import { Bar } from "../parts/stack";
import { Explained } from "../parts/term";
import { toTsv, type TableColumn } from "../parts/table_rows";
import { bytesColumn, countColumn, detail, flopColumn, shareColumn, timeColumn } from "../parts/unit_columns";
import type { ViewProps } from "../view";
import { KERNELS, OPERATORS } from "./call_kinds";

/** Rows down to this depth are open at first; all of a tree of few rows. */
const OPEN_LEVELS = 2;
const MAX_OPEN_ROWS = 40;
/** Rows of calls shown at first. */
const MAX_CALLS = 15;

/** Torch modules as a tree: their time forward and backward, work and memory, per step; and the calls within. */
export function Modules({ payload }: ViewProps) {
  const { page } = payload;
  const { modules } = page;
  const chosen = chosenModule(page);
  if (!modules) return null;
  const { side, step_ns: stepNs, total } = modules;
  const of = chosen ?? { at: 0, end: modules.rows.length, title: "" };
  return (
    <>
      <h2>{`${side} time by module: ${formatDuration(total.time_ns)} per step`}</h2>
      <Tree modules={modules} chosen={chosen?.at ?? null}>
        {chosen && <ModuleFilter page={page} chosen={chosen} />}
      </Tree>
      {side === "GPU" && (
        <p class="quiet">
          {`A step takes ${formatDuration(stepNs)}. Overlapping kernels are counted separately, also those before the first step; idle time is not included.`}
        </p>
      )}
      <CallsOfModule
        payload={payload}
        kind={side === "GPU" ? KERNELS : OPERATORS}
        chosen={of}
        maxRows={MAX_CALLS}
        key={of.at}
      />
    </>
  );
}

interface TreeProps {
  modules: ModulesData;
  chosen: number | null;
  /** Further controls. */
  children: ComponentChildren;
}

function Tree({ modules, chosen, children }: TreeProps) {
  const { rows, total } = modules;
  const withInner = useMemo(() => rowsWithInner(rows), [rows]);
  const [open, setOpen] = useState<ReadonlySet<number>>(() => openAtFirst(rows, withInner, chosen));
  const columns = useMemo(() => columnsOf(modules), [modules]);
  const { shown: shownColumns, button, scroller } = useShownColumns(columns);
  const shown = visibleRows(rows, open);
  const toggle = (at: number) =>
    setOpen(open.has(at) ? new Set([...open].filter((one) => one !== at)) : new Set([...open, at]));
  const isAllOpen = withInner.every((at) => open.has(at));
  return (
    <div class="modules">
      <div class="table-bar">
        {withInner.length > 0 && (
          <button type="button" onClick={() => setOpen(new Set(isAllOpen ? [] : withInner))}>
            {isAllOpen ? "Close all" : "Open all"}
          </button>
        )}
        <CopyButton title="Copy as TSV" text={() => toTsv([NAME, ...columns], [...rows, total])} />
        {button}
        {children}
      </div>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reached by keys */}
      <section class="table-scroll" ref={scroller} aria-label="Modules" tabIndex={0}>
        <table>
          <caption class="for-readers">Modules, per step of a rank</caption>
          <thead>
            <tr>
              <th scope="col">Module</th>
              {shownColumns.map(({ title, help }) => (
                <th key={title} scope="col" class="number">
                  {help ? <Explained word={title} meaning={help} /> : title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((at) => (
              <tr key={at} class={at === chosen ? "module-chosen" : undefined}>
                <th scope="row">
                  <ModuleName
                    row={rows[at]}
                    isOpen={withInner.includes(at) ? open.has(at) : null}
                    isChosen={at === chosen}
                    onToggle={() => toggle(at)}
                  />
                </th>
                <Cells row={rows[at]} columns={shownColumns} />
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">{total.title}</th>
              <Cells row={total} columns={shownColumns} />
            </tr>
          </tfoot>
        </table>
      </section>
    </div>
  );
}

/** The rows of the first levels, and those around the chosen one. */
function openAtFirst(rows: Module[], withInner: number[], chosen: number | null): ReadonlySet<number> {
  const first = rows.length > MAX_OPEN_ROWS ? withInner.filter((at) => rows[at].level < OPEN_LEVELS) : withInner;
  return new Set([...first, ...(chosen === null ? [] : rowsAround(rows, chosen))]);
}

interface ModuleNameProps {
  row: Module;
  /** Null without modules inside. */
  isOpen: boolean | null;
  isChosen: boolean;
  onToggle: () => void;
}

function ModuleName({ row, isOpen, isChosen, onToggle }: ModuleNameProps) {
  const { title, class_name: className, level, outlier } = row;
  return (
    <div style={{ paddingInlineStart: `${level}rem` }}>
      <div class="module-name">
        {isOpen === null ? (
          <span class="module-leaf" />
        ) : (
          <button
            type="button"
            class="module-toggle"
            aria-expanded={isOpen}
            aria-label={`Modules in ${title.slice(0, 80)}`}
            onClick={onToggle}
          >
            <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span>
          </button>
        )}
        <button
          type="button"
          class="as-link"
          aria-pressed={isChosen}
          title={`${row.names[0]}: filter operators, kernels and timeline`}
          onClick={() => chooseModule(isChosen ? null : row)}
        >
          <Name text={title} maxLength={80} />
        </button>
        {className && className !== title && (
          <span class="quiet">
            <Name text={className} maxLength={40} />
          </span>
        )}
      </div>
      {outlier && (
        <p class="module-outlier quiet">
          <Name text={outlier} />
        </p>
      )}
    </div>
  );
}

interface ModuleColumn extends TableColumn<Module> {
  /** Colour of the bar. */
  colour?: string;
}

function Cells({ row, columns }: { row: Module; columns: ModuleColumn[] }) {
  return columns.map((column) => {
    const value = Number(column.value(row));
    const colour = (row.class_name !== null && column.colour) || cssColour(PHASE_COLOURS.other);
    return (
      <td key={column.title} class="number">
        {column.whole && row.names.length > 0 && (
          <span class="module-bar" aria-hidden="true">
            <Bar parts={[{ name: column.title, value, colour }]} longest={column.whole} />
          </span>
        )}
        <span>{value ? column.show?.(row) : ""}</span>
      </td>
    );
  });
}

const NAME: TableColumn<Module> = {
  title: "Module",
  value: ({ names, title }) => (names.length > 1 ? `${names[0]} (${names.length}x)` : (names[0] ?? title)),
};

/** Columns with a value in some row; the bars of forward and backward have one scale. */
function columnsOf({ side, rows }: ModulesData): ModuleColumn[] {
  const longest = longestSide(rows);
  const [forward, backward] = [PHASE_COLOURS.forward, PHASE_COLOURS.backward].map(cssColour);
  const columns: ModuleColumn[] = [
    timeColumn("Time", (row) => row.time_ns, `${side} time per step of a rank, with the modules inside`),
    shareColumn("Of step", (row) => row.share),
    ...[
      { ...timeColumn<Module>("Forward", (row) => row.forward_ns), whole: longest, colour: forward },
      { ...timeColumn<Module>("Backward", (row) => row.backward_ns), whole: longest, colour: backward },
      timeColumn<Module>(
        "Recomputed",
        (row) => row.recompute_ns,
        "Forward passes repeated by activation checkpointing",
      ),
      timeColumn<Module>("Communication", (row) => row.communication_ns, "Time of kernels of collectives"),
      countColumn<Module>("Calls", (row) => row.num_calls),
      flopColumn<Module>("FLOPs", (row) => row.flops),
      bytesColumn<Module>("Allocated", (row) => row.allocated_bytes, "Memory that its calls allocated"),
      bytesColumn<Module>("Saved", (row) => row.saved_bytes, "Still allocated after its calls, mostly for backward"),
    ].map(detail),
  ];
  return columns.filter((column) => rows.some((row) => column.value(row)));
}
