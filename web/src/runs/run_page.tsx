import { useState } from "preact/hooks";
import { counted, formatBytes } from "../format";
import { Breakdowns } from "../overview/breakdowns";
import { TopCalls } from "../overview/top_calls";
import { Name } from "../parts/name";
import { Prose } from "../parts/prose";
import { Table, type TableColumn } from "../parts/table";
import { bytesColumn, detail } from "../parts/unit_columns";
import { openInPerfetto } from "../open_in_perfetto";
import { Devices } from "../ranks/devices";
import type { ListedFile, RunFiles, RunOverview } from "./list_data";
import { listedTrace } from "./listed_trace";
import { LiveStatus, StepTimes } from "./live_status";
import { Change, FirstFinding, Several, State, When } from "./run_cells";
import { Trend } from "./trend";
import * as labels from "./labels";

/** One run with its status, reports and traces. */
export function RunPage({ files, perfettoUrl }: { files: RunFiles; perfettoUrl: string }) {
  return (
    <div class="run-page">
      <Facts files={files} />
      {files.run.notes.map((note) => (
        <p class="page-note" key={note}>
          <Name text={note} maxLength={1000} />
        </p>
      ))}
      {files.live_status ? (
        <LiveStatus status={files.live_status} steps={files.live_steps} />
      ) : (
        files.live_steps && <StepTimes steps={files.live_steps} />
      )}
      {files.run.is_queued && <p class="quiet">The traces are being analysed.</p>}
      {files.overview && <Overview overview={files.overview} report={files.run.report ?? undefined} />}
      {files.trend.length > 0 && <Trend files={files} />}
      <Reports files={files} />
      <Traces files={files} perfettoUrl={perfettoUrl} />
    </div>
  );
}

function Facts({ files: { run, trend, live_status, overview } }: { files: RunFiles }) {
  const facts = [
    { title: "State", shown: run.state && !live_status && <State state={run.state} /> },
    { title: "Began", shown: run.has_start_time && <When unixMs={run.when_ms} what="began" /> },
    { title: "Last written", shown: run.changed_ms && <When unixMs={run.changed_ms} what="last written" /> },
    { title: "Host", shown: run.hosts.length && <Several names={run.hosts} noun="host" /> },
    { title: "Devices", shown: run.devices.length && <Several names={run.devices} noun="kind" /> },
    { title: "Ranks", shown: labels.formatRankCount(run) },
    { title: "Recorded steps", shown: run.num_steps && run.num_steps.toLocaleString("en-US") },
    { title: "Step time", shown: !live_status && labels.formatStepTime(run) },
    {
      title: "Compared with the previous run",
      shown: run.before_key !== null && !trend.length && <Change run={run} />,
    },
    { title: "Top finding", shown: !overview && labels.formatFinding(run) && <FirstFinding run={run} /> },
    { title: "MFU", shown: labels.formatRunMfu(run) },
    {
      title: "Memory",
      shown:
        !live_status &&
        labels.formatPeakMemory(run) &&
        `${labels.formatPeakMemory(run)} ${labels.describePeakMemory(run)}`,
    },
  ];
  return (
    <dl class="facts-list">
      {facts
        .filter(({ shown }) => shown)
        .map(({ title, shown }) => (
          <div key={title}>
            <dt>{title}</dt>
            <dd>{shown}</dd>
          </div>
        ))}
    </dl>
  );
}

/** What the analysis of the run found; `report` is the address of the report, which has more. */
function Overview({ overview, report }: { overview: RunOverview; report?: string }) {
  return (
    <>
      <section>
        <h2>Findings</h2>
        <ul class="notes">
          {overview.findings.map((sentence) => (
            <li key={sentence}>
              <Prose text={sentence} />
            </li>
          ))}
        </ul>
      </section>
      <Breakdowns page={overview} />
      {overview.devices.length > 0 && <Devices page={overview} />}
      {overview.top_calls && <TopCalls calls={overview.top_calls} report={report} />}
    </>
  );
}

function Reports({ files: { run, reports, path } }: { files: RunFiles }) {
  return (
    <section>
      <h2>Reports</h2>
      {run.report !== null && !run.has_report && (
        <p>
          <a href={run.report}>Make the report and show it</a>, or keep it in the run's folder:{" "}
          <code>
            kinetoscope report <Name text={path} maxLength={500} />
          </code>
        </p>
      )}
      {run.report === null && <p class="quiet">There are no traces to report on.</p>}
      {reports.length > 0 && (
        <ul class="reports">
          {reports.map((file) => (
            <li key={file.address}>
              <a href={file.address}>
                <Name text={file.name} />
              </a>{" "}
              <span class="quiet">
                {formatBytes(file.size_bytes)}, <When unixMs={file.changed_ms} what="written" />
              </span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Traces({ files, perfettoUrl }: { files: RunFiles; perfettoUrl: string }) {
  const [message, showMessage] = useState("");
  const { run, traces, num_left_out } = files;
  if (!traces.length) {
    return (
      <section>
        <h2>Traces</h2>
        <p class="quiet">None yet. A run writes them after each profiling window and at its end.</p>
      </section>
    );
  }
  const origin = new URL(perfettoUrl).origin;
  return (
    <section>
      <h2>Traces</h2>
      <Table
        caption="Traces"
        columns={columnsOf(origin, (file) => openInPerfetto(listedTrace(file, run.title), perfettoUrl, showMessage))}
        rows={traces}
        rowKey={(file) => file.address}
        filterText={(file) => file.name}
        noun="trace"
        maxRows={1000}
        hasAllColumns
      />
      <p class="quiet">
        "Open in Perfetto" opens{" "}
        <a href={perfettoUrl} rel="noreferrer">
          {perfettoUrl}
        </a>{" "}
        in a new tab and passes the trace to it, within this browser.
      </p>
      {num_left_out > 0 && <p>And {counted(num_left_out, "more trace")}: view a folder further down to see them.</p>}
      <p id="handed-over" role="status">
        {message}
      </p>
    </section>
  );
}

function columnsOf(origin: string, open: (file: ListedFile) => void): TableColumn<ListedFile>[] {
  return [
    {
      title: "Trace",
      value: (file) => file.name,
      show: (file) => (
        <a href={file.address} download>
          <Name text={file.name} />
        </a>
      ),
    },
    detail(bytesColumn("Size", (file) => file.size_bytes)),
    detail({
      title: "Last written",
      value: (file) => file.changed_ms,
      unit: "unix ms",
      show: (file) => <When unixMs={file.changed_ms} what="written" />,
    }),
    {
      title: "Open",
      value: () => null,
      show: (file) =>
        file.opens_in_perfetto ? (
          <button type="button" title={`Passes the trace to ${origin}, within this browser`} onClick={() => open(file)}>
            Open in Perfetto
          </button>
        ) : (
          <span class="quiet">Perfetto does not read .zst: kinetoscope convert writes .gz</span>
        ),
    },
  ];
}
