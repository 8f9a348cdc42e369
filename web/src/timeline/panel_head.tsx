import type { ComponentChildren } from "preact";

/** Head of a panel, with a button that closes it. */
export function PanelHead({ children, onClose }: { children: ComponentChildren; onClose: () => void }) {
  return (
    <div class="timeline-panel-head">
      <span>{children}</span>
      <button type="button" aria-label="Close" title="Close (Escape)" onClick={onClose}>
        ×
      </button>
    </div>
  );
}
