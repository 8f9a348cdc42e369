/* See profiler_frames.h. */

#include "kineto/profiler_frames.h"

#include <string.h>

#include "text/json.h"
#include "text/numbers.h"

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

/* The number of a frame and of its parent in the args, as text; empty if they are missing. */
typedef struct {
    Text number, parent;
} FrameArgs;

static FrameArgs read_args(const char *args, const char *end)
{
    FrameArgs found = {0};
    if (*args != '{') return found;
    JsonMembers members = json_members(args, end);
    while (json_next(&members)) {
        Text key = members.key, value = json_skip_member(&members);
        if (TEXT_IS(key, "Python id")) found.number = value;
        if (TEXT_IS(key, "Python parent id")) found.parent = value;
    }
    return found;
}

static int64_t number_of(Text value)
{
    int64_t number;
    return value.at != NULL && read_integer(value, &number) && number > 0 ? number : NO_FRAME;
}

/* Replaces the number at `value` by another one, or by null. */
static void put_number(char *value, size_t old_length, int64_t number, char **end)
{
    char digits[INTEGER_DIGITS];
    size_t length = number != NO_FRAME ? (size_t)(write_integer(digits, number) - digits) : 4;
    memmove(value + length, value + old_length, (size_t)(*end - value) - old_length);
    memcpy(value, number != NO_FRAME ? digits : "null", length);
    *end += (ptrdiff_t)length - (ptrdiff_t)old_length;
}

enum FrameFate profiler_frames_judge(OwnFrames *own, const char *name, size_t length, char *args,
                                     char **args_end)
{
    FrameArgs found = read_args(args, *args_end);
    int64_t parent = number_of(found.parent);
    const OwnFrame *own_parent = parent != NO_FRAME ? find(own, parent) : NULL;
    int64_t above = own_parent != NULL ? own_parent->above : parent;
    int is_ours = has_own_name(own, name, length) ||
                  (own_parent != NULL && TEXT_BEGINS(((Text){name, length}), BUILT_IN));
    if (is_ours) {
        int64_t number = number_of(found.number);
        return number == NO_FRAME || add(own, number, above) ? FRAME_GOES : FRAME_FAILED;
    }
    if (own_parent != NULL)
        put_number(args + (found.parent.at - args), found.parent.length, above, args_end);
    return FRAME_STAYS;
}
