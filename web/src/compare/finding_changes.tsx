/** Findings that only one of two runs has. */
import { savesVerb } from "../evidence";
import { counted, formatDuration } from "../format";
import type { Comparison, Finding, PageData } from "../page_data";
import { CopiedCode } from "../parts/copy";
import { Name } from "../parts/name";

export function FindingChanges({ comparison, page }: { comparison: Comparison; page: PageData }) {
  const { fixed_findings: fixed, new_findings: added } = comparison;
  if (!fixed.length && !added.length) return null;
  return (
    <div class="finding-changes">
      {added.length > 0 && <Section title="New" findings={added} page={page} />}
      {fixed.length > 0 && <Section title="Fixed" findings={fixed} />}
    </div>
  );
}

function Section({ title, findings, page }: { title: string; findings: Finding[]; page?: PageData }) {
  return (
    <section class={title.toLowerCase()}>
      <h2>{`${title}: ${counted(findings.length, "finding")}`}</h2>
      <ul>
        {findings.map((finding) => (
          <li key={finding.id}>
            <Name text={finding.title} />
            {page && <Fix finding={finding} page={page} />}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** The saving and the code of a finding that this page's run has. */
function Fix({ finding, page }: { finding: Finding; page: PageData }) {
  const index = page.report?.findings.findIndex(({ id }) => id === finding.id) ?? -1;
  const saving = page.report?.findings[index]?.saving_ns_per_step ?? null;
  const fix = page.overview.fixes[index];
  return (
    <>
      {saving !== null && (
        <span class="quiet">
          {` ${savesVerb(finding)} ${formatDuration(saving)} per step${page.overview.saving_basis && " without recording"}`}
        </span>
      )}
      {fix && <CopiedCode code={fix} />}
    </>
  );
}
