/* Records as lines of a Chrome JSON file, for drain.c and recorder/trace_records.c.
 *
 * Python passes strings as JSON, so that escaping is done in one place. */

#ifndef KINETOSCOPE_LINES_H
#define KINETOSCOPE_LINES_H

#include "recorder/native.h"

#include <locale.h>

typedef struct {
    int64_t begin; /* on the monotonic clock */
    int64_t number;
} Epoch;

/* Strings and clocks with which a thread's records are written as lines. */
typedef struct {
    Text *names;      /* JSON strings, by id */
    Text *categories; /* the categories of each name, as JSON */
    /* args of each name, with a comma before them; empty for most */
    Text *args;
    const uint32_t *firsts; /* of each name, the first name with the same text */
    /* by such a name, the last value of this series in the line that is being written */
    const Record **last_values;
    uint32_t num_names;
    Text track_fields;        /* pid and tid, as fields of an event */
    long long start;          /* on the monotonic clock */
    long long offset;         /* from the trace's base to the start, in unix time */
    long long drift, elapsed; /* unix time gains `drift` over `elapsed` nanoseconds */
    const Epoch *epochs;      /* in order of time; the first begins before all records */
    size_t num_epochs;
} LineStyle;

/* The event that a line describes. */
typedef struct {
    const Record *first, *end; /* one record, or all values of one call of a counter */
    int64_t begin, dur;        /* in nanoseconds since the trace's base */
    Text note;                 /* for its args, as text in a JSON string; empty for most */
} Line;

/* Read the style from (names, categories, args, firsts), the clock and the epochs, which must live
 * longer. Return 0 with an error set. Call line_style_free in either case. */
int line_style_take(LineStyle *style, PyObject *texts, PyObject *clock,
                    const BytesArgument *epochs);
void line_style_free(LineStyle *style);

enum LineStatus { LINE_READY, LINE_UNKNOWN, LINE_WAITS };

/* Find the line that begins with `record`: LINE_UNKNOWN if the record cannot be written; LINE_WAITS
 * if more values of its counter may follow, unless these are the thread's last records. */
enum LineStatus line_find(const LineStyle *style, const Record *record, const Record *end,
                          int are_last, Line *line);
char line_phase(const Line *line);
/* Return an upper bound for the bytes of a line. */
size_t line_max_bytes(const LineStyle *style, const Line *line);
/* Write a line, with ",\n" before it. Call it with the C locale. */
char *line_put(char *at, const LineStyle *style, const Line *line);

/* Use the C locale in this thread until line_restore_locale. */
typedef struct {
    locale_t plain, before;
} LineLocale;
LineLocale line_use_c_locale(void);
void line_restore_locale(LineLocale locale);

#endif
