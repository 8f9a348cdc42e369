import { formatCount, formatDuration, formatShare } from "../format";
import { shortKernelNames } from "../kernel_names";
import { linkTo } from "../link";
import type { TopCalls as TopCallsData } from "../page_data";
import { OneLine } from "../parts/name";

/** The operators, or the kernels where the GPU bounds the step, with most time per step of a rank. */
export function TopCalls({ calls }: { calls: TopCallsData }) {
  const isOfGpu = calls.of === "kernels";
  const shortNames = shortKernelNames(calls.names);
  return (
    <section class="top-calls" aria-labelledby="top-calls-title">
      <h2 id="top-calls-title">
        <a href={linkTo({ view: calls.of })}>{isOfGpu ? "Top kernels and copies" : "Top operators"}</a>
      </h2>
      <table>
        <thead>
          <tr>
            <th>Name</th>
            <th class="number">{isOfGpu ? "GPU time/step" : "Self time/step"}</th>
            <th class="number">Share</th>
            <th class="number wide-only">Calls/step</th>
          </tr>
        </thead>
        <tbody>
          {calls.names.map((name, at) => (
            <tr key={at}>
              <th scope="row">
                <OneLine name={name} short={isOfGpu ? shortNames.get(name) : name} />
              </th>
              <td class="number">{formatDuration(calls.times_ns[at])}</td>
              <td class="number">{formatShare(calls.shares[at])}</td>
              <td class="number wide-only">{formatCount(calls.num_calls[at])}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {calls.basis && <p class="quiet">{calls.basis}</p>}
    </section>
  );
}
