import { useEffect, useState } from "preact/hooks";

/** Where the reader is: the part of the address after "#", so that a link to it works when the file is opened anew.
 * `from` and `to` are nanoseconds after the origin; what else a view remembers is under a name of its own. */
export interface Link {
  view: string;
  [name: string]: string | undefined;
}

export function readLink(hash = location.hash): Link {
  const { view = "overview", ...others } = Object.fromEntries(new URLSearchParams(hash.replace(/^#/, "")));
  return { view, ...others };
}

export function linkTo(link: Link): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(link)) if (value !== undefined) parameters.set(name, value);
  return `#${parameters}`;
}

/** Goes to another href, which the Back button leaves again. */
export function navigate(link: Link): void {
  location.hash = linkTo(link);
}

/** Remembers where in a view the reader is, without a step for the Back button. */
export function updateLink(changes: Record<string, string | undefined>): void {
  const address = location.href.replace(/#.*$/, "") + linkTo({ ...readLink(), ...changes });
  history.replaceState(null, "", address);
}

/** Follows links to places in the page. In a notebook's frame a browser would look for them in the notebook. */
export function followLinks(): void {
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    const href = link?.getAttribute("href");
    if (!href?.startsWith("#") || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    location.hash = href;
  });
}

/** The present link; the component is drawn again when it changes. */
export function useLink(): Link {
  const [link, setLink] = useState(() => readLink());
  useEffect(() => {
    const update = () => setLink(readLink());
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return link;
}
