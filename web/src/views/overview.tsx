import { formatDuration } from "../format";
import { Empty } from "../parts/empty";
import { Name } from "../parts/name";
import type { ViewProps } from "../views";

/** What is wrong with the run, most to save first, and where its time goes. */
export function Overview({ payload }: ViewProps) {
  const findings = payload.page.report?.findings ?? [];
  if (!findings.length) return <Empty title="Nothing was found that would make this run faster." />;
  return (
    <ol>
      {findings.map((finding) => (
        <li key={finding.title}>
          <Name text={finding.title} /> {formatDuration(finding.saving_ns_per_step)}
        </li>
      ))}
    </ol>
  );
}
