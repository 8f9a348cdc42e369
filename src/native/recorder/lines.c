/* See lines.h. */

#define _GNU_SOURCE
#include "recorder/lines.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/numbers.h"

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

static char *put_text(char *at, const Text *text)
{
    return put(at, text->at, text->length);
}

/* -- finding a line -- */

/* Nanoseconds since the trace's base, computed as in `ClockLine.unix_ns`: division rounds down, as
 * in Python. */
static int64_t since_base(const LineStyle *style, int64_t monotonic)
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

static int is_bracket(const Record *record, uint32_t num_names)
{
    uint32_t kind = tail_kind(record->tail);
    return (kind == KIND_BEGIN || kind == KIND_END) && record->name < num_names &&
           is_in_range(record->begin) && is_in_range(record->end.integer);
}

/* The end of the values that one call of a counter recorded. */
static const Record *group_end(const LineStyle *style, const Line *line, const Record *end)
{
    const Record *next = line->first + 1;
    while (next < end && tail_kind(next->tail) == KIND_COUNTER &&
           is_ordinary(next, style->num_names) && since_base(style, next->begin) == line->begin &&
           style->firsts[line->first->name] == style->firsts[next->name])
        next++;
    return next;
}

enum LineStatus line_find(const LineStyle *style, const Record *record, const Record *end,
                          int are_last, Line *line)
{
    if (!is_ordinary(record, style->num_names) && !is_bracket(record, style->num_names))
        return LINE_UNKNOWN;
    uint32_t kind = tail_kind(record->tail);
    line->first = record;
    line->end = record + 1;
    line->begin = since_base(style, kind == KIND_END ? record->end.integer : record->begin);
    line->dur = kind == KIND_SPAN ? since_base(style, record->end.integer) - line->begin : 0;
    line->note.length = 0;
    if (kind != KIND_COUNTER) return LINE_READY;
    line->end = group_end(style, line, end);
    return line->end == end && !are_last ? LINE_WAITS : LINE_READY;
}

/* -- writing it -- */

#define FIXED_BYTES 256 /* an upper bound for everything in a line that is not a string */
#define VALUE_BYTES 40  /* the same, for one value of a counter */

size_t line_max_bytes(const LineStyle *style, const Line *line)
{
    uint32_t name = line->first->name;
    size_t bytes = FIXED_BYTES + style->names[name].length + style->categories[name].length +
                   style->args[name].length + style->track_fields.length + line->note.length;
    if (tail_kind(line->first->tail) != KIND_COUNTER) return bytes;
    for (const Record *record = line->first; record < line->end; record++)
        bytes += VALUE_BYTES + style->names[tail_series(record->tail)].length;
    return bytes;
}

char line_phase(const Line *line)
{
    switch (tail_kind(line->first->tail)) {
        case KIND_SPAN: return 'X';
        case KIND_COUNTER: return 'C';
        case KIND_BEGIN: return 'B';
        case KIND_END: return 'E';
        default: return 'i';
    }
}

static char *put_head(char *at, const LineStyle *style, const Line *line, char phase)
{
    uint32_t name = line->first->name;
    at = PUT(at, ",\n{\"ph\":\"");
    *at++ = phase;
    at = PUT(at, "\",\"name\":");
    at = put_text(at, &style->names[name]);
    at = PUT(at, ",\"cat\":");
    at = put_text(at, &style->categories[name]);
    *at++ = ',';
    at = put_text(at, &style->track_fields);
    at = PUT(at, ",\"ts\":");
    return write_us(at, line->begin);
}

static int64_t epoch_at(const LineStyle *style, int64_t moment)
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

static char *put_span_or_instant(char *at, const LineStyle *style, const Line *line, char phase)
{
    const Record *record = line->first;
    if (phase == 'X') {
        at = PUT(at, ",\"dur\":");
        at = write_us(at, line->dur);
    } else if (phase == 'i') {
        at = PUT(at, ",\"s\":\"t\"");
    }
    at = PUT(at, ",\"args\":{\"epoch\":");
    at = write_integer(at, epoch_at(style, record->begin));
    at = PUT(at, ",\"batch\":");
    at = write_integer(at, record->batch);
    at = put_text(at, &style->args[record->name]);
    if (tail_flags(record->tail) & FLAG_CUT)
        at = PUT(at, ",\"cut\":\"open when its window closed\"");
    if (line->note.length > 0) {
        at = PUT(at, ",\"kinetoscope\":\"");
        at = put_text(at, &line->note);
        *at++ = '"';
    }
    return PUT(at, "}}");
}

static int is_finite(const Record *record)
{
    return !(tail_flags(record->tail) & FLAG_FLOAT) || isfinite(record->end.real);
}

static const Record **last_value(const LineStyle *style, const Record *record)
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
static char *put_values(char *at, const LineStyle *style, const Line *line, int finite, int *count)
{
    *count = 0;
    for (const Record *record = line->first; record < line->end; record++) {
        if (is_finite(record) != finite || *last_value(style, record) != record) continue;
        if ((*count)++ > 0) *at++ = ',';
        at = put_text(at, &style->names[tail_series(record->tail)]);
        *at++ = ':';
        at = put_value(at, record);
    }
    return at;
}

static char *put_counter(char *at, const LineStyle *style, const Line *line)
{
    int count;
    for (const Record *value = line->first; value < line->end; value++)
        *last_value(style, value) = value;
    at = PUT(at, ",\"args\":{");
    at = put_values(at, style, line, 1, &count);
    *at++ = '}';
    char *before = at;
    at = PUT(at, ",\"not_finite\":{");
    at = put_values(at, style, line, 0, &count);
    return count > 0 ? PUT(at, "}}") : PUT(before, "}");
}

char *line_put(char *at, const LineStyle *style, const Line *line)
{
    char phase = line_phase(line);
    at = put_head(at, style, line, phase);
    return phase == 'C' ? put_counter(at, style, line)
                        : put_span_or_instant(at, style, line, phase);
}

LineLocale line_use_c_locale(void)
{
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    return (LineLocale){plain, uselocale(plain)};
}

void line_restore_locale(LineLocale locale)
{
    uselocale(locale.before);
    if (locale.plain != (locale_t)0) freelocale(locale.plain);
}

/* -- from Python -- */

static int is_valid(const LineStyle *style)
{
    return style->num_epochs > 0 && is_in_range(style->start) && is_in_range(style->offset) &&
           is_in_range(style->elapsed) && style->drift > -style->elapsed &&
           style->drift < style->elapsed;
}

/* Whether there is a name for each name. */
static int are_names(const BytesArgument *firsts, uint32_t num_names)
{
    const uint32_t *found = (const uint32_t *)(const void *)firsts->at;
    if (firsts->length != num_names * sizeof *found) return 0;
    for (uint32_t i = 0; i < num_names; i++)
        if (found[i] >= num_names) return 0;
    return 1;
}

int line_style_take(LineStyle *style, PyObject *texts, PyObject *clock, const BytesArgument *epochs)
{
    PyObject *names, *categories, *args;
    BytesArgument firsts;
    if (!PyArg_ParseTuple(texts, "O!O!O!O&", &PyTuple_Type, &names, &PyTuple_Type, &categories,
                          &PyTuple_Type, &args, bytes_argument, &firsts) ||
        !PyArg_ParseTuple(clock, "LLLL", &style->start, &style->offset, &style->drift,
                          &style->elapsed))
        return 0;
    style->epochs = (const Epoch *)(const void *)epochs->at;
    style->num_epochs = epochs->length / sizeof(Epoch);
    Py_ssize_t count = PyTuple_Size(names);
    style->num_names = (uint32_t)count;
    style->firsts = (const uint32_t *)(const void *)firsts.at;
    if (PyTuple_Size(categories) != count || PyTuple_Size(args) != count ||
        !are_names(&firsts, style->num_names)) {
        PyErr_SetString(PyExc_ValueError, "Each name needs its categories, its args and the first "
                                          "name with its text.");
        return 0;
    }
    if (!is_valid(style)) {
        PyErr_SetString(PyExc_ValueError, "There is no epoch, or the clock runs too far off.");
        return 0;
    }
    style->last_values = calloc((size_t)count + 1, sizeof *style->last_values);
    if (style->last_values == NULL) PyErr_NoMemory();
    return style->last_values != NULL && (style->names = texts_of(names)) != NULL &&
           (style->categories = texts_of(categories)) != NULL &&
           (style->args = texts_of(args)) != NULL;
}

void line_style_free(LineStyle *style)
{
    free(style->last_values);
    free(style->names);
    free(style->categories);
    free(style->args);
}
