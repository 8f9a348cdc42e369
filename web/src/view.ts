import type { FunctionComponent } from "preact";
import type { PageData } from "./page_data";
import type { Payload } from "./payload";

/** A view of the page. It is offered where `isOffered`; views that are not there are not in the menu. */
export interface View {
  name: string;
  title: string;
  isOffered: (page: PageData) => boolean;
  /** Whether it has more to show than why it is empty; only then it is printed. */
  hasContent: (page: PageData) => boolean;
  component: FunctionComponent<ViewProps>;
}

/** `offered` has the titles of the views that this page has, by their names. */
export interface ViewProps {
  payload: Payload;
  offered: Map<string, string>;
}
