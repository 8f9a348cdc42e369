import { useMemo, useState } from "preact/hooks";
import { counted, formatDuration, formatShare } from "../format";
import { readLink, updateLink } from "../link";
import { cssColour } from "../colours";
import { Choice, useLinkedChoice } from "../parts/choice";
import { Name, OneLine } from "../parts/name";
import { Swatch } from "../parts/swatch";
import { Table, type TableColumn } from "../parts/table";
import { matchingRows } from "../parts/table_rows";
import { countColumn, detail, timeColumn } from "../parts/unit_columns";
import type { ViewProps } from "../view";
import { nameGraph } from "../view_links";
import { FrameCanvas } from "./canvas";
import { KIND_COLOURS } from "./draw";
import "./flame.css";
import { Frames, kindOf, KINDS, ORDERS, type NameRow, type Order } from "./frames";
import { sandwichOf, withoutHidden } from "./sandwich";

/** Flame graphs: call paths as boxes whose width is their share of the time. */
export function FlameGraphs({ payload }: ViewProps) {
  const graphs = payload.page.flame_graphs;
  const titles = graphs.map(nameGraph);
  const [title, setTitle] = useLinkedChoice("graph", titles);
  const graph = graphs[titles.indexOf(title)];
  const [order, setOrder] = useLinkedChoice("order", [...ORDERS]);
  const [hiding, setHiding] = useLinkedChoice("libraries", LIBRARIES);
  const all = useMemo(() => graph && new Frames(graph, payload, order as Order), [graph, order]);
  const canHide = useMemo(() => !!all?.texts.some(isOfUser) && all.texts.some(isOfLibrary), [all]);
  const isHiding = canHide && hiding === LIBRARIES[1];
  const frames = useMemo(
    () => (all && isHiding ? withoutHidden(all, isOfLibrary, order as Order) : all),
    [all, isHiding, order],
  );
  if (!frames?.root) return null;
  const choice = <Choice title="Calls of" options={titles} chosen={title} onChoose={setTitle} />;
  return (
    <Graph key={`${title} ${isHiding}`} frames={frames} order={order as Order}>
      {titles.length > 1 ? choice : <span>{title}</span>}
      <Choice title="Order" options={[...ORDERS]} chosen={order} onChoose={setOrder} />
      {canHide && (
        <label>
          <input
            type="checkbox"
            checked={isHiding}
            onChange={(event) => setHiding(LIBRARIES[Number(event.currentTarget.checked)])}
          />
          {" Hide library frames"}
        </label>
      )}
    </Graph>
  );
}

/** Whether frames of libraries are shown, as in the link. */
const LIBRARIES = ["shown", "hidden"];

const isOfLibrary = (name: string) => kindOf(name) === "library Python";
const isOfUser = (name: string) => kindOf(name) === "your code";

interface GraphProps {
  frames: Frames;
  order: Order;
  children: preact.ComponentChildren;
}

const DIRECTIONS = ["Icicle: callers above", "Flame: callers below"];

function Graph({ frames, order, children }: GraphProps) {
  const [direction, setDirection] = useLinkedChoice("drawn", DIRECTIONS);
  const [chosen, setChosen] = useState(readLink().function);
  const linked = Number(readLink().frame ?? frames.root);
  const [top, setTop] = useState(linked >= 0 && linked < frames.root ? linked : frames.root);
  const [search, setSearch] = useState(readLink().q ?? "");
  const isFound = useMemo(() => (search.trim() ? frames.matching(search) : null), [frames, search]);
  const zoom = (frame: number) => {
    setTop(frame);
    updateLink({ frame: frame === frames.root ? undefined : String(frame) });
  };
  const onSearch = (text: string) => {
    setSearch(text);
    updateLink({ q: text || undefined });
  };
  const onSandwich = (name: string | undefined) => {
    setChosen(name);
    updateLink({ function: name });
  };
  if (chosen !== undefined && frames.texts.includes(chosen)) {
    return <Sandwich frames={frames} order={order} name={chosen} onChoose={onSandwich} />;
  }
  return (
    <>
      <div class="table-bar">
        {children}
        <Choice title="Drawn as" options={DIRECTIONS} chosen={direction} onChoose={setDirection} />
        <SearchBox search={search} onSearch={onSearch} />
        <span role="status">{isFound && whatWasFound(frames, top, isFound)}</span>
        <Legend frames={frames} />
      </div>
      {top !== frames.root && <Path frames={frames} top={top} onZoom={zoom} />}
      <FrameCanvas
        frames={frames}
        top={top}
        isFound={isFound}
        onZoom={zoom}
        isUp={direction === DIRECTIONS[1]}
        onSandwich={onSandwich}
      />
      <NameTable frames={frames} top={top} search={search} onChoose={onSandwich} />
    </>
  );
}

interface SandwichProps extends Omit<GraphProps, "children"> {
  name: string;
  onChoose: (name: string | undefined) => void;
}

/** Callers of one function above it and its callees below, beside a list of all functions. */
function Sandwich({ frames, order, name, onChoose }: SandwichProps) {
  const { callers, callees } = useMemo(() => sandwichOf(frames, name, order), [frames, name, order]);
  return (
    <>
      <div class="table-bar">
        <button type="button" onClick={() => onChoose(undefined)}>
          Back to the graph
        </button>
        <span>
          All calls of{" "}
          <strong>
            <Name text={name} maxLength={120} />
          </strong>
          ; nested calls count once
        </span>
      </div>
      <div class="sandwich">
        <div>
          <h3>Callers</h3>
          <Zoomable key={`callers ${name}`} frames={callers} isUp areCallers onSandwich={onChoose} />
          <h3>Callees</h3>
          <Zoomable key={`callees ${name}`} frames={callees} onSandwich={onChoose} />
        </div>
        <NameTable frames={frames} top={frames.root} onChoose={onChoose} />
      </div>
    </>
  );
}

interface ZoomableProps {
  frames: Frames;
  isUp?: boolean;
  areCallers?: boolean;
  onSandwich: (name: string) => void;
}

function Zoomable({ frames, ...drawn }: ZoomableProps) {
  const [top, setTop] = useState(frames.root);
  return <FrameCanvas frames={frames} top={top} isFound={null} onZoom={setTop} {...drawn} />;
}

function SearchBox({ search, onSearch }: { search: string; onSearch: (text: string) => void }) {
  return (
    <input
      type="search"
      aria-label="Search frames"
      placeholder="Search"
      value={search}
      onInput={(event) => onSearch(event.currentTarget.value)}
    />
  );
}

function whatWasFound(frames: Frames, top: number, isFound: Uint8Array): string {
  const { count, totalNs } = frames.foundBelow(top, isFound);
  if (!count) return "Nothing found";
  return `Found ${counted(count, "frame")}: ${formatDuration(totalNs)}, ${formatShare(totalNs / frames.total[top])}`;
}

/** The callers of the frame that fills the width; a click zooms out to one of them. */
function Path({ frames, top, onZoom }: { frames: Frames; top: number; onZoom: (frame: number) => void }) {
  const path = frames.pathTo(top);
  const shown = path.length > 8 ? [path[0], ...path.slice(-6)] : path;
  return (
    <nav class="flame-path" aria-label="Callers of the shown frame">
      {shown.map((frame, at) => (
        <span key={frame}>
          {at > 0 && <span aria-hidden="true">{at === 1 && shown.length < path.length ? " › … › " : " › "}</span>}
          {frame === top ? (
            <strong>
              <Name text={frames.nameOf(frame)} maxLength={80} />
            </strong>
          ) : (
            <button type="button" class="as-link" onClick={() => onZoom(frame)}>
              <Name text={frames.nameOf(frame)} maxLength={60} />
            </button>
          )}
        </span>
      ))}
    </nav>
  );
}

function Legend({ frames }: { frames: Frames }) {
  const kinds = useMemo(() => new Set(frames.texts.slice(0, -1).map(kindOf)), [frames]);
  return (
    <ul class="legend" aria-label="Colours">
      {KINDS.filter((kind) => kinds.has(kind)).map((kind) => (
        <li key={kind}>
          <Swatch colour={cssColour(KIND_COLOURS[kind])} />
          {kind}
        </li>
      ))}
    </ul>
  );
}

interface NameTableProps {
  frames: Frames;
  top: number;
  /** The search of the graph, which filters the table; without one it has a filter of its own. */
  search?: string;
  onChoose: (name: string) => void;
}

/** The times by name. */
function NameTable({ frames, top, search, onChoose }: NameTableProps) {
  const rows = useMemo(() => matchingRows(frames.byName(top), search ?? "", ({ name }) => name), [frames, top, search]);
  const columns = useMemo(() => nameColumns(frames.total[top]), [frames, top]);
  return (
    <Table
      caption="Frames by name"
      columns={columns}
      rows={rows}
      sortedBy="Self time"
      filterText={search === undefined ? (row) => row.name : undefined}
      noun="name"
      maxRows={25}
      onChoose={(row) => onChoose(row.name)}
    />
  );
}

function nameColumns(wholeNs: number): TableColumn<NameRow>[] {
  return [
    {
      title: "Name",
      value: (row) => row.name,
      show: (row) => <OneLine name={row.name} />,
      help: "Select one to see its callers and callees",
    },
    timeColumn("Self time", (row) => row.self_ns, "Without its callees", wholeNs),
    timeColumn("Total time", (row) => row.total_ns, "With its callees; recursive calls count once", wholeNs),
    detail(countColumn("Calls", (row) => row.num_calls)),
  ];
}
