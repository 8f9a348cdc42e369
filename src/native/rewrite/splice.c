/* See splice.h. */

#include "rewrite/splice.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "text/bytes.h"
#include "text/numbers.h"

#define MAX_SPLICES ((size_t)4 << 20) /* 64 MB, for all files of a merge */
#define SHORTEST 32                   /* of all events that have splices, in bytes */

static _Atomic size_t num_kept;

/* Whether a merge changes only its pid, tid and times. */
static int is_usual(const Event *event)
{
    const Text *fields = event->fields;
    return event->phase != 0 && event->phase != 'M' && fields[FIELD_PID].at != NULL &&
           fields[FIELD_TID].at != NULL && fields[FIELD_TS].at != NULL &&
           (event->phase != 'X' || fields[FIELD_DUR].at != NULL) && fields[FIELD_ID].at == NULL &&
           fields[FIELD_ID2].at == NULL && fields[FIELD_BIND_ID].at == NULL &&
           fields[FIELD_SCOPE].at == NULL;
}

/* Adds a value that begins `gap` bytes after the one before; 0 if that is too far. */
static int add_value(Splice *splice, unsigned number, unsigned field, size_t gap, size_t length)
{
    if (length > UINT8_MAX || gap > (number == 0 ? UINT16_MAX : UINT8_MAX)) return 0;
    if (number == 0)
        splice->first = (uint16_t)gap;
    else
        splice->gaps[number - 1] = (uint8_t)gap;
    splice->order |= (uint8_t)((field - FIELD_PID) << 2 * number);
    splice->lengths[number] = (uint8_t)length;
    return 1;
}

typedef uint64_t TwoWords __attribute__((vector_size(16)));

static inline TwoWords two_words_at(const char *at)
{
    TwoWords words;
    memcpy(&words, at, sizeof words);
    return words;
}

/* Continues a sum over texts with one of at least SHORTEST bytes. It differs if a byte does, or if
 * texts change places. */
static uint64_t with_text(uint64_t sum, const char *at, size_t length)
{
    const char *last = at + length - SHORTEST; /* some bytes of the last step may count twice */
    TwoWords first = two_words_at(last), second = two_words_at(last + 16);
    for (; last - at >= SHORTEST; at += 2 * SHORTEST) {
        first += two_words_at(at) + two_words_at(at + 32);
        second += two_words_at(at + 16) + two_words_at(at + 48);
    }
    if (at < last) {
        first += two_words_at(at);
        second += two_words_at(at + 16);
    }
    sum = (sum ^ first[0]) * STABLE_PRIME + first[1];
    return (sum ^ second[0]) * STABLE_PRIME + second[1];
}

static Splice splice_of(const Event *event)
{
    Splice splice = {.phase = event->phase};
    const char *at = event->begin;
    unsigned number = 0;
    size_t length = (size_t)(event->end - event->begin);
    if (!is_usual(event) || length < SHORTEST || length > UINT32_MAX) return splice;
    for (unsigned i = 0; i < event->num_fields; i++) {
        unsigned field = event->order[i];
        if (field < FIELD_PID || field > FIELD_DUR) continue;
        Text value = event->fields[field];
        if (!add_value(&splice, number++, field, (size_t)(value.at - at), value.length))
            return splice;
        at = value.at + value.length;
    }
    splice.length = (uint32_t)length;
    return splice;
}

void splices_note(Splices *splices, const Event *event)
{
    size_t before = splices->capacity;
    if (splices->num == before && !splices->is_full) {
        splices->is_full = atomic_load_explicit(&num_kept, memory_order_relaxed) >= MAX_SPLICES ||
                           !array_room_for_next((void **)&splices->splices, splices->num,
                                                &splices->capacity, sizeof(Splice));
        atomic_fetch_add_explicit(&num_kept, splices->capacity - before, memory_order_relaxed);
    }
    if (splices->is_full) return;
    Splice splice = event != NULL ? splice_of(event) : (Splice){0};
    if (splice.length > 0) splices->noted = with_text(splices->noted, event->begin, splice.length);
    splices->splices[splices->num++] = splice;
}

int splices_pass(Splices *splices, const Event *event)
{
    if (splices->next >= splices->num) return 1;
    size_t length = splices->splices[splices->next++].length;
    if (length == 0) return 1;
    if (event == NULL || (size_t)(event->end - event->begin) != length) return 0;
    splices->passed = with_text(splices->passed, event->begin, length);
    return 1;
}

int splices_are_same(const Splices *splices)
{
    return splices->noted == splices->passed;
}

/* Reads a time that is the whole value. */
static int read_whole(Text value, const char *end, int64_t *ns)
{
    const char *behind = value.at + value.length;
    if (end - value.at >= TIME_AHEAD && read_us_ahead(value.at, ns) == behind) return 1;
    return read_us(value.at, behind + 1, ns) == behind;
}

const Event *splices_read(Splices *splices, const char *at, const char *end)
{
    if (splices->next >= splices->num) return NULL;
    const Splice *splice = &splices->splices[splices->next];
    if (splice->length == 0 || splice->length > (size_t)(end - at)) return NULL;
    Event *event = &splices->event;
    event->begin = at;
    event->end = at + splice->length;
    event->phase = splice->phase;
    event->num_fields = 0;
    event->fields[FIELD_DUR].at = NULL;
    event->dur = 0;
    at += splice->first;
    for (unsigned i = 0; i < SPLICE_FIELDS && splice->lengths[i] > 0; i++) {
        unsigned field = FIELD_PID + (splice->order >> 2 * i & 3);
        event->fields[field] = (Text){at, splice->lengths[i]};
        event->order[event->num_fields++] = (uint8_t)field;
        at += splice->lengths[i] + (i < SPLICE_FIELDS - 1 ? splice->gaps[i] : 0);
    }
    event->has_members = 1;
    event->num_members = MEMBERS_UNKNOWN;
    if (!read_whole(event->fields[FIELD_TS], end, &event->ts)) return NULL;
    if (event->fields[FIELD_DUR].at != NULL &&
        !read_whole(event->fields[FIELD_DUR], end, &event->dur))
        return NULL;
    return event;
}

void splices_free(Splices *splices)
{
    atomic_fetch_sub_explicit(&num_kept, splices->capacity, memory_order_relaxed);
    free(splices->splices);
    memset(splices, 0, sizeof *splices);
}
