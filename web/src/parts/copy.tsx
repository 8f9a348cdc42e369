import { useEffect, useRef, useState } from "preact/hooks";
import { counted } from "../format";

/**
 * A button that copies a text. If the browser refuses, as in the frame of a notebook, the text is shown and
 * selected.
 */
export function CopyButton({ title, text }: { title: string; text: () => string }) {
  const [copied, setCopied] = useState<string | null>(null);
  const [refused, setRefused] = useState<string | null>(null);
  const copy = async () => {
    const wanted = text();
    try {
      await navigator.clipboard.writeText(wanted);
      setCopied(`Copied: ${counted(wanted.split("\n").length, "line")}`);
      setRefused(null);
    } catch {
      setRefused(wanted);
    }
  };
  return (
    <>
      <button type="button" onClick={copy}>
        {title}
      </button>
      <span aria-live="polite" class="quiet">
        {copied}
      </span>
      {refused !== null && <SelectedText text={refused} onClose={() => setRefused(null)} />}
    </>
  );
}

/** Code with a button that copies it. */
export function CopiedCode({ code }: { code: string }) {
  return (
    <div class="fix">
      <pre>
        <code>
          <bdi>{code}</bdi>
        </code>
      </pre>
      <CopyButton title="Copy" text={() => code} />
    </div>
  );
}

function SelectedText({ text, onClose }: { text: string; onClose: () => void }) {
  const box = useRef<HTMLTextAreaElement>(null);
  useEffect(() => box.current?.select(), [text]);
  return (
    <div class="copy-box">
      <label>
        The browser does not let this page copy. Press Ctrl+C, or Cmd+C.
        <textarea ref={box} readOnly rows={6} value={text} />
      </label>
      <button type="button" onClick={onClose}>
        Close
      </button>
    </div>
  );
}
