/* See nest.h, and formats/nesting.py, which does the same in Python. */

#include "rewrite/nest.h"

#include <stdlib.h>

#include "text/numbers.h"

static const int64_t limits_ns[] = {
    [SPAN_FRAME] = 1000000, [SPAN_DEVICE] = 1000, [SPAN_OTHER] = 5000, [SPAN_FIXED] = -1};

static inline int64_t end_of(const NestSpan *span)
{
    return span->begin + span->dur;
}

int nest_compare(const NestSpan *one, const NestSpan *other)
{
    if (one->begin != other->begin) return one->begin < other->begin ? -1 : 1;
    return one->dur != other->dur ? (one->dur > other->dur ? -1 : 1) : 0;
}

int nest_compare_serials(const void *one, const void *other)
{
    const NestSpan *first = one, *second = other;
    int order = nest_compare(first, second);
    return order != 0 ? order : first->serial < second->serial ? -1 : 1;
}

/* The action of a span; makes one if it has none. NULL if there is no memory. */
static NestAction *action_of(NestSpan *span, NestOutcome *outcome)
{
    if (span->action == NO_ACTION) {
        if (outcome->num_actions >= NO_ACTION ||
            !array_room_for_next((void **)&outcome->actions, outcome->num_actions,
                                 &outcome->actions_capacity, sizeof *outcome->actions)) {
            outcome->has_failed = 1;
            return NULL;
        }
        span->action = (uint32_t)outcome->num_actions++;
        outcome->actions[span->action] = (NestAction){.serial = span->serial, .beside = TABLE_FULL};
    }
    return &outcome->actions[span->action];
}

/* Cuts a span at its begin or at its end. */
static void cut(NestSpan *span, int64_t from_begin, int64_t from_end, NestOutcome *outcome)
{
    NestAction *action = action_of(span, outcome);
    if (action == NULL) return;
    outcome->num_clipped += action->cut_begin == 0 && action->cut_end == 0;
    action->cut_begin += from_begin;
    action->cut_end += from_end;
    action->begin = span->begin += from_begin;
    action->dur = span->dur -= from_begin + from_end;
}

static void send_on(const NestLevel *level, NestSpan *span, const NestSpan *staying,
                    NestOutcome *outcome)
{
    NestAction *action = action_of(span, outcome);
    if (action == NULL) return;
    if (level->level == 0) {
        action->beside = staying->name;
        outcome->num_moved++;
    }
    action->level = level->level + 1;
    action->begin = span->begin;
    action->dur = span->dur;
}

static void describe_cut(int64_t cut_ns, const char *where, Bytes *text)
{
    if (cut_ns == 0) return;
    if (text->length > 0) bytes_put_literal(text, "; ");
    bytes_put_literal(text, "clipped ");
    bytes_put_us(text, cut_ns);
    bytes_put_literal(text, " us at its ");
    bytes_put(text, where, strlen(where));
    bytes_put_literal(text, " to nest");
}

void nest_describe(const NestAction *action, const Table *names, Text thread, unsigned overlap,
                   Bytes *text)
{
    size_t length = 0;
    const char *name = action->beside != TABLE_FULL ? table_key(names, action->beside, &length)
                                                    : NULL;
    describe_cut(action->cut_begin, "begin", text);
    describe_cut(action->cut_end, "end", text);
    if (action->level == 0) return;
    if (text->length > 0) bytes_put_literal(text, "; ");
    bytes_put_literal(text, "moved from thread ");
    if (thread.at == NULL)
        bytes_put_literal(text, "None");
    else if (*thread.at == '"')
        bytes_put(text, thread.at + 1, thread.length - 2);
    else
        bytes_put(text, thread.at, thread.length);
    bytes_put_literal(text, " to overlap ");
    bytes_put_integer(text, overlap);
    bytes_put_literal(text, ": it overlaps ");
    if (length > 0 && *name == '"')
        bytes_put(text, name + 1, length - 2);
    else
        bytes_put_literal(text, "another span");
}

/* -- the heap of spans that were cut at their begin -- */

static int repeats_less(const NestRepeat *one, const NestRepeat *other)
{
    int order = nest_compare(&one->span, &other->span);
    return order != 0 ? order < 0 : one->order < other->order;
}

static void repeats_push(NestLevel *level, NestSpan span, NestOutcome *outcome)
{
    if (!array_room_for_next((void **)&level->repeats, level->num_repeats, &level->repeats_capacity,
                             sizeof *level->repeats)) {
        outcome->has_failed = 1;
        return;
    }
    NestRepeat added = {span, level->num_repeated++};
    size_t at = level->num_repeats++;
    for (; at > 0 && repeats_less(&added, &level->repeats[(at - 1) / 2]); at = (at - 1) / 2)
        level->repeats[at] = level->repeats[(at - 1) / 2];
    level->repeats[at] = added;
}

static NestSpan repeats_pop(NestLevel *level)
{
    NestSpan first = level->repeats[0].span;
    NestRepeat last = level->repeats[--level->num_repeats];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= level->num_repeats) break;
        if (child + 1 < level->num_repeats &&
            repeats_less(&level->repeats[child + 1], &level->repeats[child]))
            child++;
        if (!repeats_less(&level->repeats[child], &last)) break;
        level->repeats[at] = level->repeats[child];
        at = child;
    }
    level->repeats[at] = last;
    return first;
}

/* -- one overlap -- */

enum Resolution { PLACED_ON, CUT_BEGIN, MOVED };

/* Resolves the overlap of `outer`, which is open, and `span`, which begins in it and ends later,
 * with the smallest change. */
static enum Resolution resolve(NestLevel *level, NestSpan *span, NestOutcome *outcome)
{
    NestSpan *outer = &level->open[level->num_open - 1];
    int64_t late = end_of(span) - end_of(outer), early = end_of(outer) - span->begin;
    int cut_end = late <= limits_ns[span->kind] || level->level == NEST_LAST_LEVEL;
    int cut_outer = early <= limits_ns[outer->kind], cut_begin = early <= limits_ns[span->kind];
    if (cut_end && (late <= early || (!cut_outer && !cut_begin))) {
        cut(span, 0, late, outcome);
        return PLACED_ON;
    }
    if (cut_outer) {
        cut(outer, 0, early, outcome);
        level->num_open--;
        return PLACED_ON;
    }
    if (cut_begin) {
        cut(span, early, 0, outcome);
        return CUT_BEGIN;
    }
    return MOVED;
}

static NestLevel *level_behind(NestLevel *level, NestOutcome *outcome)
{
    if (level->next == NULL) {
        level->next = calloc(1, sizeof *level->next);
        if (level->next == NULL)
            outcome->has_failed = 1;
        else
            level->next->level = level->level + 1;
    }
    return level->next;
}

/* Moves one of two spans to the next level: the later one, unless only its times are fixed. Returns
 * whether it was the outer one. */
static int move(NestLevel *level, NestSpan *span, NestOutcome *outcome)
{
    NestSpan *outer = &level->open[level->num_open - 1];
    int outer_goes = span->kind == SPAN_FIXED && outer->kind != SPAN_FIXED;
    NestSpan *leaving = outer_goes ? outer : span;
    send_on(level, leaving, outer_goes ? span : outer, outcome);
    NestLevel *next = level_behind(level, outcome);
    if (next == NULL || !array_room_for_next((void **)&next->moved, next->num_moved,
                                             &next->moved_capacity, sizeof *next->moved)) {
        outcome->has_failed = 1;
        return outer_goes;
    }
    next->moved[next->num_moved++] = *leaving;
    level->num_open -= (size_t)outer_goes;
    return outer_goes;
}

static void place_now(NestLevel *level, NestSpan span, NestOutcome *outcome)
{
    while (level->num_open > 0 && end_of(&level->open[level->num_open - 1]) <= span.begin)
        level->num_open--;
    while (level->num_open > 0 && end_of(&level->open[level->num_open - 1]) < end_of(&span)) {
        enum Resolution resolution = resolve(level, &span, outcome);
        if (resolution == CUT_BEGIN) {
            repeats_push(level, span, outcome);
            return;
        }
        if (outcome->has_failed || (resolution == MOVED && !move(level, &span, outcome))) return;
    }
    if (!array_room_for_next((void **)&level->open, level->num_open, &level->open_capacity,
                             sizeof *level->open)) {
        outcome->has_failed = 1;
        return;
    }
    level->open[level->num_open++] = span;
}

void nest_place(NestLevel *level, NestSpan span, NestOutcome *outcome)
{
    while (level->num_repeats > 0 && nest_compare(&level->repeats[0].span, &span) < 0)
        place_now(level, repeats_pop(level), outcome);
    place_now(level, span, outcome);
}

static void free_spans(NestLevel *level)
{
    free(level->open);
    free(level->repeats);
    free(level->moved);
    level->open = level->moved = NULL;
    level->repeats = NULL;
    level->num_open = level->num_moved = level->num_repeats = 0;
    level->open_capacity = level->moved_capacity = level->repeats_capacity = 0;
}

void nest_finish(NestLevel *level, NestOutcome *outcome)
{
    for (; level != NULL; level = level->next) {
        if (level->num_moved > 0)
            qsort(level->moved, level->num_moved, sizeof *level->moved, nest_compare_serials);
        for (size_t i = 0; i < level->num_moved; i++) nest_place(level, level->moved[i], outcome);
        while (level->num_repeats > 0) place_now(level, repeats_pop(level), outcome);
        free_spans(level); /* else n spans that all overlap would take n * n / 2 places */
    }
}

void nest_free(NestLevel *level)
{
    free_spans(level);
    for (NestLevel *next = level->next, *after; next != NULL; next = after) {
        after = next->next;
        free_spans(next);
        free(next);
    }
    memset(level, 0, sizeof *level);
}

void nest_free_outcome(NestOutcome *outcome)
{
    free(outcome->actions);
    memset(outcome, 0, sizeof *outcome);
}
