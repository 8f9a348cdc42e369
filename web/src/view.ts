import type { FunctionComponent } from "preact";
import type { PageData } from "./page_data";
import type { Payload } from "./payload";

/** A view of the page; the menu has those that are offered. */
export interface View {
  name: string;
  title: string;
  isOffered: (page: PageData) => boolean;
  /** It has more content than a reason for being empty; only then it is printed. */
  hasContent: (page: PageData) => boolean;
  component: FunctionComponent<ViewProps>;
}

/** `offered` has the titles of the offered views, by name. */
export interface ViewProps {
  payload: Payload;
  offered: Map<string, string>;
}
