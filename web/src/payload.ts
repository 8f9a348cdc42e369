import type { Column, PageData } from "./page_data";

/** Numbers of a column. Those of more than four bytes are exact up to 2 ** 53. */
export type Numbers = Uint8Array | Uint16Array | Uint32Array | Float64Array;

/** The data of the page, and the bytes of its columns. */
export class Payload {
  readonly page: PageData;
  readonly #columns: Uint8Array;
  readonly #decoded = new WeakMap<Column, Numbers>();

  constructor(bytes: Uint8Array) {
    const textLength = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
    this.page = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + textLength)));
    this.#columns = bytes.subarray(4 + textLength);
  }

  /** The numbers of a column, decoded on first use. */
  numbers(column: Column): Numbers {
    let numbers = this.#decoded.get(column);
    if (!numbers) {
      numbers = decode(column, this.#columns.subarray(column.offset));
      this.#decoded.set(column, numbers);
    }
    return numbers;
  }
}

/** Decode the data of the page: base64 of gzip. */
export async function readPayload(base64: string): Promise<Payload> {
  const stream = new Blob([fromBase64(base64)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Payload(new Uint8Array(await new Response(stream).arrayBuffer()));
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

function decode(column: Column, bytes: Uint8Array): Numbers {
  const { length, num_bytes } = column;
  const numbers = column.is_delta ? new Float64Array(length) : emptyNumbers(length, num_bytes);
  for (let index = 0, weight = 1; index < num_bytes; index++, weight *= 256) {
    const plane = bytes.subarray(index * length, (index + 1) * length);
    for (let at = 0; at < length; at++) numbers[at] += plane[at] * weight;
  }
  if (column.is_delta) addDeltas(numbers);
  return numbers;
}

function emptyNumbers(length: number, num_bytes: number): Numbers {
  if (num_bytes <= 1) return new Uint8Array(length);
  if (num_bytes === 2) return new Uint16Array(length);
  return num_bytes <= 4 ? new Uint32Array(length) : new Float64Array(length);
}

function addDeltas(numbers: Numbers): void {
  let sum = 0;
  for (let at = 0; at < numbers.length; at++) {
    const written = numbers[at];
    sum += written % 2 ? -(written + 1) / 2 : written / 2;
    numbers[at] = sum;
  }
}
