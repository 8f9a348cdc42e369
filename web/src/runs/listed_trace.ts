import type { OpenedTrace } from "../open_in_perfetto";
import type { ListedFile } from "./list_data";

/** A trace of the run's folder, for Perfetto. */
export function listedTrace(file: ListedFile, run: string): OpenedTrace {
  const fileName = file.name.replace(/^.*\//, "");
  return { name: file.name, title: `${run} ${fileName}`, fileName, read: () => readContent(file) };
}

async function readContent(file: ListedFile): Promise<ArrayBuffer> {
  let response: Response;
  try {
    response = await fetch(file.address);
    if (response.ok) return await response.arrayBuffer();
  } catch (error) {
    throw new Error(
      `The trace could not be read (${error}). Does "kinetoscope view" still run? A page cannot hold a trace of ` +
        'several GB: "kinetoscope merge" with --ranks or --last makes a smaller one.',
    );
  }
  throw new Error(`The trace could not be read: the server answered ${response.status}. Load this page again.`);
}
