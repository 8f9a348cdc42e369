/* Kineto's text: the events of a trace that Kineto saves, as short lines, without the GIL.
 *
 *     text as it comes ──► kineto_lines: each event checked, one a line, names made true ──► the trace that is kept
 *                                     └──► a TextSpan of each ──► kineto_crossings: which of them do not nest?
 *
 * Only what every viewer reads passes: strict JSON in ASCII. At anything else the first function stops, and what is left
 * goes through Python (`torch/repair.py`), which takes what comes and means the same. */

#define _GNU_SOURCE
#include "native.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEEPEST 64
#define LONGEST_NS ((int64_t)1 << 62)

enum { MORE, FULL, ENDED, RENAMED, DAMAGED }; /* why kineto_lines returns; TextEnd in Python */

#define STRAY_TID "4194304" /* 2^22: no thread of Linux has it; STRAY_TID in kinetoscope/torch/strays.py */

typedef struct {
    int64_t begin, end; /* nanoseconds since the base of the trace */
    uint64_t track;     /* a hash of the texts of pid and tid */
    uint64_t line;
} TextSpan;

typedef struct {
    const char *at, *end; /* what is read, one whole event */
    char *out;            /* what is written; there is always room: see `has_room` */
} Copy;

/* What of an event is needed beside its text. */
typedef struct {
    char phase;
    int is_frame, is_stray; /* a Python frame; one of a thread whose number Kineto does not know */
    int64_t begin, duration;
    uint64_t track;
} Facts;

/* A name that Kineto wrote otherwise: of which event, as it stands there, and as JSON should have it. */
typedef struct {
    int64_t number;
    const char *raw, *json;
    Py_ssize_t raw_length, json_length;
} Renamed;

static void skip_space(Copy *copy)
{
    while (copy->at < copy->end && (*copy->at == ' ' || *copy->at == '\n' || *copy->at == '\t' || *copy->at == '\r'))
        copy->at++;
}

static int take(Copy *copy, char wanted)
{
    skip_space(copy);
    if (copy->at >= copy->end || *copy->at != wanted)
        return 0;
    *copy->out++ = *copy->at++;
    return 1;
}

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static int is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

static int copy_escape(Copy *copy)
{
    size_t length = copy->at[1] == 'u' ? 6 : 2;
    if (copy->end - copy->at <= (ptrdiff_t)length || strchr("\"\\/bfnrtu", copy->at[1]) == NULL || copy->at[1] == '\0')
        return 0;
    for (size_t i = 2; i < length; i++)
        if (!is_hex(copy->at[i]))
            return 0;
    /* Perfetto takes the quote after a last backslash for an escaped one, unless that is written by its number. */
    if (copy->at[1] == '\\' && copy->at[2] == '"') {
        memcpy(copy->out, "\\u005c", 6);
        copy->out += 6;
    } else {
        memcpy(copy->out, copy->at, length);
        copy->out += length;
    }
    copy->at += length;
    return 1;
}

static int copy_string(Copy *copy)
{
    if (!take(copy, '"'))
        return 0;
    while (copy->at < copy->end && *copy->at != '"') {
        if (*copy->at == '\\') {
            if (copy->end - copy->at < 3 || !copy_escape(copy))
                return 0;
        } else if (*copy->at >= ' ' && *copy->at <= '~') {
            *copy->out++ = *copy->at++;
        } else {
            return 0;
        }
    }
    return take(copy, '"');
}

static int copy_digits(Copy *copy)
{
    const char *begin = copy->at;
    while (copy->at < copy->end && is_digit(*copy->at))
        *copy->out++ = *copy->at++;
    return copy->at > begin;
}

static int copy_if(Copy *copy, const char *any_of)
{
    if (copy->at >= copy->end || *copy->at == '\0' || strchr(any_of, *copy->at) == NULL)
        return 0;
    *copy->out++ = *copy->at++;
    return 1;
}

static int copy_number(Copy *copy)
{
    copy_if(copy, "-");
    const char *first = copy->at;
    if (!copy_digits(copy) || (*first == '0' && copy->at - first > 1))
        return 0;
    if (copy_if(copy, ".") && !copy_digits(copy))
        return 0;
    if (copy_if(copy, "eE")) {
        copy_if(copy, "+-");
        return copy_digits(copy);
    }
    return 1;
}

static int copy_word(Copy *copy)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < 3; i++) {
        size_t length = strlen(words[i]);
        if ((size_t)(copy->end - copy->at) >= length && memcmp(copy->at, words[i], length) == 0) {
            memcpy(copy->out, words[i], length);
            copy->at += length;
            copy->out += length;
            return 1;
        }
    }
    return 0;
}

static int copy_value(Copy *copy, int depth);

/* The items of an array or object, behind its opening bracket. */
static int copy_items(Copy *copy, char closing, int depth)
{
    if (depth > DEEPEST)
        return 0;
    if (take(copy, closing))
        return 1;
    do {
        if (closing == '}' && (!copy_string(copy) || !take(copy, ':')))
            return 0;
        if (!copy_value(copy, depth))
            return 0;
    } while (take(copy, ','));
    return take(copy, closing);
}

static int copy_value(Copy *copy, int depth)
{
    skip_space(copy);
    if (copy->at >= copy->end)
        return 0;
    switch (*copy->at) {
    case '"':
        return copy_string(copy);
    case '{':
        return take(copy, '{') && copy_items(copy, '}', depth + 1);
    case '[':
        return take(copy, '[') && copy_items(copy, ']', depth + 1);
    case 't':
    case 'f':
    case 'n':
        return copy_word(copy);
    default:
        return copy_number(copy);
    }
}

/* Microseconds with at most three decimals, as nanoseconds; -1 if that is not what it is, or below 0. */
static int64_t nanoseconds(const char *at, const char *end)
{
    int64_t number = 0;
    int decimals = -1;
    for (; at < end && decimals < 3; at++) {
        if (*at == '.' && decimals < 0) {
            decimals = 0;
            continue;
        }
        if (!is_digit(*at) || number >= LONGEST_NS / 10)
            return -1;
        number = number * 10 + (*at - '0');
        decimals += decimals >= 0;
    }
    if (at < end)
        return -1;
    for (decimals = decimals < 0 ? 0 : decimals; decimals < 3; decimals++) {
        if (number >= LONGEST_NS / 10)
            return -1;
        number *= 10;
    }
    return number;
}

static uint64_t hash(uint64_t seed, const char *at, const char *end)
{
    for (; at < end; at++)
        seed = (seed ^ (unsigned char)*at) * 1099511628211u;
    return (seed ^ 0xff) * 1099511628211u;
}

static int is_key(const char *key, const char *end, const char *wanted)
{
    size_t length = strlen(wanted);
    return (size_t)(end - key) == length && memcmp(key, wanted, length) == 0;
}

/* Writes a begin again, as it is after the shift of the base; 0 if it is before that. */
static int write_shifted(Copy *copy, char *value, int64_t begin)
{
    if (begin < 0)
        return 0;
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld.%03d", (long long)(begin / 1000), (int)(begin % 1000));
    memcpy(value, digits, (size_t)length);
    copy->out = value + length;
    return 1;
}

/* Kineto puts the frames of threads that it has no number for on thread 0, and viewers that on the main thread. */
static void move_stray(Copy *copy, Facts *facts, const char *key, const char *key_end, char *value)
{
    if (!facts->is_frame || !is_key(key, key_end, "tid") || copy->out - value != 1 || *value != '0')
        return;
    facts->is_stray = 1;
    memcpy(value, STRAY_TID, sizeof STRAY_TID - 1);
    copy->out = value + sizeof STRAY_TID - 1;
}

/* Keeps what matters of a field whose value has just been written to [value, end). */
static int note(Facts *facts, const char *key, const char *key_end, const char *value, const char *end)
{
    if (is_key(key, key_end, "ph"))
        facts->phase = end - value == 3 ? value[1] : '\0';
    else if (is_key(key, key_end, "ts"))
        return (facts->begin = nanoseconds(value, end)) >= 0;
    else if (is_key(key, key_end, "dur"))
        return (facts->duration = nanoseconds(value, end)) >= 0;
    else if (is_key(key, key_end, "cat"))
        facts->is_frame = is_key(value, end, "\"python_function\"");
    else if (is_key(key, key_end, "pid") || is_key(key, key_end, "tid"))
        facts->track = hash(facts->track, value, end);
    return 1;
}

static int copy_renamed(Copy *copy, const Renamed *renamed)
{
    skip_space(copy);
    ptrdiff_t length = renamed->raw_length;
    if (copy->end - copy->at < length + 2 || copy->at[0] != '"' || copy->at[length + 1] != '"' ||
        memcmp(copy->at + 1, renamed->raw, (size_t)length) != 0)
        return 0;
    copy->at += length + 2;
    memcpy(copy->out, renamed->json, (size_t)renamed->json_length);
    copy->out += renamed->json_length;
    return 1;
}

static int is_activity(char phase) { return phase == 'X' || phase == 'i'; }

/* One event, `shift` nanoseconds earlier; `renamed` holds if it is activity number `number`. */
static int copy_event(Copy *copy, Facts *facts, const Renamed *renamed, int64_t number, int64_t shift, int *was_renamed)
{
    *facts = (Facts){.track = 14695981039346656037u};
    *was_renamed = 0;
    if (!take(copy, '{'))
        return 0;
    do {
        char *key = copy->out;
        if (!copy_string(copy) || !take(copy, ':'))
            return 0;
        char *key_end = copy->out - 2, *value = copy->out;
        if (number == renamed->number && is_activity(facts->phase) && is_key(key + 1, key_end, "name")) {
            if (!copy_renamed(copy, renamed))
                return 0;
            *was_renamed = 1;
        } else if (!copy_value(copy, 0)) {
            return 0;
        } else if (move_stray(copy, facts, key + 1, key_end, value), !note(facts, key + 1, key_end, value, copy->out)) {
            return 0;
        } else if (is_key(key + 1, key_end, "ts") && !write_shifted(copy, value, facts->begin -= shift)) {
            return 0;
        }
    } while (take(copy, ','));
    return take(copy, '}') && facts->phase != '\0';
}

typedef struct {
    const char *text, *text_end;
    char *into, *into_end;
    TextSpan *spans, *spans_end;
    int64_t number; /* of activities so far */
    int64_t shift;
    uint64_t line;
    int has_strays;
} Lines;

/* The last byte of the event at `at` and one, where Kineto's indentation says it is; NULL if it is not all there. */
static const char *event_end(const char *at, const char *end)
{
    const char *close = memmem(at, (size_t)(end - at), "\n  }", 4);
    return close == NULL || close + 4 >= end ? NULL : close + 4;
}

static int has_room(const Lines *lines, const char *event_end, const Renamed *renamed)
{
    /* What grows: two bytes of a last backslash to six, a renamed name, a time, and the comma and line break. */
    ptrdiff_t needed = 3 * (event_end - lines->text) + renamed->json_length + 32;
    return lines->into_end - lines->into >= needed && lines->spans < lines->spans_end;
}

/* Reads events until something is to be done; `lines` then stands behind the last whole one. */
static int read_lines(Lines *lines, const Renamed *renamed)
{
    for (;;) {
        while (lines->text < lines->text_end && strchr(" ,\n", *lines->text) != NULL && *lines->text != '\0')
            lines->text++;
        if (lines->text >= lines->text_end)
            return MORE;
        if (*lines->text == ']')
            return ENDED;
        const char *end = event_end(lines->text, lines->text_end);
        if (end == NULL)
            return MORE;
        if (!has_room(lines, end, renamed))
            return FULL;
        Copy copy = {lines->text, end, lines->into};
        Facts facts;
        int was_renamed;
        memcpy(copy.out, ",\n", 2);
        copy.out += 2;
        if (!copy_event(&copy, &facts, renamed, lines->number, lines->shift, &was_renamed) || copy.at != end)
            return DAMAGED;
        if (facts.phase == 'X')
            *lines->spans++ = (TextSpan){facts.begin, facts.begin + facts.duration, facts.track, lines->line};
        lines->number += is_activity(facts.phase);
        lines->has_strays |= facts.is_stray;
        lines->line++;
        lines->text = end;
        lines->into = copy.out;
        if (was_renamed)
            return RENAMED;
    }
}

PyObject *kineto_lines(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer text, into, spans;
    Lines lines;
    Renamed renamed;
    long long number, line, shift, renamed_number;
    if (!PyArg_ParseTuple(arguments, "y*w*w*LLL(Ly#y#)", &text, &into, &spans, &number, &line, &shift, &renamed_number,
                          &renamed.raw, &renamed.raw_length, &renamed.json, &renamed.json_length))
        return NULL;
    renamed.number = renamed_number;
    lines = (Lines){.text = text.buf,
                    .text_end = (const char *)text.buf + text.len,
                    .into = into.buf,
                    .into_end = (char *)into.buf + into.len,
                    .spans = spans.buf,
                    .spans_end = (TextSpan *)spans.buf + (size_t)spans.len / sizeof(TextSpan),
                    .number = number,
                    .shift = shift,
                    .line = (uint64_t)line};
    int why;
    Py_BEGIN_ALLOW_THREADS
    why = read_lines(&lines, &renamed);
    Py_END_ALLOW_THREADS
    PyObject *result = Py_BuildValue("innnLLO", why, (Py_ssize_t)(lines.text - (const char *)text.buf),
                                     (Py_ssize_t)(lines.into - (char *)into.buf),
                                     (Py_ssize_t)((char *)lines.spans - (char *)spans.buf), (long long)lines.number,
                                     (long long)lines.line, lines.has_strays ? Py_True : Py_False);
    PyBuffer_Release(&text);
    PyBuffer_Release(&into);
    PyBuffer_Release(&spans);
    return result;
}

/* -- spans that overlap -- */

static int compare_spans(const void *left, const void *right)
{
    const TextSpan *one = left, *other = right;
    if (one->track != other->track)
        return one->track < other->track ? -1 : 1;
    if (one->begin != other->begin)
        return one->begin < other->begin ? -1 : 1;
    return (one->end < other->end) - (one->end > other->end);
}

/* Marks the spans that overlap another of their track without one holding the other; `sorted` has their indexes as
 * lines. The front of the array is used for those that may be open, which is most of what it was used for before. */
static void mark_crossings(TextSpan *sorted, size_t count, uint8_t *marks)
{
    size_t num_open = 0;
    for (size_t i = 0; i < count; i++) {
        TextSpan next = sorted[i];
        while (num_open > 0 && (sorted[num_open - 1].track != next.track || sorted[num_open - 1].end <= next.begin))
            num_open--;
        /* Below the top, too: where spans cross, an outer one may end before an inner one. */
        for (size_t k = num_open; k > 0; k--) {
            const TextSpan *outer = &sorted[k - 1];
            if (outer->end > next.begin && outer->end < next.end)
                marks[outer->line] = marks[next.line] = 1;
        }
        sorted[num_open++] = next;
    }
}

static PyObject *marked(const uint8_t *marks, size_t count)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count; i++) {
        if (!marks[i])
            continue;
        PyObject *index = PyLong_FromSize_t(i);
        if (index == NULL || PyList_Append(list, index) < 0)
            Py_CLEAR(list);
        Py_XDECREF(index);
    }
    return list;
}

PyObject *kineto_crossings(PyObject *Py_UNUSED(module), PyObject *packed)
{
    Py_buffer spans;
    if (PyObject_GetBuffer(packed, &spans, PyBUF_SIMPLE) < 0)
        return NULL;
    size_t count = (size_t)spans.len / sizeof(TextSpan);
    TextSpan *sorted = malloc((count + 1) * sizeof *sorted);
    uint8_t *marks = calloc(count + 1, 1);
    PyObject *result = NULL;
    if (sorted != NULL && marks != NULL) {
        Py_BEGIN_ALLOW_THREADS
        memcpy(sorted, spans.buf, count * sizeof *sorted);
        for (size_t i = 0; i < count; i++)
            sorted[i].line = i;
        qsort(sorted, count, sizeof *sorted, compare_spans);
        mark_crossings(sorted, count, marks);
        Py_END_ALLOW_THREADS
        result = marked(marks, count);
    } else {
        PyErr_NoMemory();
    }
    free(sorted);
    free(marks);
    PyBuffer_Release(&spans);
    return result;
}
