import { useState } from "preact/hooks";
import { ChangeBar, widestChange } from "../compare/change_bar";
import { FindingChanges } from "../compare/finding_changes";
import { describeRun, formatAmount, formatInterval, labelRow, labelVerdict } from "../compare/labels";
import { LargestChanges } from "../compare/largest_changes";
import { Phases } from "../compare/phases";
import { Verdict } from "../compare/verdict";
import { counted } from "../format";
import { readLink } from "../link";
import type { Comparison, ComparisonRow } from "../page_data";
import { Choice, useLinkedChoice } from "../parts/choice";
import { Name } from "../parts/name";
import { Table, type TableColumn } from "../parts/table";
import { detail } from "../parts/unit_columns";
import type { ViewProps } from "../view";
import "./compare.css";

/** Filters of the rows. */
const CHOICES: Record<string, (row: ComparisonRow) => boolean> = {
  "all rows": () => true,
  "slower or larger": (row) => row.verdict === "slower",
  "faster or smaller": (row) => row.verdict === "faster",
  "added or removed": (row) => row.verdict === "new" || row.verdict === "gone",
  inconclusive: (row) => row.verdict === "unsure",
  "no significant change": (row) => row.verdict === "same",
};

/** The verdict on a step between two runs, its phases, and findings fixed and new; all rows are folded. */
export function Compare({ payload }: ViewProps) {
  const { comparison, comparison_summary, compared_sides, part_labels } = payload.page;
  const [link] = useState(() => readLink());
  if (!comparison) return null;
  const warnings = payload.page.overview.warnings.map((warning) => `After: ${warning}`); // the header has them
  const [, ...sentences] = comparison_summary.filter((sentence) => !warnings.includes(sentence));
  return (
    <>
      <Verdict comparison={comparison} />
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
      <Phases sides={compared_sides} comparison={comparison} />
      <FindingChanges comparison={comparison} page={payload.page} />
      <LargestChanges rows={comparison.rows} labels={part_labels} />
      <ul class="notes">
        {sentences.map((sentence) => (
          <li key={sentence}>
            <Name text={sentence} maxLength={600} />
          </li>
        ))}
      </ul>
      {comparison.rows.length > 0 && (
        <details
          class="all-rows"
          open={comparison.rows.length <= MAX_OPEN_ROWS || LINKED.some((name) => link[name] !== undefined)}
        >
          <summary>{`All ${counted(comparison.rows.length, "row")}`}</summary>
          <Rows comparison={comparison} labels={part_labels} />
        </details>
      )}
    </>
  );
}

/** So few rows are open at first. */
const MAX_OPEN_ROWS = 20;

/** Names in a link that are of the table. */
const LINKED = ["rows", "q", "sort"];

interface RowsProps {
  comparison: Comparison;
  labels: Record<string, string>;
}

function Rows({ comparison, labels }: RowsProps) {
  const { rows } = comparison;
  const [choice, choose] = useLinkedChoice("rows", Object.keys(CHOICES));
  const rowsOf = (choice: string) => rows.filter((row) => CHOICES[choice](row));
  return (
    <Table
      key={choice}
      caption="Changes"
      columns={columnsOf(comparison, labels)}
      rows={rowsOf(choice)}
      filterText={(row) => `${row.kind} ${labelRow(row, labels)} ${labelVerdict(row)}`}
      maxRows={100}
      isLinked
    >
      <Choice
        title="Show"
        options={Object.keys(CHOICES)}
        labels={Object.fromEntries(Object.keys(CHOICES).map((name) => [name, `${name} (${rowsOf(name).length})`]))}
        chosen={choice}
        onChoose={choose}
      />
    </Table>
  );
}

function columnsOf({ rows, threshold }: Comparison, labels: RowsProps["labels"]): TableColumn<ComparisonRow>[] {
  const scale = widestChange(rows.map((row) => row.change));
  return [
    detail({ title: "Kind", value: (row) => row.kind, width: "narrow" }),
    {
      title: "Name",
      value: (row) => labelRow(row, labels),
      show: (row) => <Name text={labelRow(row, labels)} maxLength={100} />,
      width: "wide",
    },
    detail({ title: "Before", value: (row) => row.before, show: (row) => formatAmount(row, row.before) }),
    detail({ title: "After", value: (row) => row.after, show: (row) => formatAmount(row, row.after) }),
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
      help: "The bar is the change, its whiskers the 95 % confidence interval; grey is within the threshold",
    },
    detail({
      title: "95 % CI",
      value: (row) => row.interval?.[0] ?? null,
      show: (row) => (row.interval ? formatInterval(row.interval, ">10x") : "–"),
      help: "Simultaneous: with 95 % confidence, the changes of all rows are within their intervals",
    }),
    {
      title: "Verdict",
      value: labelVerdict,
      show: (row) => <RowVerdict row={row} />,
      width: "short",
    },
  ];
}

const SIGNS: Record<string, string> = { slower: "▲", faster: "▼", new: "+", gone: "−", same: "=", unsure: "?" };

function RowVerdict({ row }: { row: ComparisonRow }) {
  return (
    <span class={`verdict ${row.verdict}${row.is_worse ? " worse" : ""}`} title={labelVerdict(row)}>
      <span aria-hidden="true">{SIGNS[row.verdict]}</span> {row.verdict === "same" ? "n.s." : labelVerdict(row)}
    </span>
  );
}
