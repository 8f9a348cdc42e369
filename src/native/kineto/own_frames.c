/* See own_frames.h. */

#include "kineto/own_frames.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUILT_IN "\"<built-in "

static int has_own_name(const OwnFrames *own, const char *name, size_t length)
{
    for (size_t i = 0; i < own->num_prefixes; i++)
        if (text_begins((Text){name, length}, own->prefixes[i].at, own->prefixes[i].length))
            return 1;
    return 0;
}

/* The place of a number in the list: how many of our frames have a smaller one. */
static size_t place_of(const OwnFrames *own, int64_t number)
{
    size_t first = 0, last = own->num_frames;
    while (first < last) {
        size_t middle = first + (last - first) / 2;
        if (own->frames[middle].number < number)
            first = middle + 1;
        else
            last = middle;
    }
    return first;
}

static const OwnFrame *find(const OwnFrames *own, int64_t number)
{
    size_t place = place_of(own, number);
    return place < own->num_frames && own->frames[place].number == number ? &own->frames[place]
                                                                          : NULL;
}

static int add(OwnFrames *own, int64_t number, int64_t above)
{
    if (!array_room_for_next((void **)&own->frames, own->num_frames, &own->capacity,
                             sizeof *own->frames))
        return 0;
    /* the end of the list, if Kineto writes frames in order */
    size_t place = place_of(own, number);
    memmove(&own->frames[place + 1], &own->frames[place],
            (own->num_frames++ - place) * sizeof *own->frames);
    own->frames[place] = (OwnFrame){number, above};
    return 1;
}

/* The value of a field of the args, which end with a zero byte; NULL if there is no such field. */
static char *value_of(char *args, const char *field)
{
    char *found = strstr(args, field);
    return found != NULL ? found + strlen(field) : NULL;
}

static int64_t number_at(const char *value)
{
    return value != NULL && *value >= '1' && *value <= '9' ? strtoll(value, NULL, 10) : NO_FRAME;
}

/* Replaces the number at `value` by another one, or by null. */
static void put_number(char *value, int64_t number, char **end)
{
    char digits[24];
    int length = number != NO_FRAME ? snprintf(digits, sizeof digits, "%" PRId64, number) : 4;
    size_t old_length = strspn(value, "0123456789");
    memmove(value + length, value + old_length, (size_t)(*end - value) - old_length);
    memcpy(value, number != NO_FRAME ? digits : "null", (size_t)length);
    *end += length - (ptrdiff_t)old_length;
}

enum FrameFate own_frames_judge(OwnFrames *own, const char *name, size_t length, char *args,
                                char **args_end)
{
    **args_end = '\0';
    char *parent_text = value_of(args, "\"Python parent id\":");
    int64_t parent = number_at(parent_text);
    const OwnFrame *own_parent = parent != NO_FRAME ? find(own, parent) : NULL;
    int64_t above = own_parent != NULL ? own_parent->above : parent;
    int is_ours = has_own_name(own, name, length) ||
                  (own_parent != NULL && TEXT_BEGINS(((Text){name, length}), BUILT_IN));
    if (is_ours) {
        int64_t number = number_at(value_of(args, "\"Python id\":"));
        return number == NO_FRAME || add(own, number, above) ? FRAME_GOES : FRAME_FAILED;
    }
    if (own_parent != NULL) put_number(parent_text, above, args_end);
    return FRAME_STAYS;
}
