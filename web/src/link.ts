import { useEffect, useState } from "preact/hooks";

/**
 * State of the page in the fragment of the address, so that a link restores it. `from` and `to` are nanoseconds
 * after the origin; views add further names.
 */
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

/** Navigate to a link, which the Back button undoes. */
export function navigate(link: Link): void {
  location.hash = linkTo(link);
}

/** Replace the link of the current state, without an entry for the Back button. */
export function updateLink(changes: Record<string, string | undefined>): void {
  const address = location.href.replace(/#.*$/, "") + linkTo({ ...readLink(), ...changes });
  history.replaceState(null, "", address);
}

/** Follow links within the page: in the frame of a notebook, a browser would apply them to the notebook. */
export function followLinks(): void {
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    const href = link?.getAttribute("href");
    if (!href?.startsWith("#") || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    location.hash = href;
  });
}

/** The current link; the component is rendered again when it changes. */
export function useLink(): Link {
  const [link, setLink] = useState(() => readLink());
  useEffect(() => {
    const update = () => setLink(readLink());
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return link;
}
