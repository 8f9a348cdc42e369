/* Draining: writes one thread's records as lines of a Chrome JSON file, without the GIL.
 *
 *     records ──► Sample: may they be written as they are? ──► drain_chrome: a buffer of lines
 *
 * Python passes strings as JSON, so that escaping is done in one place. The sample refuses unusual
 * records (spans that overlap, records that none of our recorders writes). Python writes those,
 * with the same result: see `handlers/cycle_events.py` and `ChromeWriter`. */

#define _GNU_SOURCE
#include "recorder/native.h"
#include "text/numbers.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- the text of numbers -- */

static char *put(char *at, const char *text, size_t length)
{
    memcpy(at, text, length);
    return at + length;
}

#define PUT(at, literal) put(at, literal, sizeof(literal) - 1)

/* Writes the shortest decimal that gives the same double. Call it with the C locale set. */
static char *put_double(char *at, double value)
{
    char text[32];
    int length = 0;
    for (int digits = 15; digits <= 17; digits++) {
        length = snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    at = put(at, text, (size_t)length);
    return strpbrk(text, ".e") == NULL ? PUT(at, ".0") : at;
}

/* -- lines -- */

static char *put_text(char *at, const Text *text)
{
    return put(at, text->at, text->length);
}

typedef struct {
    int64_t begin; /* on the monotonic clock */
    int64_t number;
} Epoch;

/* What is needed to write a thread's records as lines. */
typedef struct {
    const Text *names;      /* JSON strings, by id */
    const Text *categories; /* the categories of each name, as JSON */
    /* args of each name, with a comma before them; empty for most */
    const Text *args;
    const uint32_t *firsts; /* of each name, the first name with the same text */
    /* by such a name, the last value of this series in the line that is being written */
    const Record **last_values;
    uint32_t num_names;
    Text place;               /* pid and tid, as fields of an event */
    long long start;          /* on the monotonic clock */
    long long offset;         /* from the trace's base to the start, in unix time */
    long long drift, elapsed; /* unix time gains `drift` over `elapsed` nanoseconds */
    const Epoch *epochs;      /* in order of time; the first begins before all records */
    size_t num_epochs;
} Style;

/* Nanoseconds since the trace's base, computed as in `ClockLine.unix_ns`: division rounds down, as
 * in Python. */
static int64_t since_base(const Style *style, int64_t monotonic)
{
    int64_t since = monotonic - style->start, product, quotient;
    if (LIKELY(!__builtin_mul_overflow(style->drift, since, &product))) {
        quotient = product / style->elapsed;
        quotient -= product % style->elapsed < 0;
    } else {
        __int128 wide = (__int128)style->drift * since;
        quotient = (int64_t)(wide / style->elapsed);
        quotient -= wide % style->elapsed < 0;
    }
    return style->offset + since + quotient;
}

#define FIXED_BYTES 256 /* an upper bound for everything in a line that is not a string */
#define VALUE_BYTES 40  /* the same, for one value of a counter */

static size_t room_for(const Style *style, const Record *record)
{
    return FIXED_BYTES + style->names[record->name].length +
           style->categories[record->name].length + style->args[record->name].length +
           style->place.length;
}

static size_t room_for_values(const Style *style, const Record *record, const Record *end)
{
    size_t bytes = 0;
    for (; record < end; record++)
        bytes += VALUE_BYTES + style->names[tail_series(record->tail)].length;
    return bytes;
}

static int is_bracket(const Record *record, uint32_t num_names)
{
    uint32_t kind = tail_kind(record->tail);
    return (kind == KIND_BEGIN || kind == KIND_END) && record->name < num_names &&
           is_in_range(record->begin) && is_in_range(record->end.integer);
}

static char *put_head(char *at, const Style *style, const Record *record, char phase, int64_t begin)
{
    at = PUT(at, "{\"ph\":\"");
    *at++ = phase;
    at = PUT(at, "\",\"name\":");
    at = put_text(at, &style->names[record->name]);
    at = PUT(at, ",\"cat\":");
    at = put_text(at, &style->categories[record->name]);
    *at++ = ',';
    at = put_text(at, &style->place);
    at = PUT(at, ",\"ts\":");
    return write_us(at, begin);
}

static int64_t epoch_at(const Style *style, int64_t moment)
{
    size_t low = 0, high = style->num_epochs; /* the last epoch that has begun is in [low, high) */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (style->epochs[middle].begin <= moment)
            low = middle;
        else
            high = middle;
    }
    return style->epochs[low].number;
}

static char *put_span_or_instant(char *at, const Style *style, const Record *record)
{
    int64_t begin = since_base(style, record->begin);
    switch (tail_kind(record->tail)) {
        case KIND_SPAN:
            at = put_head(at, style, record, 'X', begin);
            at = PUT(at, ",\"dur\":");
            at = write_us(at, since_base(style, record->end.integer) - begin);
            break;
        case KIND_BEGIN: at = put_head(at, style, record, 'B', begin); break;
        case KIND_END:
            at = put_head(at, style, record, 'E', since_base(style, record->end.integer));
            break;
        default: at = put_head(at, style, record, 'i', begin); at = PUT(at, ",\"s\":\"t\"");
    }
    at = PUT(at, ",\"args\":{\"epoch\":");
    at = write_integer(at, epoch_at(style, record->begin));
    at = PUT(at, ",\"batch\":");
    at = write_integer(at, record->batch);
    at = put_text(at, &style->args[record->name]);
    if (tail_flags(record->tail) & FLAG_CUT)
        at = PUT(at, ",\"cut\":\"open when its window closed\"");
    return PUT(at, "}}");
}

/* The end of the values that one call of a counter recorded. */
static const Record *group_end(const Style *style, const Record *first, const Record *end)
{
    const Record *next = first + 1;
    int64_t moment = since_base(style, first->begin);
    while (next < end && tail_kind(next->tail) == KIND_COUNTER &&
           is_ordinary(next, style->num_names) && since_base(style, next->begin) == moment &&
           style->firsts[first->name] == style->firsts[next->name])
        next++;
    return next;
}

static int is_finite(const Record *record)
{
    return !(tail_flags(record->tail) & FLAG_FLOAT) || isfinite(record->end.real);
}

static const Record **last_value(const Style *style, const Record *record)
{
    return &style->last_values[style->firsts[tail_series(record->tail)]];
}

static char *put_value(char *at, const Record *record)
{
    if (!(tail_flags(record->tail) & FLAG_FLOAT)) return write_integer(at, record->end.integer);
    if (isnan(record->end.real)) return PUT(at, "\"NaN\"");
    if (isinf(record->end.real))
        return record->end.real > 0 ? PUT(at, "\"Infinity\"") : PUT(at, "\"-Infinity\"");
    return put_double(at, record->end.real);
}

/* Of several values with the same name only the last one counts, which `put_counter` has noted. */
static char *put_values(char *at, const Style *style, const Record *record, const Record *end,
                        int finite, int *count)
{
    *count = 0;
    for (; record < end; record++) {
        if (is_finite(record) != finite || *last_value(style, record) != record) continue;
        if ((*count)++ > 0) *at++ = ',';
        at = put_text(at, &style->names[tail_series(record->tail)]);
        *at++ = ':';
        at = put_value(at, record);
    }
    return at;
}

static char *put_counter(char *at, const Style *style, const Record *record, const Record *end)
{
    int count;
    for (const Record *value = record; value < end; value++) *last_value(style, value) = value;
    at = put_head(at, style, record, 'C', since_base(style, record->begin));
    at = PUT(at, ",\"args\":{");
    at = put_values(at, style, record, end, 1, &count);
    *at++ = '}';
    char *before = at;
    at = PUT(at, ",\"not_finite\":{");
    at = put_values(at, style, record, end, 0, &count);
    return count > 0 ? PUT(at, "}}") : PUT(before, "}");
}

typedef struct {
    const Record *next;
    char *at;
    int is_unknown; /* the next record cannot be written */
    int is_waiting; /* more values of the next record's counter may follow */
} Progress;

/* Writes lines, each with ",\n" before it, while there are records and room. Values of a counter at
 * the end of the records are not written, because more values may follow; they are if these are the
 * thread's last records. */
static Progress put_lines(const Style *style, const Record *record, const Record *end, int are_last,
                          char *at, size_t room)
{
    const char *limit = at + room;
    while (record < end) {
        const Record *following = record + 1;
        if (!is_ordinary(record, style->num_names) && !is_bracket(record, style->num_names))
            return (Progress){record, at, 1, 0};
        size_t needed = room_for(style, record);
        int is_counter = tail_kind(record->tail) == KIND_COUNTER;
        if (is_counter) {
            following = group_end(style, record, end);
            if (following == end && !are_last) return (Progress){record, at, 0, 1};
            needed += room_for_values(style, record, following);
        }
        if ((size_t)(limit - at) < needed) break;
        at = PUT(at, ",\n");
        at = is_counter ? put_counter(at, style, record, following)
                        : put_span_or_instant(at, style, record);
        record = following;
    }
    return (Progress){record, at, 0, 0};
}

static Progress put_lines_in_c_locale(const Style *style, const Record *record, const Record *end,
                                      int are_last, char *at, size_t room)
{
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    locale_t before = uselocale(plain);
    Progress progress = put_lines(style, record, end, are_last, at, room);
    uselocale(before);
    if (plain != (locale_t)0) freelocale(plain);
    return progress;
}

/* -- from Python -- */

static int style_is_valid(const Style *style)
{
    return style->num_epochs > 0 && is_in_range(style->start) && is_in_range(style->offset) &&
           is_in_range(style->elapsed) && style->drift > -style->elapsed &&
           style->drift < style->elapsed;
}

static PyObject *drain(const Style *style, const Py_buffer *packed, Py_ssize_t first, int are_last,
                       const Py_buffer *into)
{
    Py_ssize_t count = packed->len / (Py_ssize_t)sizeof(Record);
    if (first < 0 || first > count || !style_is_valid(style)) {
        PyErr_SetString(PyExc_ValueError,
                        "There is no such record, no epoch, or the clock runs too far off.");
        return NULL;
    }
    const Record *records = packed->buf;
    Progress progress;
    Py_BEGIN_ALLOW_THREADS
    progress = put_lines_in_c_locale(style, records + first, records + count, are_last, into->buf,
                                     (size_t)into->len);
    Py_END_ALLOW_THREADS
    if (progress.is_unknown)
        return PyErr_Format(PyExc_ValueError, "Record %zd cannot be written.",
                            (Py_ssize_t)(progress.next - records));
    return Py_BuildValue("nnO", (Py_ssize_t)(progress.at - (char *)into->buf),
                         (Py_ssize_t)(progress.next - records),
                         progress.is_waiting ? Py_True : Py_False);
}

/* Whether there is a name for each name. */
static int are_names(const uint32_t *found, size_t num_bytes, uint32_t num_names)
{
    if (num_bytes != num_names * sizeof *found) return 0;
    for (uint32_t i = 0; i < num_names; i++)
        if (found[i] >= num_names) return 0;
    return 1;
}

PyObject *drain_chrome(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer packed, into;
    Py_ssize_t first;
    BytesArgument place, epochs, firsts;
    int are_last;
    PyObject *names, *categories, *args;
    Style style = {0};
    if (!PyArg_ParseTuple(arguments, "y*npw*(O!O!O!O&)O&(LLLL)O&", &packed, &first, &are_last,
                          &into, &PyTuple_Type, &names, &PyTuple_Type, &categories, &PyTuple_Type,
                          &args, bytes_argument, &firsts, bytes_argument, &place, &style.start,
                          &style.offset, &style.drift, &style.elapsed, bytes_argument, &epochs))
        return NULL;
    style.epochs = (const Epoch *)(const void *)epochs.at;
    style.num_epochs = epochs.length / sizeof(Epoch);
    style.place.at = place.at;
    style.place.length = place.length;
    style.num_names = (uint32_t)PyTuple_Size(names);
    Text *name_texts = texts_of(names),
         *category_texts = name_texts == NULL ? NULL : texts_of(categories);
    Text *args_texts = category_texts == NULL ? NULL : texts_of(args);
    style.names = name_texts, style.categories = category_texts, style.args = args_texts;
    style.firsts = (const uint32_t *)(const void *)firsts.at;
    PyObject *result = NULL;
    Py_ssize_t count = PyTuple_Size(names);
    const Record **last_values = calloc((size_t)count + 1, sizeof *last_values);
    style.last_values = last_values;
    if (last_values == NULL)
        PyErr_NoMemory();
    else if (args_texts != NULL &&
             (PyTuple_Size(categories) != count || PyTuple_Size(args) != count ||
              !are_names(style.firsts, firsts.length, style.num_names)))
        PyErr_SetString(PyExc_ValueError, "Each name needs its categories, its args and the first "
                                          "name with its text.");
    else if (args_texts != NULL)
        result = drain(&style, &packed, first, are_last, &into);
    free(last_values);
    free(name_texts);
    free(category_texts);
    free(args_texts);
    PyBuffer_Release(&packed);
    PyBuffer_Release(&into);
    return result;
}
