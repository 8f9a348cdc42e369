import type { FunctionComponent } from "preact";
import type { PageData } from "./page_data";
import type { Payload } from "./payload";

/** A view of the page; the menu has those that are offered. */
export interface View {
  name: string;
  title: string;
  isOffered: (page: PageData) => boolean;
  /** Only then its tab opens it, and it is printed. */
  hasContent: (page: PageData) => boolean;
  /** Why it has no content, and the remedy. */
  whyEmpty: (page: PageData) => Reason;
  component: FunctionComponent<ViewProps>;
}

export interface Reason {
  title: string;
  remedy?: string;
}

/** `offered` has the titles of the offered views, by name. */
export interface ViewProps {
  payload: Payload;
  offered: Map<string, string>;
}
