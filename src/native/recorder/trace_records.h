/* Our own records in both passes over a trace, in which they come before the events of the file.
 *
 *     records ──► trace_survey_records ──► nesting ──► (Python plans) ──► trace_rewrite_records
 *
 * They are exact: where the file's spans overlap them, those are cut or moved. */

#ifndef KINETOSCOPE_TRACE_RECORDS_H
#define KINETOSCOPE_TRACE_RECORDS_H

#include "recorder/lines.h"
#include "rewrite/trace_text.h"

#define MAX_LINES_BYTES ((size_t)1 << 20) /* so many are written at a time, and one line more */

/* Some records of a thread, up to `end`; `are_last` if no more follow. */
typedef struct {
    const LineStyle *style;
    Text pid, tid; /* as numbers in JSON; in the output they are those of the plan */
    const Record *end;
    int are_last;
} ThreadLines;

/* Both move `*record` after the records that were taken. They stop at one that cannot be written
 * or must wait, and the second one also when there are many lines. */
enum LineStatus trace_survey_records(TraceText *text, const ThreadLines *thread,
                                     const Record **record);
enum LineStatus trace_rewrite_records(TraceText *text, const ThreadLines *thread,
                                      const Record **record, Bytes *out);

#endif
