import { evidenceName, evidenceOf, evidenceValue, savesVerb } from "../evidence";
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
  const { costs, savings, saving_basis: basis } = page.overview;
  const num_savings = findings.filter((finding) => finding.saving_ns_per_step !== null).length;
  return (
    <section class="findings" aria-labelledby="findings-title">
      <h2 id="findings-title">{counted(findings.length, "finding")}</h2>
      {num_savings > 1 && <p class="quiet">Savings are not additive.</p>}
      {basis && <p class="quiet">{basis}</p>}
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
  page: PageData;
  finding: Finding;
  /** Share of a step. */
  cost: number | null;
  fix: string;
  explanation?: string;
}

function Card({ page, finding, cost, fix, explanation }: CardProps) {
  return (
    <>
      <div class="finding-head">
        <h3>
          <Name text={finding.title} />
        </h3>
        {finding.saving_ns_per_step !== null && (
          <p class="saving">
            <strong>{`${savesVerb(finding)} ${formatDuration(finding.saving_ns_per_step)}`}</strong> per step
          </p>
        )}
      </div>
      <Location page={page} finding={finding} />
      <Advice text={finding.advice} fix={fix} />
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
          <summary>Causes and fixes</summary>
          {/* Trusted: it comes from a file of the package. */}
          <div dangerouslySetInnerHTML={{ __html: explanation }} />
        </details>
      )}
    </>
  );
}

/** The sentences of an advice, and in its place the code of the fix with a button that copies it. */
function Advice({ text, fix }: { text: string; fix: string }) {
  const at = fix ? text.indexOf(`\`${fix}\``) : -1;
  const parts = at < 0 ? [text] : [text.slice(0, at), text.slice(at + fix.length + 2).replace(/^[.,;:]/, "")];
  const [before, after] = parts.map((part) => part.trim());
  return (
    <>
      {before && <Sentences text={before} />}
      {at >= 0 && <CopiedCode code={fix} />}
      {after && <Sentences text={after} />}
    </>
  );
}

function Sentences({ text }: { text: string }) {
  return (
    <p class="advice">
      <Prose text={text} />
    </p>
  );
}

interface MinorProps {
  finding: Finding;
  /** Shares of a step. */
  cost: number | null;
  saving: number | null;
}

/** A minor finding, on one line. */
function Minor({ finding, cost, saving }: MinorProps) {
  const isSaved = finding.saving_ns_per_step !== null;
  const worth = isSaved ? finding.saving_ns_per_step : finding.cost_ns_per_step;
  return (
    <p class="minor">
      <Name text={finding.title} />
      {worth !== null &&
        `: ${isSaved ? savesVerb(finding) : "costs"} ${ofStep(worth, isSaved ? saving : cost)} per step`}
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

/** The location of a finding that its title does not have, source lines and modules first. */
function Location({ page, finding: { title, where } }: { page: PageData; finding: Finding }) {
  const { modules, ranks, steps } = where;
  const words = title.split(/[\s,()]+/);
  const [lines, spans] = [where.lines, where.spans].map((names) => names.filter((name) => !words.includes(name)));
  const isRankInTitle = ranks.length === 1 && new RegExp(`rank ${ranks[0]}\\b`).test(title);
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
      {ranks.length > 0 && !isRankInTitle && <span>{listed("rank", ranks)}</span>}
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
