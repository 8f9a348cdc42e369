/** Names of kernels for people: demangled C++ without return type, namespaces and arguments. */

const NAMESPACES = /(?:[A-Za-z_]\w*|\(anonymous namespace\)|\{anonymous\}|<unnamed>)::/g;

/**
 * The short form of a kernel's demangled name: `void at::native::fill<at::native::Add<float> >(int)` is
 * `fill<Add<float>>`. Template arguments stay, since kernels of elementwise operators differ only there.
 */
export function shortKernelName(name: string): string {
  if (/^Mem(?:cpy|set) /.test(name)) return name;
  const bare = withoutArguments(name.replace(NAMESPACES, "")).replace(/^(?:static |void )+/, "");
  const short = bare
    .replace(/\s+>/g, ">")
    .replace(/\b(\d+)(?:ul|u|l)\b/g, "$1")
    .trim();
  return short || name;
}

/** A name without its lists of arguments, `(int, float const&)`, which may contain others; `{lambda(int)#1}` stays. */
function withoutArguments(name: string): string {
  let kept = "";
  let depth = 0;
  for (const [at, character] of [...name].entries()) {
    if (character === "(" && (depth || at > 0)) depth++;
    if (!depth) kept += character;
    if (character === ")" && depth) depth--;
  }
  return depth ? name : kept;
}

/** Short forms by name; names with a common short form keep their whole one. */
export function shortKernelNames(names: Iterable<string>): Map<string, string> {
  const namesByShort = new Map<string, Set<string>>();
  for (const name of names) {
    const short = shortKernelName(name);
    namesByShort.set(short, (namesByShort.get(short) ?? new Set()).add(name));
  }
  const pairs = [...namesByShort].flatMap(([short, same]) =>
    [...same].map((name): [string, string] => [name, same.size > 1 ? name : short]),
  );
  return new Map(pairs);
}
