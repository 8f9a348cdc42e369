import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { cssColour, PHASE_COLOURS } from "../colours";
import { formatBytes, formatCount, formatDuration, formatOperations, formatShare } from "../format";
import { chooseModule, chosenModule } from "../modules/chosen_module";
import { ModuleFilter } from "../modules/module_filter";
import "../modules/modules.css";
import { longestSide, rowsAround, rowsWithInner, visibleRows } from "../modules/tree";
import type { Module, Modules as ModulesData } from "../page_data";
import { CopyButton } from "../parts/copy";
import { Name } from "../parts/name";
import { Bar } from "../parts/stack";
import { Explained } from "../parts/term";
import { toTsv, type TableColumn } from "../parts/table_rows";
import type { ViewProps } from "../view";

/** Rows down to this depth are open at first; all of a tree of few rows. */
const OPEN_LEVELS = 2;
const MAX_OPEN_ROWS = 40;

/** Torch modules as a tree: their time forward and backward, work and memory, per step. */
export function Modules({ payload: { page } }: ViewProps) {
  const { modules } = page;
  const chosen = chosenModule(page);
  if (!modules) return null;
  const { side, step_ns: stepNs, total } = modules;
  return (
    <>
      <h2>{`${side} time by module: ${formatDuration(total.time_ns)} per step`}</h2>
      <Tree modules={modules} chosen={chosen?.at ?? null}>
        {chosen && <ModuleFilter page={page} chosen={chosen} />}
      </Tree>
      {side === "GPU" && (
        <p class="quiet">
          {`A step takes ${formatDuration(stepNs)}. Kernels that overlap count each, as do those before the first step; idle time is in no row.`}
        </p>
      )}
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
        {children}
      </div>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reached by keys */}
      <section class="table-scroll" aria-label="Modules" tabIndex={0}>
        <table>
          <caption class="for-readers">Modules, per step of a rank</caption>
          <thead>
            <tr>
              <th scope="col">Module</th>
              {columns.map(({ title, help }) => (
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
                <Cells row={rows[at]} columns={columns} />
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">{total.title}</th>
              <Cells row={total} columns={columns} />
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

interface NumberColumn extends TableColumn<Module> {
  value: (row: Module) => number | null;
  /** Colour of the bar. */
  colour: string;
}

function Cells({ row, columns }: { row: Module; columns: NumberColumn[] }) {
  return columns.map((column) => {
    const value = column.value(row);
    const colour = row.class_name === null ? cssColour(PHASE_COLOURS.other) : column.colour;
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
function columnsOf({ side, rows }: ModulesData): NumberColumn[] {
  const longest = longestSide(rows);
  const [forward, backward] = [PHASE_COLOURS.forward, PHASE_COLOURS.backward].map(cssColour);
  const columns: NumberColumn[] = [
    timeOf("Time", (row) => row.time_ns, `${side} time per step of a rank, with the modules inside`),
    { ...plain("Of step", (row) => row.share), show: (row) => formatShare(row.share) },
    { ...timeOf("Forward", (row) => row.forward_ns), whole: longest, colour: forward },
    { ...timeOf("Backward", (row) => row.backward_ns), whole: longest, colour: backward },
    timeOf("Recomputed", (row) => row.recompute_ns, "Forward passes repeated by activation checkpointing"),
    timeOf("Communication", (row) => row.communication_ns, "Time of kernels of collectives"),
    { ...plain("Calls", (row) => row.num_calls), show: (row) => formatCount(row.num_calls) },
    { ...plain("FLOPs", (row) => row.flops, "FLOP"), show: (row) => formatOperations(row.flops) },
    bytesOf("Allocated", (row) => row.allocated_bytes, "Memory that its calls allocated"),
    bytesOf("Saved", (row) => row.saved_bytes, "Still allocated at the end of its calls, mostly for the backward pass"),
  ];
  return columns.filter((column) => rows.some((row) => column.value(row)));
}

function plain(title: string, value: NumberColumn["value"], unit?: string): NumberColumn {
  return { title, value, unit, colour: "" };
}

function timeOf(title: string, value: NumberColumn["value"], help?: string): NumberColumn {
  return { ...plain(title, value, "ns"), show: (row) => formatDuration(value(row)), help };
}

function bytesOf(title: string, value: NumberColumn["value"], help: string): NumberColumn {
  return { ...plain(title, value, "bytes"), show: (row) => formatBytes(value(row)), help };
}
