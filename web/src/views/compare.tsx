import { useState } from "preact/hooks";
import { ChangeBar, widestChange } from "../compare/change_bar";
import { describeRun, formatAmount, labelRow, labelVerdict } from "../compare/labels";
import { formatChange } from "../format";
import { readLink, updateLink } from "../link";
import type { Comparison, ComparisonRow } from "../page_data";
import { Name } from "../parts/name";
import { Table, type TableColumn } from "../parts/table";
import type { ViewProps } from "../view";
import "./compare.css";

/** Filters of the rows. */
const CHOICES: Record<string, (row: ComparisonRow, threshold: number) => boolean> = {
  "all rows": () => true,
  "slower or larger": (row) => row.verdict === "slower",
  "faster or smaller": (row) => row.verdict === "faster",
  "new or gone": (row) => row.verdict === "new" || row.verdict === "gone",
  unsure: (row) => row.verdict === "unsure",
  same: (row) => row.verdict === "same",
};

/** Regressions and improvements between two runs, with their certainty. */
export function Compare({ payload }: ViewProps) {
  const { comparison, comparison_summary } = payload.page;
  const [first, ...others] = comparison_summary;
  if (!comparison) return null;
  return (
    <>
      <p class="headline">{first}</p>
      <ul class="notes">
        {others.map((sentence) => (
          <li key={sentence}>
            <Name text={sentence} maxLength={600} />
          </li>
        ))}
      </ul>
      <dl class="facts-list">
        <div>
          <dt>Before</dt>
          <dd>
            <Name text={describeRun(comparison.before)} />
          </dd>
        </div>
        <div>
          <dt>After</dt>
          <dd>
            <Name text={describeRun(comparison.after)} />
          </dd>
        </div>
      </dl>
      <Rows comparison={comparison} />
    </>
  );
}

function Rows({ comparison }: { comparison: Comparison }) {
  const { rows, threshold } = comparison;
  const [choice, setChoice] = useState(() => readLink().rows ?? "all rows");
  const fits = CHOICES[choice] ?? CHOICES["all rows"];
  const choose = (choice: string) => {
    setChoice(choice);
    updateLink({ rows: choice });
  };
  return (
    <Table
      key={choice}
      caption="What changed"
      columns={columnsOf(comparison)}
      rows={rows.filter((row) => fits(row, threshold))}
      filterText={(row) => `${row.kind} ${labelRow(row)} ${labelVerdict(row)}`}
      maxRows={100}
      isLinked
    >
      <label>
        {"Show "}
        <select value={choice} onChange={(event) => choose(event.currentTarget.value)}>
          {Object.entries(CHOICES).map(([name, fits]) => (
            <option key={name} value={name}>
              {`${name} (${rows.filter((row) => fits(row, threshold)).length})`}
            </option>
          ))}
        </select>
      </label>
    </Table>
  );
}

function columnsOf({ rows, threshold }: Comparison): TableColumn<ComparisonRow>[] {
  const scale = widestChange(rows.map((row) => row.change));
  return [
    { title: "Kind", value: (row) => row.kind, width: "narrow" },
    { title: "Name", value: labelRow, show: (row) => <Name text={labelRow(row)} maxLength={100} />, width: "wide" },
    { title: "Before", value: (row) => row.before, show: (row) => <span>{formatAmount(row, row.before)}</span> },
    { title: "After", value: (row) => row.after, show: (row) => <span>{formatAmount(row, row.after)}</span> },
    {
      title: "Change",
      value: (row) => row.change,
      show: (row) => (
        <ChangeBar
          change={row.change}
          interval={row.interval}
          verdict={row.verdict}
          scale={scale}
          threshold={threshold}
        />
      ),
      help: "The bar is the change, its whiskers the ends between which it lies; grey is within the threshold",
    },
    {
      title: "Between",
      value: (row) => row.interval?.[0] ?? null,
      show: (row) => <span>{row.interval ? row.interval.map(formatChange).join(" and ") : "–"}</span>,
      help: "With 95 % probability, all rows' changes are within these",
    },
    {
      title: "Verdict",
      value: labelVerdict,
      show: (row) => <Verdict row={row} />,
      width: "short",
    },
  ];
}

const SIGNS: Record<string, string> = { slower: "▲", faster: "▼", new: "＋", gone: "−", same: "=", unsure: "?" };

function Verdict({ row }: { row: ComparisonRow }) {
  return (
    <span class={`verdict ${row.verdict}${row.is_worse ? " worse" : ""}`}>
      <span aria-hidden="true">{SIGNS[row.verdict]}</span> {labelVerdict(row)}
    </span>
  );
}
