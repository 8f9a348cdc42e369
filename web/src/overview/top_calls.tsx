import { formatCount, formatDuration, formatShare } from "../format";
import { shortKernelNames } from "../kernel_names";
import { linkTo } from "../link";
import type { TopCalls as TopCallsData } from "../page_data";
import { OneLine } from "../parts/name";
import "./top_calls.css";

interface TopCallsProps {
  calls: TopCallsData;
  /** The address of the report, outside of it. */
  report?: string;
}

/** The operators, or the kernels where the GPU bounds the step, with most time per step of a rank. */
export function TopCalls({ calls, report }: TopCallsProps) {
  const isOfGpu = calls.of === "kernels";
  const shortNames = shortKernelNames(calls.names);
  const perStep = calls.shares.length ? "/step" : "";
  return (
    <section class="top-calls" aria-labelledby="top-calls-title">
      <h2 id="top-calls-title">
        <a href={report ?? linkTo({ view: calls.of })}>{isOfGpu ? "Top kernels and copies" : "Top operators"}</a>
      </h2>
      <table>
        <thead>
          <tr>
            <th>Name</th>
            <th class="number">{`${isOfGpu ? "GPU time" : "Self time"}${perStep}`}</th>
            {perStep && <th class="number">Share</th>}
            <th class="number wide-only">{`Calls${perStep}`}</th>
          </tr>
        </thead>
        <tbody>
          {calls.names.map((name, at) => (
            <tr key={at}>
              <th scope="row">
                <OneLine name={name} short={isOfGpu ? shortNames.get(name) : name} />
              </th>
              <td class="number">{formatDuration(calls.times_ns[at])}</td>
              {perStep && <td class="number">{formatShare(calls.shares[at])}</td>}
              <td class="number wide-only">{formatCount(calls.num_calls[at])}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {calls.basis && <p class="quiet">{calls.basis}</p>}
    </section>
  );
}
