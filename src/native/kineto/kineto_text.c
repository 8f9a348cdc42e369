/* See kineto_text.h. */

#include "kineto/kineto_text.h"

#include <stdlib.h>
#include <string.h>

#include "text/bytes.h"
#include "text/json.h"
#include "text/numbers.h"

#define DEEPEST 64
/* 2^22: no Linux thread has this number; ORPHAN_TID in kinetoscope/torch/python_frames.py */
#define ORPHAN_TID "4194304"

typedef struct {
    const char *at, *end; /* what is read: complete events */
    /* where to write next; `out_end` is KINETO_SLACK before the end, so only long values check
     * it */
    char *out, *out_end;
} Copy;

/* Facts of an event in addition to its text. */
typedef struct {
    char phase;
    /* a Python frame; a frame of a thread whose number Kineto lacks */
    int is_frame, is_orphan;
    enum FrameFate fate;
    int64_t begin, duration;
    uint64_t track;
    const char *name; /* including its quotes */
    size_t name_length;
} Facts;

static void skip_space(Copy *copy)
{
    while (copy->at < copy->end &&
           (*copy->at == ' ' || *copy->at == '\n' || *copy->at == '\t' || *copy->at == '\r'))
        copy->at++;
}

static int take(Copy *copy, char wanted)
{
    skip_space(copy);
    if (copy->at >= copy->end || *copy->at != wanted) return 0;
    *copy->out++ = *copy->at++;
    return 1;
}

/* Copies the text up to `behind`. */
static int copy_up_to(Copy *copy, const char *behind)
{
    if (copy->out_end - copy->out < behind - copy->at) {
        copy->out = copy->out_end;
        return 0;
    }
    copy_short(copy->out, copy->at, (size_t)(behind - copy->at));
    copy->out += behind - copy->at;
    copy->at = behind;
    return 1;
}

static int copy_string(Copy *copy)
{
    unsigned marks = 0;
    JsonFault fault = JSON_FINE;
    skip_space(copy);
    if (copy->at >= copy->end || *copy->at != '"') return 0;
    const char *behind = json_skip_string(copy->at + 1, copy->end, &marks, &fault);
    if (behind == NULL || (marks & JSON_HIGH) || !copy_up_to(copy, behind)) return 0;
    /* Perfetto misreads a string that ends with a backslash: it takes the closing quote for an
     * escaped one. So we write such a backslash as a number. */
    if ((marks & JSON_ESCAPED) && behind[-2] == '\\' && behind[-3] == '\\') {
        memcpy(copy->out - 3, "\\u005c\"", 7);
        copy->out += 4;
    }
    return 1;
}

static int copy_value(Copy *copy, int depth);

/* Copies an array or an object, which `closing` ends. */
static int copy_items(Copy *copy, char closing, int depth)
{
    if (depth > DEEPEST) return 0;
    *copy->out++ = *copy->at++;
    if (take(copy, closing)) return 1;
    do {
        if (copy->out >= copy->out_end ||
            (closing == '}' && (!copy_string(copy) || !take(copy, ':'))))
            return 0;
        if (!copy_value(copy, depth)) return 0;
    } while (take(copy, ','));
    return take(copy, closing);
}

static int copy_value(Copy *copy, int depth)
{
    skip_space(copy);
    if (copy->at >= copy->end) return 0;
    if (*copy->at == '"') return copy_string(copy);
    if (*copy->at == '{' || *copy->at == '[')
        return copy_items(copy, *copy->at == '{' ? '}' : ']', depth + 1);
    JsonFault fault = JSON_FINE;
    const char *behind = json_skip_value(copy->at, copy->end, &fault);
    return behind != NULL && copy_up_to(copy, behind);
}

/* The microseconds that were just written at `value`, as nanoseconds; -1 if they are not a number,
 * or are negative. */
static int64_t nanoseconds(const char *value, const Copy *copy)
{
    int64_t ns;
    *copy->out = ','; /* a temporary end of the number; the next text overwrites it */
    return read_us(value, copy->out + 1, &ns) == copy->out && ns >= 0 ? ns : -1;
}

/* Adds a text and its end to a hash. The hash of pid and tid identifies a track. */
static uint64_t place_hash(uint64_t hash, const char *at, const char *end)
{
    return stable_hash(stable_hash(hash, at, (size_t)(end - at)), "\xff", 1);
}

/* Writes a begin again, with the base shifted; 0 if it is before the new base. */
static int write_shifted(Copy *copy, char *value, int64_t begin)
{
    if (begin < 0) return 0;
    Bytes into = {.at = value, .capacity = US_DIGITS};
    bytes_put_us(&into, begin);
    copy->out = value + into.length;
    return 1;
}

/* Kineto writes frames of threads that it has no number for on thread 0, which viewers show as the
 * main thread. They get a new number. */
static void move_orphan(Copy *copy, Facts *facts, char *value)
{
    if (!facts->is_frame || copy->out - value != 1 || *value != '0') return;
    facts->is_orphan = 1;
    memcpy(value, ORPHAN_TID, sizeof ORPHAN_TID - 1);
    copy->out = value + sizeof ORPHAN_TID - 1;
}

/* Notes a field whose value has just been written at `value`, and corrects the value if needed. */
static int note(KinetoText *lines, Copy *copy, Facts *facts, Text key, char *value)
{
    if (TEXT_IS(key, "ph")) {
        facts->phase = copy->out - value == 3 ? value[1] : '\0';
    } else if (TEXT_IS(key, "ts")) {
        int64_t begin = nanoseconds(value, copy);
        facts->begin = begin - lines->shift;
        return begin >= 0 && write_shifted(copy, value, facts->begin);
    } else if (TEXT_IS(key, "dur")) {
        return (facts->duration = nanoseconds(value, copy)) >= 0;
    } else if (TEXT_IS(key, "cat")) {
        Text category = {value, (size_t)(copy->out - value)};
        facts->is_frame = TEXT_IS(category, "\"python_function\"");
    } else if (TEXT_IS(key, "pid")) {
        facts->track = place_hash(facts->track, value, copy->out);
    } else if (TEXT_IS(key, "tid")) {
        move_orphan(copy, facts, value);
        facts->track = place_hash(facts->track, value, copy->out);
    } else if (TEXT_IS(key, "name")) {
        facts->name = value;
        facts->name_length = (size_t)(copy->out - value);
    } else if (TEXT_IS(key, "args") && facts->is_frame) {
        facts->fate = profiler_frames_judge(&lines->own, facts->name, facts->name_length, value,
                                            &copy->out);
    }
    return facts->fate != FRAME_FAILED;
}

/* Whether this text follows a name, as opposed to a quote within one. `has_own_line`: each field is
 * on a line of its own, as since torch 2.7 or so. */
static int follows_name(const char *at, const char *end, int has_own_line)
{
    const char *wanted = has_own_line ? ",\n" : ", \"pid\": ";
    size_t length = strlen(wanted);
    return (size_t)(end - at) >= length && memcmp(at, wanted, length) == 0;
}

/* Copies a name, whose quotes Kineto does not escape. Names of code that was freed, as dynamo does,
 * may have some. */
static int copy_name(Copy *copy, int has_own_line)
{
    unsigned marks = 0;
    JsonFault fault = JSON_FINE;
    skip_space(copy);
    if (copy->at >= copy->end || *copy->at != '"') return 0;
    const char *behind = json_skip_string(copy->at + 1, copy->end, &marks, &fault);
    if (behind == NULL || marks || follows_name(behind, copy->end, has_own_line))
        return copy_string(copy);
    const char *last = behind - 1;
    ptrdiff_t num_quotes = 0;
    for (; !(*last == '"' && follows_name(last + 1, copy->end, has_own_line)); last++) {
        if (*last == '"') num_quotes++;
        if (last + 1 >= copy->end || *last < ' ' || *last > '~' || *last == '\\')
            return copy_string(copy);
    }
    if (copy->out_end - copy->out < last + 1 - copy->at + num_quotes) {
        copy->out = copy->out_end;
        return 0;
    }
    *copy->out++ = *copy->at++;
    while (copy->at < last) {
        if (*copy->at == '"') *copy->out++ = '\\';
        *copy->out++ = *copy->at++;
    }
    *copy->out++ = *copy->at++;
    return 1;
}

/* Copies the true name in place of what Kineto wrote; 0 if it wrote something else. */
static int copy_renamed(Copy *copy, const Renamed *renamed)
{
    skip_space(copy);
    ptrdiff_t length = (ptrdiff_t)renamed->raw_length;
    if (copy->end - copy->at < length + 2 || copy->at[0] != '"' || copy->at[length + 1] != '"' ||
        memcmp(copy->at + 1, renamed->raw, renamed->raw_length) != 0)
        return 0;
    if ((size_t)(copy->out_end - copy->out) < renamed->json_length) {
        copy->out = copy->out_end;
        return 0;
    }
    copy->at += length + 2;
    memcpy(copy->out, renamed->json, renamed->json_length);
    copy->out += renamed->json_length;
    return 1;
}

static int is_activity(char phase)
{
    return phase == 'X' || phase == 'i';
}

/* Copies one event, with its times shifted; `renamed` is its true name, or NULL. */
static int copy_event(KinetoText *lines, Copy *copy, Facts *facts, const Renamed *renamed)
{
    *facts = (Facts){.track = STABLE_BASIS};
    if (!take(copy, '{')) return 0;
    do {
        char *begin = copy->out;
        int has_own_line = copy->at < copy->end && *copy->at == '\n';
        if (copy->out >= copy->out_end || !copy_string(copy) || !take(copy, ':')) return 0;
        char *value = copy->out;
        Text key = {begin + 1, (size_t)(value - begin) - 3}; /* without the quotes and the colon */
        if (is_activity(facts->phase) && TEXT_IS(key, "name")) {
            int is_renamed = renamed != NULL && copy_renamed(copy, renamed);
            /* The name of a frame may have changed since it was read, if its code was freed. */
            if (!is_renamed && renamed != NULL && !facts->is_frame) return 0;
            if (!is_renamed && !copy_name(copy, has_own_line)) return 0;
            renamed = NULL;
        } else if (!copy_value(copy, 0)) {
            return 0;
        }
        /* Do not note a value that did not fit: a shorter correction would make it look
         * complete. */
        if (copy->out >= copy->out_end || !note(lines, copy, facts, key, value)) return 0;
    } while (take(copy, ','));
    return take(copy, '}') && facts->phase != '\0' &&
           (renamed == NULL || !is_activity(facts->phase));
}

/* Finds the end of the last complete event by Kineto's indentation; `at` if there is none. */
static const char *last_end(const char *at, const char *end)
{
    /* The text after the bracket must fit too: a comma and the next event, or the end of the
     * list. */
    for (size_t length = (size_t)(end - at); length >= 5; length--)
        if (at[length - 2] == '}' && memcmp(at + length - 5, "\n  ", 3) == 0)
            return at + length - 1;
    return at;
}

/* Whether Kineto may have changed the name. It writes "unknown" for an unprintable name, a slash
 * for a backslash, and since torch 2.14 an apostrophe for a quote; with a quote, which is escaped
 * here, there may have been a newline. Names of Python frames contain slashes anyway, and
 * apostrophes where there is no file. */
static int may_be_changed(const Facts *facts)
{
    const char *name = facts->name + 1, *end = name + facts->name_length - 2;
    size_t length = (size_t)(end - name);
    if (length == sizeof "unknown" - 1 && memcmp(name, "unknown", length) == 0) return 1;
    if (memchr(name, '\\', length) != NULL) return 1;
    if (!facts->is_frame)
        return memchr(name, '/', length) != NULL || memchr(name, '\'', length) != NULL;
    return length > 0 && *name != '<' && memchr(name, '\'', length) != NULL;
}

/* Keeps the name. A name may be kept twice, if others with the same hash come between. */
static void keep_maybe_changed(KinetoText *lines, const Facts *facts)
{
    uint64_t name = place_hash(0, facts->name, facts->name + facts->name_length);
    uint64_t *last = &lines->last_maybe_changed[name % RECENT_NAMES];
    if (*last == name) return;
    *last = name;
    bytes_put(&lines->maybe_changed, facts->name + 1, facts->name_length - 2);
    bytes_put_char(&lines->maybe_changed, '\n');
}

static int note_line(KinetoText *lines, const Facts *facts)
{
    if (facts->phase == 'X') {
        if (!array_room_for_next((void **)&lines->spans, lines->num_spans, &lines->spans_capacity,
                                 sizeof *lines->spans))
            return 0;
        int64_t end = facts->begin + facts->duration;
        lines->spans[lines->num_spans++] = (TextSpan){facts->begin, end, facts->track, lines->at};
    } else if (facts->phase == 'M') {
        if (!array_room_for_next((void **)&lines->metadata, lines->num_metadata,
                                 &lines->metadata_capacity, sizeof *lines->metadata))
            return 0;
        lines->metadata[lines->num_metadata++] = lines->at;
    }
    lines->has_orphan_frames |= facts->is_orphan;
    return 1;
}

/* The true name of the next event, if it is an activity whose name Kineto changed; else NULL. */
static const Renamed *next_renamed(const KinetoText *lines)
{
    const Renamed *next = &lines->renamed[lines->next_renamed];
    return lines->next_renamed < lines->num_renamed && next->number == lines->number ? next : NULL;
}

/* Writes the line of the next event, which ends before `end`. */
static enum KinetoStop write_line(KinetoText *lines, const char *end)
{
    Copy copy = {lines->text, end, lines->into, lines->into_end - KINETO_SLACK};
    Facts facts;
    const Renamed *renamed = next_renamed(lines);
    size_t separator = lines->at > 0 ? 2 : 1; /* no comma before the first line */
    if (copy.out >= copy.out_end) return KINETO_FULL;
    memcpy(copy.out, separator == 2 ? ",\n" : "\n", separator);
    copy.out += separator;
    if (!copy_event(lines, &copy, &facts, renamed))
        return facts.fate == FRAME_FAILED ? KINETO_FAILED
               : copy.out >= copy.out_end ? KINETO_FULL
                                          : KINETO_DAMAGED;
    lines->next_renamed += renamed != NULL && is_activity(facts.phase);
    lines->number += is_activity(facts.phase);
    lines->text = copy.at;
    if (facts.fate == FRAME_GOES) return KINETO_MORE;
    if (renamed == NULL && is_activity(facts.phase) && facts.name_length > 2 &&
        may_be_changed(&facts))
        keep_maybe_changed(lines, &facts);
    lines->at += separator;
    if (!note_line(lines, &facts)) return KINETO_FAILED;
    lines->at += (uint64_t)(copy.out - lines->into) - separator;
    lines->into = copy.out;
    return KINETO_MORE;
}

enum KinetoStop kineto_write_lines(KinetoText *lines)
{
    const char *end = last_end(lines->text, lines->text_end);
    for (;;) {
        while (lines->text < lines->text_end &&
               (*lines->text == ' ' || *lines->text == ',' || *lines->text == '\n'))
            lines->text++;
        if (lines->text < lines->text_end && *lines->text == ']') return KINETO_ENDED;
        if (lines->text >= end) return KINETO_MORE;
        enum KinetoStop stop = write_line(lines, end);
        if (stop != KINETO_MORE) return stop;
    }
}

/* -- spans that overlap -- */

static int compare_spans(const void *left, const void *right)
{
    const TextSpan *one = left, *other = right;
    if (one->track != other->track) return one->track < other->track ? -1 : 1;
    if (one->begin != other->begin) return one->begin < other->begin ? -1 : 1;
    return (one->end < other->end) - (one->end > other->end);
}

/* `sorted` has the indexes of the spans as `at`. The front of the array is reused for the spans
 * that may be open: those places were already read. */
static void mark_crossings(TextSpan *sorted, size_t count, uint8_t *marks)
{
    size_t num_open = 0;
    for (size_t i = 0; i < count; i++) {
        TextSpan next = sorted[i];
        while (num_open > 0 &&
               (sorted[num_open - 1].track != next.track || sorted[num_open - 1].end <= next.begin))
            num_open--;
        /* Not only the top: where spans cross, an outer one may end before an inner one. */
        for (size_t k = num_open; k > 0; k--) {
            const TextSpan *outer = &sorted[k - 1];
            if (outer->end > next.begin && outer->end < next.end)
                marks[outer->at] = marks[next.at] = 1;
        }
        sorted[num_open++] = next;
    }
}

int kineto_crossings(const TextSpan *spans, size_t count, uint8_t *marks)
{
    TextSpan *sorted = malloc((count + 1) * sizeof *sorted);
    if (sorted == NULL) return 0;
    for (size_t i = 0; i < count; i++) {
        sorted[i] = spans[i];
        sorted[i].at = i;
    }
    qsort(sorted, count, sizeof *sorted, compare_spans);
    mark_crossings(sorted, count, marks);
    free(sorted);
    return 1;
}
