import { evidenceName, evidenceOf, evidenceValue } from "../evidence";
import { counted, formatDuration, formatShare, rangesOf } from "../format";
import type { Finding, PageData } from "../page_data";
import { CopiedCode } from "../parts/copy";
import { Name } from "../parts/name";
import { Prose } from "../parts/prose";
import { Term } from "../parts/term";
import { findViewLinks, linkToModule } from "../view_links";

const MAX_NAMED = 6;

interface FindingsProps {
  page: PageData;
  findings: Finding[];
  offered: Map<string, string>;
}

/** The findings, the largest saving first. */
export function Findings({ page, findings, offered }: FindingsProps) {
  const { costs, savings } = page.overview;
  const num_savings = findings.filter((finding) => finding.saving_ns_per_step !== null).length;
  return (
    <section class="findings" aria-labelledby="findings-title">
      <h2 id="findings-title">{counted(findings.length, "finding")}</h2>
      {num_savings > 1 && <p class="quiet">Savings do not add up.</p>}
      <ol>
        {findings.map((finding, at) => (
          <li key={`${finding.kind} ${at}`}>
            {page.overview.are_minor[at] ? (
              <Minor finding={finding} cost={costs[at]} saving={savings[at]} />
            ) : (
              <>
                <Card
                  page={page}
                  finding={finding}
                  cost={costs[at]}
                  saving={savings[at]}
                  fix={page.overview.fixes[at]}
                  explanation={page.explanations[finding.kind]}
                />
                <p class="places">
                  {findViewLinks(finding, page, offered, at).map(({ href, title }) => (
                    <a key={href} href={href}>
                      {title}
                    </a>
                  ))}
                </p>
              </>
            )}
          </li>
        ))}
      </ol>
    </section>
  );
}

interface CardProps {
  finding: Finding;
  /** Shares of a step. */
  cost: number | null;
  saving: number | null;
}

interface FullCardProps extends CardProps {
  page: PageData;
  fix: string;
  explanation?: string;
}

function Card({ page, finding, cost, saving, fix, explanation }: FullCardProps) {
  return (
    <>
      <div class="finding-head">
        <h3>
          <Name text={finding.title} />
        </h3>
        <Saving finding={finding} share={saving} />
      </div>
      <Location page={page} finding={finding} />
      {fix && <CopiedCode code={fix} />}
      <p class="advice">
        <Prose text={finding.advice} />
      </p>
      <details class="explanation">
        <summary>{`Evidence, ${finding.confidence} confidence`}</summary>
        <dl class="evidence">
          {finding.cost_ns_per_step !== null && (
            <Fact name="Cost per step" value={ofStep(finding.cost_ns_per_step, cost)} />
          )}
          {evidenceOf(finding).map(([name, value]) => (
            <Fact key={name} name={evidenceName(name)} value={evidenceValue(name, value)} />
          ))}
          <Fact name="In a terminal" value={finding.link} />
        </dl>
      </details>
      {explanation && (
        <details class="explanation">
          <summary>{`What ${finding.kind.replaceAll("_", " ")} means, and what helps`}</summary>
          {/* Trusted: it comes from a file of the package. */}
          <div dangerouslySetInnerHTML={{ __html: explanation }} />
        </details>
      )}
    </>
  );
}

/** A minor finding, on one line. */
function Minor({ finding, cost, saving }: CardProps) {
  const isSaved = finding.saving_ns_per_step !== null;
  const worth = isSaved ? finding.saving_ns_per_step : finding.cost_ns_per_step;
  return (
    <p class="minor">
      <Name text={finding.title} />
      {worth !== null && `: ${isSaved ? "saves" : "costs"} ${ofStep(worth, isSaved ? saving : cost)} per step`}
      {`, confidence ${finding.confidence}`}
    </p>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>
        <Term>{name}</Term>
      </dt>
      <dd>
        <bdi>{value}</bdi>
      </dd>
    </div>
  );
}

function Saving({ finding, share }: { finding: Finding; share: number | null }) {
  const { saving_ns_per_step: saving } = finding;
  if (saving === null) return null;
  return (
    <p class="saving">
      <strong>{`saves ${formatDuration(saving)}`}</strong>
      {share === null ? " per step" : ` per step, ${formatShare(share)}`}
    </p>
  );
}

/** The location of a finding, source lines and modules first. */
function Location({ page, finding }: { page: PageData; finding: Finding }) {
  const { lines, modules, spans, ranks, steps } = finding.where;
  return (
    <p class="where">
      {lines.map((line) => (
        <code key={line} class="source-line">
          <Name text={line} />
        </code>
      ))}
      {modules.map((module) => (
        <span key={module}>
          in <ModuleName name={module} href={linkToModule(module, page)} />
        </span>
      ))}
      {ranks.length > 0 && <span>{listed("rank", ranks)}</span>}
      {steps.length > 0 && <span>{listed("step", steps)}</span>}
      {spans.map((span) => (
        <span key={span}>
          at{" "}
          <code>
            <Name text={span} maxLength={80} />
          </code>
        </span>
      ))}
    </p>
  );
}

function ModuleName({ name, href }: { name: string; href: string | null }) {
  const code = (
    <code>
      <Name text={name} maxLength={80} />
    </code>
  );
  return href === null ? code : <a href={href}>{code}</a>;
}

/** Ranks or steps as ranges, as in the terminal. */
function listed(noun: string, numbers: number[]): string {
  const ranges = rangesOf(numbers);
  const more = ranges.length > MAX_NAMED ? ` and ${counted(ranges.length - MAX_NAMED, "more group")}` : "";
  return `${noun}${numbers.length > 1 ? "s" : ""} ${ranges.slice(0, MAX_NAMED).join(", ")}${more}`;
}

function ofStep(timeNs: number, share: number | null): string {
  return share === null ? formatDuration(timeNs) : `${formatDuration(timeNs)} (${formatShare(share)})`;
}
